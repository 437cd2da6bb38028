"""Convolutions with a bias whose output only a batch norm takes, which subtracts it again."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from gpudoctor.analysis import frames, op_costs
from gpudoctor.analysis.op_cells import OpCells, is_operator, rows_named
from gpudoctor.profile import frame

CONVOLUTIONS = tuple(f"aten::conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))
_TRAINING = 5  # position of `training` among the arguments of aten::batch_norm


def rows(ops: pd.DataFrame, kernels: pd.DataFrame | None) -> pd.DataFrame:
    """The table `conv_norms`.

    An output goes straight into a batch norm when no other operator runs between the two and their sizes agree, and
    when the engine, which adds up the gradients of all uses, has nothing to add: then the norm is the only use.

    Args:
        ops: the table `ops`; operators with shapes count.
        kernels: the table `kernels`; None when no device was watched, then the bias has no time of its own.
    """
    cells = OpCells(ops)
    device_ns = None
    if kernels is not None:
        device_ns = op_costs.launched(ops, kernels[frames.is_one_of(kernels, "kind", "kernel")])[0]
    backward = _backward(ops, cells)
    summed = _summed(ops, cells)
    children = _children(cells) if device_ns is not None else {}
    made: list[dict[str, Any]] = []
    for conv, norm in _pairs(ops, cells):
        operands = cells.operands(conv)
        bias = operands[2] if len(operands) > 2 else []
        if not bias or not _takes(cells.operands(norm), operands, bias[0]):
            continue
        back = backward.get(conv)
        made.append(
            {
                **cells.place(conv),
                "norm": cells.text("module_path", norm) or None,
                "channels": int(bias[0]),
                "training": _argument(cells, norm, _TRAINING) == "True",
                "bias_gradient": None if back is None else _bias_gradient(cells, back),
                "only_use": None if back is None else norm not in summed,
                "bias_ns": None if device_ns is None else _bias_ns(cells, device_ns, children, conv, back),
            }
        )
    return frame("conv_norms", made)


def _pairs(ops: pd.DataFrame, cells: OpCells) -> list[tuple[int, int]]:
    """Convolutions and the batch norms right behind them in the forward pass."""
    starts, phase = cells.start, frames.is_one_of(ops, "phase", "forward")
    shaped = np.array([*(not text.startswith("[[]") for text in frames.texts(ops, "shapes").values), True], np.bool_)
    sized = shaped[frames.texts(ops, "shapes").codes]  # counting batches is no use of the output
    outer = np.flatnonzero(phase & sized)
    outer = outer[np.argsort(starts[outer], kind="stable")]
    last: dict[int | None, int] = {}
    found = []
    for row in outer.tolist():
        if not is_operator(cells.text("name", row)) or any(
            is_operator(cells.text("name", up)) for up in cells.above(row)
        ):
            continue
        thread = cells.number("thread", row)
        before = last.get(thread)
        if (
            before is not None
            and cells.text("name", row) == "aten::batch_norm"
            and cells.text("name", before) in CONVOLUTIONS
        ):
            found.append((before, row))
        last[thread] = row
    return found


def _takes(norm: list[Any], conv: list[Any], channels: int) -> bool:
    """Whether the norm's input can be the convolution's output: same batch and rank, its channels."""
    given, came = (norm or [[]])[0], conv[0]
    return len(given) == len(came) > 1 and given[0] == came[0] and given[1] == channels


def _outer_convolution(cells: OpCells, row: int) -> int:
    """The outermost operator around a forward operator."""
    for up in cells.above(row):
        if is_operator(cells.text("name", up)):
            row = up
    return row


def _backward(ops: pd.DataFrame, cells: OpCells) -> dict[int, int]:
    """The backward operator of each convolution."""
    made = {}
    for row in rows_named(ops, "aten::convolution_backward").tolist():
        if cells.forward[row] >= 0:
            made[_outer_convolution(cells, int(cells.forward[row]))] = row
    return made


def _summed(ops: pd.DataFrame, cells: OpCells) -> set[int]:
    """Batch norms whose input's gradient the engine adds to another one."""
    made = set()
    for row in rows_named(ops, "aten::add", "aten::add_").tolist():
        above = int(cells.parent[row])
        if above >= 0 and "BatchNormBackward" in cells.text("name", above) and cells.forward[above] >= 0:
            made.add(_outer_convolution(cells, int(cells.forward[above])))
    return made


def _bias_gradient(cells: OpCells, row: int) -> bool | None:
    """Whether the convolution's backward operator computes the gradient of the bias: its last argument says so."""
    mask = _argument(cells, row, -1)
    return None if not mask else mask.rstrip("]").split(",")[-1].strip() == "True"


def _argument(cells: OpCells, row: int, position: int) -> str:
    text = cells.text("arguments", row)
    given = json.loads(text) if text else []
    return str(given[position]) if len(given) > abs(position) else ""


def _children(cells: OpCells) -> dict[int, list[int]]:
    made: dict[int, list[int]] = {}
    for row, up in enumerate(cells.parent.tolist()):
        if up >= 0:
            made.setdefault(up, []).append(row)
    return made


def _bias_ns(cells: OpCells, device_ns: Any, children: dict[int, list[int]], conv: int, back: int | None) -> int:
    """Device time of adding the bias (`add_`) and of its gradient (`sum`), where cuDNN leaves them to torch."""
    total, waiting = 0, [(conv, "aten::add_")] + ([] if back is None else [(back, "aten::sum")])
    while waiting:
        row, wanted = waiting.pop()
        if cells.text("name", row) == wanted:
            total += int(device_ns[row])
        waiting += [(child, wanted) for child in children.get(row, ())]
    return total
