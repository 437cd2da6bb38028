"""Bytes of normalisation, softmax and reductions.

The large tensors are read and written once each. Argument positions are those of ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula, moves
from gpudoctor.analysis.costs.operands import FLOATING, Operands, Tensor, item_bytes, promote, sizes, times, total
from gpudoctor.analysis.costs.pointwise import pointwise

# ---- normalisation


def _norm(args: Operands, small: Sequence[int], reads: int = 1, writes: int = 1) -> Cost:
    """The large tensor (argument 0) `reads` times, as much written `writes` times, and vectors of its channels once.

    Forward: input and output (training needs the statistics first, but they can be had in the same pass over what a
    chip holds). Backward: gradient and input read, gradient of the input written. Statistics that are written are left
    out: a value for a channel or a row.
    """
    data = args.tensor(0)
    return moves(times(reads + writes, data.bytes), sizes(args.tensors(*small))) if data is not None else NOT_RECORDED


def _norm_backward(args: Operands, weight: int, statistics: Sequence[int], mask: int | None) -> Cost:
    """(grad, input, …): both read; the gradients that output_mask asks for written."""
    grad, data = args.tensor(0), args.tensor(1)
    if grad is None or data is None:
        return NOT_RECORDED
    made = args.flags(mask) if mask is not None else [True, True]
    if made is None or len(made) < 2:
        return Cost(0, None)
    scale = args.tensor(weight)
    vectors = times(sum(made[1:]), scale.bytes if scale is not None else 0)
    written = total(data.bytes if made[0] else 0, vectors)
    return moves(sizes([grad, data]), sizes(args.tensors(weight, *statistics)), written)


# ---- softmax and reductions


def _softmax(args: Operands) -> Cost:
    """_softmax(self, dim, half_to_float): reads self, writes as much, in float when half_to_float."""
    data = args.tensor(0)
    if data is None:
        return NOT_RECORDED
    widened = False if data.dtype in ("float", "double") else args.flag(2)
    if widened is None:
        return Cost(0, None)
    return moves(data.bytes, times(data.numel, 4 if widened else data.item_bytes))


def _softmax_backward(args: Operands) -> Cost:
    """_softmax_backward_data(grad_output, output, dim, input_dtype): the result has the input's type."""
    grad, out = args.tensor(0), args.tensor(1)
    if grad is None or out is None:
        return NOT_RECORDED
    return moves(sizes([grad, out]), times(grad.numel, item_bytes(args.dtype_argument(3, ""))))


def _reduction(args: Operands, dims: int = 1, dtype: int | None = None, out: str = "", values: int = 1) -> Cost:
    """The input once, and a result for each position that is left.

    Args:
        args: the operands.
        dims: position of the dimensions; without that argument, or with none in it, all are reduced.
        dtype: position of the dtype argument of the overload with dimensions; without dimensions it stands second.
        out: type of the result when it is not the input's.
        values: results of the input's type for each position.
    """
    data = args.tensor(0)
    if data is None:
        return NOT_RECORDED
    whole = len(args) <= dims or (dims == 1 and len(args) == 2 and dtype is not None)
    left = 1 if whole or args.given(dims) is False else _left(data, args.numbers(dims))
    if out:
        kind = out
    elif dtype is not None:
        kind = args.dtype_argument(1 if whole else dtype, data.dtype if data.dtype in FLOATING else "")
    else:
        kind = data.dtype
    return moves(data.bytes, times(values, left, item_bytes(kind)))


def _left(data: Tensor, dims: list[int] | None) -> int | None:
    if dims is None:
        return None
    rank = max(len(data.shape), 1)
    gone = {dim % rank for dim in dims} or set(range(rank))
    return prod(length for axis, length in enumerate(data.shape) if axis not in gone)


def _statistics(args: Operands, values: int = 1) -> Cost:
    """var(self, dim, correction, keepdim) and its kin; var(self, unbiased) has a truth value in dim's place."""
    if args.flag(1) is not None and len(args) == 2:
        data = args.tensor(0)
        return moves(data.bytes, times(values, data.item_bytes)) if data is not None else NOT_RECORDED
    return _reduction(args, values=values)


def _extreme(args: Operands) -> Cost:
    """max(self); max(self, other), pointwise; max(self, dim, keepdim), which also writes 8-byte indices."""
    if args.tensor(1) is not None:
        return pointwise(args, (0, 1))
    plain = _reduction(args)
    data = args.tensor(0)
    if len(args) == 1 or data is None or plain.bytes_min is None:
        return plain
    return moves(plain.bytes_min, times(8, _left(data, args.numbers(1))))


def _mean_squared(args: Operands) -> Cost:
    """mse_loss(self, target, reduction): reads both; reduction 0 writes every difference, 1 and 2 one number."""
    tensors, reduction = args.tensors(0, 1), args.number(2)
    if len(tensors) != 2:
        return NOT_RECORDED
    if reduction == 0:
        return pointwise(args, (0, 1))
    return moves(sizes(tensors), item_bytes(promote(tensors)) if reduction is not None else None)


def _scan(args: Operands) -> Cost:
    """cumsum(self, dim): reads and writes as much, when floating."""
    data = args.tensor(0)
    if data is None or data.dtype not in FLOATING or args.given(2):
        return NOT_RECORDED
    return moves(data.bytes, data.bytes)


_NORMALISATION: dict[str, Formula] = {
    "native_layer_norm": partial(_norm, small=(2, 3)),
    "_fused_rms_norm": partial(_norm, small=(2,)),
    "native_group_norm": partial(_norm, small=(1, 2)),
    "native_batch_norm": partial(_norm, small=(1, 2, 3, 4)),
    "cudnn_batch_norm": partial(_norm, small=(1, 2, 3, 4)),
    "miopen_batch_norm": partial(_norm, small=(1, 2, 3, 4)),
    "_batch_norm_with_update": partial(_norm, small=(1, 2, 3, 4)),
    "batch_norm_elemt": partial(_norm, small=(1, 2, 3, 4)),
    "batch_norm_stats": partial(_norm, small=(), writes=0),
    "batch_norm_backward_reduce": partial(_norm, small=(2, 3, 4), reads=2, writes=0),
    "batch_norm_backward_elemt": partial(_norm, small=(2, 3, 4, 5, 6), reads=2),
    "native_layer_norm_backward": partial(_norm_backward, weight=5, statistics=(3, 4), mask=7),
    "_fused_rms_norm_backward": partial(_norm_backward, weight=4, statistics=(3,), mask=5),
    "native_group_norm_backward": partial(_norm_backward, weight=4, statistics=(2, 3), mask=9),
    "native_batch_norm_backward": partial(_norm_backward, weight=2, statistics=(5, 6), mask=9),
    "batch_norm_backward": partial(_norm_backward, weight=2, statistics=(5, 6), mask=9),
    "cudnn_batch_norm_backward": partial(_norm_backward, weight=2, statistics=(5, 6), mask=None),
    "miopen_batch_norm_backward": partial(_norm_backward, weight=2, statistics=(5, 6), mask=None),
}
_REDUCTIONS: dict[str, Formula] = {
    "_softmax": _softmax,
    "_log_softmax": _softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _softmax_backward,
    "sum": partial(_reduction, dtype=3),
    "mean": partial(_reduction, dtype=3),
    "amax": _reduction,
    "amin": _reduction,
    "logsumexp": _reduction,
    "argmax": partial(_reduction, out="long int"),
    "argmin": partial(_reduction, out="long int"),
    "any": partial(_reduction, out="bool"),
    "all": partial(_reduction, out="bool"),
    "linalg_vector_norm": partial(_reduction, dims=2, dtype=4),
    "norm": partial(_reduction, dims=2),
    "var": _statistics,
    "std": _statistics,
    "var_mean": partial(_statistics, values=2),
    "std_mean": partial(_statistics, values=2),
    "max": _extreme,
    "min": _extreme,
    "mse_loss": _mean_squared,
    "cumsum": _scan,
}
FORMULAS: dict[str, tuple[str, Formula]] = {
    **{name: ("normalisation", formula) for name, formula in _NORMALISATION.items()},
    **{name: ("reduction", formula) for name, formula in _REDUCTIONS.items()},
}
"""Kind and formula by operator name without `aten::`."""
