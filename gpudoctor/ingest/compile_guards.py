"""What Dynamo says of a recompilation: the guard that failed, parsed into what changed, where, and who reads it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from gpudoctor.ingest.compile_breaks import readable
from gpudoctor.userfiles import UserFiles

_MISMATCH = re.compile(
    r"tensor '(?P<source>.+?)' (?P<what>[\w ]+?) mismatch(?: at index (?P<index>\d+))?\. "
    r"expected (?P<expected>.+?)(?:, actual (?P<actual>.+?))?(?:\. (?P<more>.*))?$"
)
_TENSOR_PARTS = {
    "size": "size",
    "stride": "stride",
    "rank": "rank",
    "dtype": "dtype",
    "device index": "device",
    "dispatch key set": "dispatch keys",
    "requires_grad": "requires_grad",
}
_SIZES = ("size", "stride", "rank")
_TYPE = re.compile(r"expected type of '(.+?)' to be .*? but found (.+)$")
_STATE = re.compile(r"GLOBAL_STATE changed: (.+)$|___check_global_state\(\)")
_BACKEND = re.compile(r"BACKEND_MATCH|___check_current_backend")
_IDENTITY = re.compile(r"___check_obj_id\((.+?), \d+\)")
_TYPE_ID = re.compile(r"___check_type_id\((.+?), \d+\)(?:, type=<class '(.+)'>)?")
_KEYS = re.compile(r"___dict_contains\('?(.+?)'?, (.+)\)|list\(dict\.keys\((.+?)\)\)\[\d+\] == (.+)")
_LENGTH = re.compile(r"^(not )?len\((.+)\)(?:\s*(==|!=)\s*(\d+))?$")
_SHAPE_EXPRESSION = re.compile(r"\.(?:size|stride)\(\)|\.storage_offset\(\)|\bs\d+\b|\bEq\(|\bNe\(|\bu\d+\b")
_EQUALITY = re.compile(r"^(.*?)\s*(?:==|<=|>=|<|>|!=|\bis\b)\s*(.+)$")
_COMMENT = re.compile(r"\s{2,}#\s")
_NUMBER = re.compile(r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$|^[-+]?(?:inf|nan)$")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_MAX_GUARD = 2000  # characters of a guard that are looked at: a longer one is a value printed in full


def parse_recompile(payload: str, files: UserFiles | None = None) -> dict[str, Any]:
    """What a recompile record says: the guard that failed against the newest older code.

    Args:
        payload: text of the artifact `recompile_reasons`: one reason, or a JSON list of them, newest code first.
        files: names the user's files; without it nobody is known to read the value.

    Returns:
        The columns of `recompiles` that the record gives: cause, changed, held_in, guard, source, dimension, expected,
        actual, used_file, used_line.
    """
    text = payload.strip()
    try:
        decoded = json.loads(text)
        text = str(decoded[0]) if isinstance(decoded, list) and decoded else str(decoded)
    except ValueError:
        pass
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return {"cause": "other", "changed": "other", "guard": None}
    guard = re.sub(r"^-?\s*\d+/\d+:\s*", "", lines[0])
    row = _changed(_COMMENT.split(guard[:_MAX_GUARD], maxsplit=1)[0].strip())
    row |= {"guard": guard, "held_in": _held_in(row)}
    if row.get("source"):
        row["source"] = readable(row["source"])
    return row | _reader(text, files)


def _changed(expression: str) -> dict[str, Any]:
    """Cause, what changed, whose value, and the values as far as the guard says them."""
    for pattern, parsed in _FORMS:
        if match := pattern.search(expression):
            return parsed(match)
    return {"cause": "other", "changed": "other", "source": None, "expected": None, "actual": None}


def _mismatch(match: re.Match[str]) -> dict[str, Any]:
    changed = _TENSOR_PARTS.get(match["what"], "other")
    return {
        "cause": "shape" if changed in _SIZES else "value",
        "changed": changed,
        "source": match["source"] if changed != "rank" else f"{match['source']} (rank)",
        "dimension": int(match["index"]) if match["index"] else None,
        "expected": match["expected"].removeprefix("requires_grad="),
        "actual": match["actual"],
        "held_in": "parameter" if "on a parameter" in (match["more"] or "") else None,
    }


def _state(match: re.Match[str]) -> dict[str, Any]:
    state = match[1] or "global state"
    return _value("grad mode" if state.startswith("grad_mode") else "global state", state)


def _size(match: re.Match[str]) -> dict[str, Any]:
    expression = match.string
    equality = _EQUALITY.match(expression)
    dimension = re.search(r"\.(?:size|stride)\(\)\[(\d+)\]", expression)
    return {
        "cause": "shape",
        "changed": "stride" if ".stride()" in expression else "size",
        "source": equality[1] if equality else None,
        "dimension": int(dimension[1]) if dimension else None,
        "expected": equality[2] if equality else None,
        "actual": None,
    }


def _value(changed: str, source: str | None, expected: str | None = None, actual: str | None = None) -> dict[str, Any]:
    return {"cause": "value", "changed": changed, "source": source, "expected": expected, "actual": actual}


def _kind(source: str, literal: str) -> str:
    if source.endswith(".training"):
        return "training flag"
    if literal in ("True", "False"):
        return "boolean"
    if literal.startswith(("'", '"')):
        return "string"
    return "number" if _NUMBER.match(literal) else "object"


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], dict[str, Any]]], ...] = (
    (_MISMATCH, _mismatch),
    (_TYPE, lambda match: _value("type", match[1], None, match[2])),
    (_STATE, _state),
    (_BACKEND, lambda match: _value("backend", None)),
    (_IDENTITY, lambda match: _value("object", match[1])),
    (_TYPE_ID, lambda match: _value("type", match[1], match[2])),
    (_KEYS, lambda match: _value("keys", match[2] or match[3], match[1] or match[4])),
    (_LENGTH, lambda match: _value("length", match[2], match[4])),
    (_SHAPE_EXPRESSION, _size),
    (_EQUALITY, lambda match: _value(_kind(match[1], match[2]), match[1], match[2])),
)
"""The forms of a guard, the first that fits counts."""


def _held_in(row: dict[str, Any]) -> str | None:
    """Where the value lives."""
    source = row.get("source")
    if row.get("held_in"):
        return str(row["held_in"])
    if source is None or row["changed"] in ("grad mode", "global state", "backend"):
        return None
    if "param_groups" in source or re.search(r"\.state\[", source):
        return "optimizer"
    if source.startswith("___stack"):
        return "continuation"
    if re.match(r"G\[", source):
        return "global"
    return "attribute" if "." in readable(source) else "argument"


def _reader(text: str, files: UserFiles | None) -> dict[str, Any]:
    """The innermost of the user's lines that reads the value while Dynamo traces it."""
    for file, line in reversed(_FRAME.findall(text)):
        if files is not None and (shown := files.name(file)) is not None:
            return {"used_file": shown, "used_line": int(line)}
    return {"used_file": None, "used_line": None}
