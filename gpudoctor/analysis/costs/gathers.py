"""Bytes of embeddings and other operators that pick rows by index.

Argument positions are those of ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula, moves
from gpudoctor.analysis.costs.operands import Operands, times


def _embedding(args: Operands) -> Cost:
    """embedding(weight, indices): the indices, and for each of them a row read and written.

    A row that occurs twice may come out of a cache the second time: this is the traffic of rows that differ.
    """
    weight, indices = args.tensor(0), args.tensor(1)
    if weight is None or indices is None or len(weight.shape) != 2:
        return NOT_RECORDED
    return moves(indices.bytes, times(2, indices.numel, weight.shape[1], weight.item_bytes))


def _index_select(args: Operands) -> Cost:
    """index_select(self, dim, index): for each index a slice read and written."""
    data, index, dim = args.tensor(0), args.tensor(2), args.number(1)
    if data is None or index is None or not data.shape:
        return NOT_RECORDED
    axis = 0 if len(data.shape) == 1 else dim
    if axis is None or not -len(data.shape) <= axis < len(data.shape):
        return Cost(0, None)
    slice_elements = data.numel // max(data.shape[axis], 1)
    return moves(index.bytes, times(2, index.numel, slice_elements, data.item_bytes))


def _gather(args: Operands) -> Cost:
    """gather(self, dim, index): an element read and written for each index."""
    data, index = args.tensor(0), args.tensor(2)
    if data is None or index is None:
        return NOT_RECORDED
    return moves(index.bytes, times(2, index.numel, data.item_bytes))


def _embedding_backward(args: Operands) -> Cost:
    """embedding_dense_backward(grad, indices, num_weights): a gradient as large as the table is written."""
    grad, indices = args.tensor(0), args.tensor(1)
    if grad is None or indices is None or not grad.shape:
        return NOT_RECORDED
    return moves(grad.bytes, indices.bytes, times(args.number(2), grad.shape[-1], grad.item_bytes))


FORMULAS: dict[str, tuple[str, Formula]] = {
    "embedding": ("gather", _embedding),
    "index_select": ("gather", _index_select),
    "gather": ("gather", _gather),
    "embedding_dense_backward": ("embedding backward", _embedding_backward),
}
"""Kind and formula by operator name without `aten::`."""
