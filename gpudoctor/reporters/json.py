"""The Diagnosis as JSON, schema 1 (docs/diagnosis.schema.json)."""

from __future__ import annotations

from typing import Any

import msgspec

from gpudoctor.diagnosis import Diagnosis, to_json


def render(diagnosis: Diagnosis) -> str:
    """Indented JSON that ends in a newline.

    A file name that is not valid in the file system's encoding reaches Python with lone surrogates, which JSON cannot
    carry: they are written as the text of their escape.
    """
    try:
        return to_json(diagnosis)
    except UnicodeEncodeError:
        encodable = _encodable(msgspec.to_builtins(diagnosis))
        return msgspec.json.format(msgspec.json.encode(encodable), indent=2).decode() + "\n"


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
