"""What the compilation metrics say of CUDA graphs: why the kernels of a graph are not replayed as one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpudoctor.userfiles import UserFiles

_PREFIX = "skipping cudagraphs due to "
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


def skipped(metrics: Mapping[str, Any], files: UserFiles) -> dict[str, Any]:
    """The columns `cudagraph_skip…` of `compilations`; empty when nothing was skipped.

    torch sets the metric `cudagraph_skip_reason` only where CUDA graphs were asked for (mode reduce-overhead or
    max-autotune, backend cudagraphs). A stack trace in it names the operator that is to blame. What a run skips later,
    because inputs are mutated, is not in the metrics.

    Args:
        metrics: a forward's or a backward's compilation metrics.
        files: names the user's files.
    """
    said = metrics.get("cudagraph_skip_reason")
    if not isinstance(said, str) or not said.strip():
        return {}
    reason, _, trace = said.removeprefix(_PREFIX).partition("Found from")
    row: dict[str, Any] = {"cudagraph_skip": reason.strip().rstrip(".")}
    for file, line in reversed(_FRAME.findall(trace)):
        if (shown := files.name(file)) is not None:
            return row | {"cudagraph_skip_file": shown, "cudagraph_skip_line": int(line)}
    return row
