"""Loops that call small operators on tensors of one size, and walk along no tensor: the table `op_storms`.

Iterative solvers, integrators, routing and message passing in rounds look so. A loop over parameters or gradients,
whose tensors have sizes of their own, is none: it is an optimizer's, or a clipping's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_OVER_PARAMETERS = re.compile(r"param|grad|weight|buffers|modules|state_dict|_groups", re.IGNORECASE)


def rows(loop_lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `op_storms` from those of `loop_lines`, one a loop."""
    loops: dict[int, list[Mapping[str, Any]]] = {}
    for line in loop_lines:
        loops.setdefault(line["loop"], []).append(line)
    made = []
    for lines in loops.values():
        dearest = max(lines, key=lambda line: line["forward_ns"] + line["backward_ns"])
        if dearest["pieces"] is not None or dearest["sizes"] > 1:
            continue
        if _OVER_PARAMETERS.search(dearest.get("head") or ""):
            continue
        made.append(
            {
                **{name: dearest.get(name) for name in ("file", "line", "function", "module_path")},
                **{name: dearest.get(name) for name in ("loop_file", "loop_line", "head", "iterations")},
                "median_op_ns": dearest["median_op_ns"],
                "operators": sum(line["operators"] for line in lines),
                "total_ns": sum(line["forward_ns"] + line["backward_ns"] for line in lines),
                "between_ns": sum(line["between_ns"] for line in lines),
            }
        )
    return made
