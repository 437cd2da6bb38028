"""Counts what a run does: graphs, operators, copies, bytes. They do not depend on the machine's speed."""

from __future__ import annotations

from gpudoctor.counting.names import COUNTERS, Kind, kind
from gpudoctor.counting.words import amount

__all__ = ["COUNTERS", "Kind", "amount", "kind"]
