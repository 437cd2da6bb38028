"""Counts what a run does: graphs, operators, copies, bytes. They do not depend on the machine's speed."""

from __future__ import annotations

from gpudoctor.counting.counters import counters, values
from gpudoctor.counting.names import COUNTERS, Kind, kind

__all__ = ["COUNTERS", "Kind", "counters", "kind", "values"]
