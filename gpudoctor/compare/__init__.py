"""Two revisions side by side: what changed in counters, findings and step time. Counters decide, time advises."""

from __future__ import annotations

from gpudoctor.compare.model import (
    SCHEMA,
    Comparison,
    CounterChange,
    FindingChange,
    LineChange,
    Regression,
    Side,
    TimeChange,
    comparison_schema,
    to_json,
)
from gpudoctor.compare.whole import compare

__all__ = [
    "SCHEMA",
    "Comparison",
    "CounterChange",
    "FindingChange",
    "LineChange",
    "Regression",
    "Side",
    "TimeChange",
    "compare",
    "comparison_schema",
    "to_json",
]
