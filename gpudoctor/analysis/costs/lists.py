"""Bytes of operators on lists of tensors: concatenation, foreach arithmetic, fused optimizers.

Kineto records the shapes of a list's tensors, not their types: the caller finds those with `list_dtype_of_kernel`.
Argument positions are those of ATen/native/native_functions.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from math import prod

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula, moves
from gpudoctor.analysis.costs.operands import Operands, item_bytes, times

_ARITHMETIC = (
    *("add", "sub", "mul", "div", "addcmul", "addcdiv", "lerp", "pow", "maximum", "minimum"),
    *("sqrt", "rsqrt", "neg", "abs", "exp", "reciprocal"),
)


def _list_bytes(args: Operands, *indices: int) -> int | None:
    elements = sum(prod(shape) for index in indices for shape in args.shapes(index))
    return times(elements, item_bytes(args.list_dtype))


def _foreach(args: Operands, in_place: bool = False) -> Cost:
    """_foreach_add(self, other, …): every list once, and as much as the first one written."""
    lists = [index for index in range(len(args)) if args.shapes(index)]
    if not lists:
        return NOT_RECORDED
    return moves(_list_bytes(args, *lists), _list_bytes(args, 0))


def _foreach_copy(args: Operands) -> Cost:
    """_foreach_copy_(self, src): reads src, writes self."""
    return moves(_list_bytes(args, 0, 1)) if args.shapes(0) else NOT_RECORDED


def _foreach_zero(args: Operands) -> Cost:
    return moves(_list_bytes(args, 0)) if args.shapes(0) else NOT_RECORDED


def _foreach_norm(args: Operands) -> Cost:
    """_foreach_norm(self, ord): reads every tensor, writes a number for each."""
    tensors = args.shapes(0)
    return moves(_list_bytes(args, 0), times(len(tensors), item_bytes(args.list_dtype))) if tensors else NOT_RECORDED


def _fused(args: Operands, states: Sequence[int]) -> Cost:
    """_fused_adam_(self, grads, states…): reads all, writes parameters and states. The step counters are left out."""
    if not args.shapes(0):
        return NOT_RECORDED
    kept = _list_bytes(args, 0, *states)
    return moves(times(2, kept), _list_bytes(args, 1))


_TYPE_IN_KERNEL = re.compile(
    r"(?:multi_tensor_apply_kernel.*?(?<!Copy)Functor|CatArrayBatchedCopy\w*)"
    r"<(float|double|c10::Half|c10::BFloat16|int|long|at::native::\(anonymous namespace\)::OpaqueType<\d+u?>)[,>]"
)
_KERNEL_TYPES = {"long": "long int"}


def list_dtype_of_kernel(kernel: str) -> str | None:
    """Element type of the tensor lists that a kernel works on, from its template arguments.

    Kineto does not record the types of a list's tensors; the names of ATen's multi-tensor (foreach, fused optimizer)
    and concatenation kernels have them (ATen/native/cuda/MultiTensorApply.cuh, Shape.cu).

    Returns:
        A C++ type for `flops.cost(list_dtype=…)`; None when the name does not tell.
    """
    found = _TYPE_IN_KERNEL.search(kernel)
    return _KERNEL_TYPES.get(found.group(1), found.group(1)) if found else None


def _cat(args: Operands) -> Cost:
    """cat(tensors, dim): all of them read and written."""
    return moves(times(2, _list_bytes(args, 0))) if args.shapes(0) else NOT_RECORDED


FORMULAS: dict[str, tuple[str, Formula]] = {
    "cat": ("copy", _cat),
    "_foreach_copy_": ("copy", _foreach_copy),
    "_foreach_zero_": ("fill", _foreach_zero),
    "_foreach_norm": ("reduction", _foreach_norm),
    **{f"_foreach_{name}{end}": ("pointwise", _foreach) for name in _ARITHMETIC for end in ("", "_")},
    "_fused_adam_": ("optimizer", partial(_fused, states=(2, 3, 4))),
    "_fused_adamw_": ("optimizer", partial(_fused, states=(2, 3, 4))),
    "_fused_sgd_": ("optimizer", partial(_fused, states=(2,))),
    "_fused_adagrad_": ("optimizer", partial(_fused, states=(2,))),
}
"""Kind and formula by operator name without `aten::`."""
