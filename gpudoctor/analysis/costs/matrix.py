"""FLOPs and bytes of matrix products and convolutions (attention: attention.py).

A product of m×k and k×n has m·n·k multiply-adds, 2·m·n·k operations (Golub and Van Loan, Matrix Computations, 1.1);
adding a bias, an accumulator or scales is not counted, as in torch/utils/flop_counter.py. Argument positions are those
of ATen/native/native_functions.yaml. Complex products are left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula
from gpudoctor.analysis.costs.operands import (
    MATRIX_DTYPES,
    Operands,
    Shape,
    Tensor,
    broadcast,
    item_bytes,
    sizes,
    times,
    total,
)


def matrix_cost(flops: int | None, moved: int | None, tensor: Tensor) -> Cost:
    """The cost of a product whose first factor is `tensor`: its type is that of the product."""
    if tensor.dtype.startswith("c10::complex"):
        return Cost(None, moved)
    return Cost(flops, moved, MATRIX_DTYPES.get(tensor.dtype))


# ---- matrix products


def _product(a: Tensor, b: Tensor) -> tuple[int, Shape] | None:
    """Operations and result shape of torch.matmul's rules; None when the shapes do not fit."""
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    batch = broadcast([left[:-2], right[:-2]])
    if len(left) < 2 or len(right) < 2 or batch is None or left[-1] != right[-2]:
        return None
    packed = 2 if a.dtype == "c10::Float4_e2m1fn_x2" else 1  # two values in an element, along k
    out = (*batch, left[-2], right[-1])
    return 2 * prod(out) * left[-1] * packed, out


def _multiply(args: Operands, a: int, b: int, extra: Sequence[int] = (), dtype: int | None = None) -> Cost:
    """a @ b, with further tensors read once; `dtype` is the position of an argument that sets the result's type."""
    left, right = args.tensor(a), args.tensor(b)
    product = _product(left, right) if left is not None and right is not None else None
    if left is None or right is None or product is None:
        return NOT_RECORDED
    flops, out = product
    result = args.dtype_argument(dtype, left.dtype) if dtype is not None else left.dtype
    moved = total(sizes([left, right, *args.tensors(*extra)]), times(prod(out), item_bytes(result)))
    return matrix_cost(flops, moved, left)


def _mm(args: Operands) -> Cost:
    """mm(self, mat2) and bmm; the overload with out_dtype has a number third, the one with out a tensor."""
    number = len(args) == 3 and args.tensor(2) is None
    return _multiply(args, 0, 1, dtype=2 if number else None)


def _addmm(args: Operands) -> Cost:
    """addmm(self, mat1, mat2, beta, alpha), also baddbmm; with out_dtype there is a sixth argument, a number."""
    number = len(args) == 6 and args.tensor(5) is None
    return _multiply(args, 1, 2, (0,), 3 if number else None)


def _addbmm(args: Operands) -> Cost:
    """addbmm(self, batch1, batch2): the products of the batch are added up, so the result is one matrix."""
    accumulator, left, right = args.tensor(0), args.tensor(1), args.tensor(2)
    product = _product(left, right) if left is not None and right is not None else None
    if accumulator is None or left is None or right is None or product is None:
        return NOT_RECORDED
    flops, (_, rows, columns) = product
    moved = total(sizes([accumulator, left, right]), times(rows * columns, left.item_bytes))
    return matrix_cost(flops, moved, left)


def _linear(args: Operands) -> Cost:
    """linear(input[…, k], weight[n, k], bias): 2·rows·k·n."""
    data, weight = args.tensor(0), args.tensor(1)
    if data is None or weight is None or not data.shape or len(weight.shape) != 2:
        return NOT_RECORDED
    rows = prod(data.shape[:-1])
    moved = total(sizes([data, weight, *args.tensors(2)]), times(rows * weight.shape[0], data.item_bytes))
    return matrix_cost(2 * rows * weight.numel, moved, data)


def _grouped_mm(args: Operands, offsets: int, bias: int, dtype: int, scales: Sequence[int] = ()) -> Cost:
    """One product for each group; the groups share out one dimension of length M, N or K between them.

    [M,K]×[G,K,N] shares out M, [G,M,K]×[K,N] shares out N, [M,K]×[K,N] shares out K: 2·M·N·K in all. [G,M,K]×[G,K,N] is
    a batch: 2·G·M·N·K. Where the groups end is data: rows behind the last group's end, which the kernel leaves out, are
    counted.
    """
    left, right = args.tensor(0), args.tensor(1)
    if left is None or right is None or not {len(left.shape), len(right.shape)} <= {2, 3}:
        return NOT_RECORDED
    ranks = (len(left.shape), len(right.shape))
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    packed = 2 if left.dtype == "c10::Float4_e2m1fn_x2" else 1
    flops = 2 * rows * inner * packed * columns * (left.shape[0] if ranks == (3, 3) else 1)
    ends = args.tensor(offsets)
    if ranks == (3, 3):
        groups: int | None = left.shape[0]
    elif ranks == (2, 2):
        groups = ends.shape[0] if ends is not None and ends.shape else None
    else:
        groups = 1
    result = times(groups, rows, columns, item_bytes(args.dtype_argument(dtype, left.dtype)))
    moved = total(sizes([left, right, *args.tensors(*scales, offsets, bias)]), result)
    return matrix_cost(flops, moved, left)


# ---- convolutions


@dataclass(frozen=True, slots=True)
class _Conv:
    """Argument positions of a forward convolution; input and weight are 0 and 1."""

    stride: int
    padding: int
    dilation: int | None
    groups: int | None = None
    reads: tuple[int, ...] = ()
    """Further tensors that are read."""
    transposed: int | bool = False
    """Position of the argument, or what the operator's name says."""
    output_padding: int | None = None


_CONVOLUTIONS = {
    "conv1d": _Conv(3, 4, 5, 6, (2,)),
    "conv2d": _Conv(3, 4, 5, 6, (2,)),
    "conv3d": _Conv(3, 4, 5, 6, (2,)),
    "conv_transpose1d": _Conv(3, 4, 7, 6, (2,), True, 5),
    "conv_transpose2d": _Conv(3, 4, 7, 6, (2,), True, 5),
    "conv_transpose3d": _Conv(3, 4, 7, 6, (2,), True, 5),
    "convolution": _Conv(3, 4, 5, 8, (2,), 6, 7),
    "_convolution": _Conv(3, 4, 5, 8, (2,), 6, 7),
    "convolution_overrideable": _Conv(3, 4, 5, 8, (2,), 6, 7),
    "cudnn_convolution": _Conv(3, 2, 4, 5),
    "cudnn_convolution_transpose": _Conv(4, 2, 5, 6, (), True, 3),
    "cudnn_convolution_relu": _Conv(3, 4, 5, 6, (2,)),
    "cudnn_convolution_add_relu": _Conv(5, 6, 7, 8, (2, 4)),
    "miopen_convolution": _Conv(4, 3, 5, 6, (2,)),
    "miopen_convolution_transpose": _Conv(5, 3, 6, 7, (2,), True, 4),
    "miopen_depthwise_convolution": _Conv(4, 3, 5, 6, (2,)),
    "miopen_convolution_relu": _Conv(3, 4, 5, 6, (2,)),
    "miopen_convolution_add_relu": _Conv(5, 6, 7, 8, (2, 4)),
    "mkldnn_convolution": _Conv(4, 3, 5, 6, (2,)),
    "thnn_conv2d": _Conv(4, 5, None, None, (3,)),
    "_slow_conv2d_forward": _Conv(4, 5, None, None, (3,)),
    "slow_conv3d": _Conv(4, 5, None, None, (3,)),
    "slow_conv3d_forward": _Conv(4, 5, None, None, (3,)),
    "slow_conv_dilated2d": _Conv(4, 5, 6, None, (3,)),
    "slow_conv_dilated3d": _Conv(4, 5, 6, None, (3,)),
    "_conv_depthwise2d": _Conv(4, 5, 6, None, (3,)),
    "conv_depthwise3d": _Conv(4, 5, 6, None, (3,)),
}


def _convolution(args: Operands, at: _Conv) -> Cost:
    """2 · batch · positions · elements of the weight.

    Every position meets every element of the weight [C_out, C_in/groups, kernel…] once: positions of the output, or for
    a transposed convolution ([C_in, C_out/groups, kernel…]) of the input (Dumoulin and Visin, arXiv:1603.07285;
    flop_counter.conv_flop_count). Multiplications with padding are counted.
    """
    data, weight = args.tensor(0), args.tensor(1)
    transposed = at.transposed if isinstance(at.transposed, bool) else args.flag(at.transposed)
    if data is None or weight is None or len(weight.shape) < 3:
        return NOT_RECORDED
    if transposed is None:
        return matrix_cost(None, None, data)
    space = len(weight.shape) - 2
    batch = prod(data.shape[: -(space + 1)])
    positions = _output_space(args, at, data.shape[-space:], weight.shape[2:], transposed)
    channels = times(weight.shape[1], args.number(at.groups or 0)) if transposed else weight.shape[0]
    out = times(batch, channels, prod(positions) if positions is not None else None, data.item_bytes)
    moved = total(sizes([data, weight, *args.tensors(*at.reads)]), out)
    met = data.shape[-space:] if transposed else positions
    return matrix_cost(2 * batch * prod(met) * weight.numel if met is not None else None, moved, data)


def _output_space(args: Operands, at: _Conv, data: Shape, kernel: Shape, transposed: bool) -> tuple[int, ...] | None:
    """Lengths of the output; the formulas of the documentation of torch.nn.Conv2d and ConvTranspose2d."""
    stride = _each(args.numbers(at.stride), len(kernel))
    padding = _each(args.numbers(at.padding), len(kernel))
    dilation = _each(args.numbers(at.dilation) if at.dilation is not None else [1], len(kernel))
    extra = _each(args.numbers(at.output_padding) if at.output_padding is not None else [0], len(kernel))
    if stride is None or padding is None or dilation is None or extra is None or 0 in stride:
        return None
    axes = zip(data, kernel, stride, padding, dilation, extra, strict=True)
    if transposed:
        return tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in axes)
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d, _ in axes)


def _each(values: list[int] | None, axes: int) -> list[int] | None:
    """A value for each axis: one alone stands for all."""
    if values is not None and len(values) == 1:
        return values * axes
    return values if values is not None and len(values) == axes else None


def _convolution_backward(args: Operands, mask_at: int, transposed: bool | None) -> Cost:
    """The gradients of input and weight each cost what the forward pass does; output_mask tells which are made."""
    grad, data, weight, mask = args.tensor(0), args.tensor(1), args.tensor(2), args.flags(mask_at)
    if grad is None or data is None or weight is None or len(weight.shape) < 3:
        return NOT_RECORDED
    if mask is None or len(mask) != 3 or transposed is None:
        return matrix_cost(None, None, grad)
    space = len(weight.shape) - 2
    each = 2 * prod(data.shape[: -(space + 1)]) * prod((data if transposed else grad).shape[-space:]) * weight.numel
    of_input, of_weight, of_bias = mask
    moved = total(
        grad.bytes,
        total(weight.bytes, data.bytes) if of_input else 0,  # reads the weight, writes a gradient as large as the input
        total(data.bytes, weight.bytes) if of_weight else 0,
        times(grad.shape[-(space + 1)], grad.item_bytes) if of_bias else 0,
    )
    return matrix_cost(each * (of_input + of_weight), moved, grad)


FORMULAS: dict[str, Formula] = {
    "mm": _mm,
    "bmm": _mm,
    "matmul": partial(_multiply, a=0, b=1),
    "mv": partial(_multiply, a=0, b=1),
    "dot": partial(_multiply, a=0, b=1),
    "addmm": _addmm,
    "baddbmm": _addmm,
    "addmv": partial(_multiply, a=1, b=2, extra=(0,)),
    "_addmm_activation": partial(_multiply, a=1, b=2, extra=(0,)),
    "addbmm": _addbmm,
    "linear": _linear,
    "mkldnn_linear": _linear,
    "_scaled_mm": partial(_multiply, a=0, b=1, extra=(2, 3, 4, 5), dtype=6),
    "_grouped_mm": partial(_grouped_mm, offsets=2, bias=3, dtype=4),
    "_scaled_grouped_mm": partial(_grouped_mm, offsets=4, bias=5, dtype=7, scales=(2, 3)),
    "convolution_backward": lambda args: _convolution_backward(args, 10, args.flag(7)),
    "convolution_backward_overrideable": lambda args: _convolution_backward(args, 9, args.flag(6)),
    "_slow_conv2d_backward": lambda args: _convolution_backward(args, 6, False),
    **{name: partial(_convolution, at=at) for name, at in _CONVOLUTIONS.items()},
}
"""By operator name without `aten::`."""
