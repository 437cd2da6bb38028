"""The line of the user's source that changed a compiler option or an environment variable.

These are plain assignments, which nothing can notice while the script runs without slowing Dynamo down. So where one
was changed, and exactly one line of the user's source assigns it, it is that line.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

CHANGED, SCRIPT = "changed", "script"


def placed(settings: Sequence[Mapping[str, Any]], sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of `settings`, those that something unknown changed with their place where the source shows it."""
    return [{**row, **(_site(str(row["name"]), sources) if row.get("source") == CHANGED else {})} for row in settings]


def _site(setting: str, sources: Mapping[str, str]) -> dict[str, Any]:
    label, _, name = setting.partition(".")
    word = re.escape(name.rpartition(".")[2])
    if label == "env":
        assigns = re.compile(rf"environ(?:\[|\.setdefault\(|\.update\().*\b{word}\b")
    elif label in ("dynamo", "inductor"):
        assigns = re.compile(rf"(?:config|{label})\b.*\b{word}\s*=(?!=)")
    else:
        return {}
    found = [
        (file, number)
        for file, text in sources.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if assigns.search(line.partition("#")[0])
    ]
    return {"file": found[0][0], "line": found[0][1], "source": SCRIPT} if len(found) == 1 else {}
