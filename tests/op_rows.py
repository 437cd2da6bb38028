"""The operators of a trace as plain rows, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpudoctor import profile as schema
from gpudoctor.ingest import kineto, ops
from gpudoctor.ingest.callers import Names


def op_rows(trace: kineto.Trace, windows: Sequence[ops.Window], names: Names, **more: Any) -> list[dict[str, Any]]:
    """Rows of `ops` in detail mode, null as None."""
    frame = schema.from_columns("ops", ops.build(trace, windows, 0, "detail", names, **more).columns).astype(object)
    return frame.where(frame.notna(), None).to_dict("records")
