"""What Dynamo says of a recompilation: the guard that failed, parsed into what changed."""

from __future__ import annotations

import json
import re
from typing import Any

_MISMATCH = re.compile(
    r"tensor '(.+?)' (size|stride|rank) mismatch(?: at index (\d+))?\. expected ([-\d]+), actual ([-\d]+)"
)
_SHAPE_EXPRESSION = re.compile(r"\.(?:size|stride)\(\)|\.storage_offset\(\)|\bs\d+\b|\bEq\(|\bNe\(|\bu\d+\b")
_EQUALITY = re.compile(r"^(.*?)\s*(?:==|<=|>=|<|>|!=|is)\s*(.+?)(?:\s{2,}#.*|\s+#.*)?$")


def parse_recompile(payload: str) -> dict[str, Any]:
    """What a recompile record says: the guard that failed against the newest older code, parsed into what changed."""
    text = payload.strip()
    try:
        decoded = json.loads(text)
        text = "\n".join(map(str, decoded)) if isinstance(decoded, list) else str(decoded)
    except ValueError:
        pass
    reasons = [re.sub(r"^-?\s*\d+/\d+:\s*", "", line.strip()) for line in text.splitlines() if line.strip()]
    if not reasons:
        return {"cause": "other", "guard": None}
    guard = reasons[0]
    if match := _MISMATCH.search(guard):
        source, what, dimension, expected, actual = match.groups()
        return {
            "cause": "shape",
            "guard": guard,
            "source": re.sub(r"^L\['(\w+)'\]", r"\1", source) if what != "rank" else f"{source} (rank)",
            "dimension": int(dimension) if dimension else None,
            "expected": expected,
            "actual": actual,
        }
    shape = bool(_SHAPE_EXPRESSION.search(guard.partition("  #")[0]))
    equality = _EQUALITY.match(guard)
    dimension = re.search(r"\.(?:size|stride)\(\)\[(\d+)\]", guard)
    return {
        "cause": "shape" if shape else "value" if equality else "other",
        "guard": guard,
        "source": equality[1] if equality else None,
        "dimension": int(dimension[1]) if dimension else None,
        "expected": equality[2] if equality else None,
        "actual": None,
    }
