"""Bytes of pointwise operators, fills and copies.

Each operand is read once and the result written once. Shapes do not tell strides: an expanded operand, whose rows are
one and the same memory, is counted at its full size, and so is one that is passed twice. Argument positions are
those of ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula, moves
from gpudoctor.analysis.costs.operands import (
    FLOATING,
    Operands,
    Tensor,
    broadcast,
    item_bytes,
    promote,
    sizes,
    times,
)

_FIRST = (
    *("relu", "neg", "abs", "clamp", "clamp_min", "clamp_max", "tril", "triu", "square", "sgn", "sign"),
    "bitwise_not",
)
_FLOAT = (
    *("gelu", "silu", "mish", "sigmoid", "tanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt"),
    *("rsqrt", "sin", "cos", "tan", "reciprocal", "hardtanh", "hardsigmoid", "hardswish", "leaky_relu", "elu"),
    *("softplus", "erf", "erfinv", "floor", "ceil", "round", "trunc", "threshold", "logit"),
)
_PAIRS = (
    *("add", "sub", "rsub", "mul", "maximum", "minimum", "fmod", "remainder"),
    *("bitwise_and", "bitwise_or", "bitwise_xor"),
)
_FLOAT_PAIRS = (
    *("div", "true_divide", "pow", "atan2", "gelu_backward", "silu_backward", "mish_backward", "sigmoid_backward"),
    *("tanh_backward", "threshold_backward", "leaky_relu_backward", "hardswish_backward", "hardsigmoid_backward"),
    *("hardtanh_backward", "softplus_backward", "native_dropout_backward"),
)
_TRUTH = (
    *("logical_not", "isnan", "isinf", "isfinite", "eq", "ne", "lt", "le", "gt", "ge"),
    *("logical_and", "logical_or", "logical_xor"),
)
_TRIPLES = ("addcmul", "addcdiv", "lerp", "mse_loss_backward")
_RANDOM = ("normal_", "uniform_", "bernoulli_", "random_", "exponential_")


def pointwise(args: Operands, operands: Sequence[int], out: str = "", in_place: bool = False) -> Cost:
    """Every operand once, and the result: its shape is the operands' broadcast, its type what they promote to.

    In place, the result is the first operand again.
    """
    tensors = args.tensors(*operands)
    shape = broadcast([tensor.shape for tensor in tensors]) if tensors else None
    if shape is None or any(args.shapes(index) for index in operands):
        return NOT_RECORDED
    if in_place:
        return moves(sizes(tensors), tensors[0].bytes)
    return moves(sizes(tensors), times(prod(shape), item_bytes(out or _result(args, tensors, operands))))


def _result(args: Operands, tensors: Sequence[Tensor], operands: Sequence[int]) -> str:
    """Type of the result; empty for integers beside a number, which may be a floating one."""
    dtype = promote(tensors)
    return dtype if dtype in FLOATING or len(tensors) == sum(index < len(args) for index in operands) else ""


def _float_pointwise(args: Operands, operands: Sequence[int], in_place: bool = False) -> Cost:
    """As `pointwise`, of operators that make floating results of integers: those are left open."""
    if not in_place and promote(args.tensors(*operands)) not in FLOATING:
        return NOT_RECORDED
    return pointwise(args, operands, in_place=in_place)


def _where(args: Operands) -> Cost:
    """where(condition, self, other): the condition's type has no say in the result's."""
    tensors, values = args.tensors(0, 1, 2), args.tensors(1, 2)
    shape = broadcast([tensor.shape for tensor in tensors])
    if len(args) < 3 or args.tensor(0) is None or shape is None:
        return NOT_RECORDED
    return moves(sizes(tensors), times(prod(shape), item_bytes(_result(args, values, (1, 2)))))


def _masked_fill(args: Operands, in_place: bool = False) -> Cost:
    """masked_fill(self, mask, value): of self's type."""
    data = args.tensor(0)
    return pointwise(args, (0, 1), data.dtype, in_place) if data is not None else NOT_RECORDED


def _dropout(args: Operands) -> Cost:
    """native_dropout(input, p, train): also writes the mask, a byte an element."""
    data = args.tensor(0)
    return moves(data.bytes, data.bytes, data.numel) if data is not None else NOT_RECORDED


def _elu_backward(args: Operands) -> Cost:
    """elu_backward(grad, alpha, scale, input_scale, is_result, self_or_result)."""
    return _float_pointwise(args, (0, 5))


def _write(args: Operands) -> Cost:
    """fill_(self, …), zero_(self), random numbers in place: write self."""
    data = args.tensor(0)
    return moves(data.bytes) if data is not None else NOT_RECORDED


def _copy(args: Operands) -> Cost:
    """copy_(self, src): reads src, which may broadcast, and writes self, which may be of another type."""
    into, source = args.tensor(0), args.tensor(1)
    return moves(into.bytes, source.bytes) if into is not None and source is not None else NOT_RECORDED


def _table() -> dict[str, tuple[str, Formula]]:
    made: dict[str, Formula] = {}
    for names, formula, operands in (
        (_FIRST, pointwise, (0,)),
        (_FLOAT, _float_pointwise, (0,)),
        (_PAIRS, pointwise, (0, 1)),
        (_FLOAT_PAIRS, _float_pointwise, (0, 1)),
        (_TRIPLES, _float_pointwise, (0, 1, 2)),
    ):
        for name in names:
            made[name] = partial(formula, operands=operands)
            made[f"{name}_"] = partial(formula, operands=operands, in_place=True)
    made |= dict.fromkeys(_TRUTH, partial(pointwise, operands=(0, 1), out="bool"))
    made |= {"where": _where, "native_dropout": _dropout, "elu_backward": _elu_backward}
    made |= {"masked_fill": _masked_fill, "masked_fill_": partial(_masked_fill, in_place=True)}
    return {
        **{name: ("pointwise", formula) for name, formula in made.items()},
        **dict.fromkeys(("fill_", "zero_", *_RANDOM), ("fill", _write)),
        "copy_": ("copy", _copy),
    }


FORMULAS: dict[str, tuple[str, Formula]] = _table()
"""Kind and formula by operator name without `aten::`."""
