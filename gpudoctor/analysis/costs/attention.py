"""FLOPs and bytes of the fused attention operators, forward and backward.

For every head and every pair of a query and a key that it may see, the forward pass multiplies once along the head's
width (Q·Kᵀ) and once along the value's (P·V): 2·pairs·(d_qk + d_v). The fused backward pass makes five products, with
Q·Kᵀ done again: S = Q·Kᵀ, dQ = dS·K, dK = dSᵀ·Q along d_qk and dP = dO·Vᵀ, dV = Pᵀ·dO along d_v, together
2·pairs·(3·d_qk + 2·d_v) (Dao et al., FlashAttention, arXiv:2205.14135, algorithms 2 and 4; torch.utils.flop_counter
counts the same). Softmax, dropout and masks are not counted.

pairs = L_q·L_k without a causal mask. With one, row i sees the keys up to its own position, as the kernels skip tiles
above the diagonal: `_pairs`. (flop_counter ignores the mask.) An explicit mask tensor does not let a kernel skip, so
all pairs count. Packed batches (cumulative lengths) and sliding windows depend on data: null.

Bytes: Q, K, V and the output once; backward also the output's gradient, and the three gradients written. The row sums
(4 bytes a query) are left out. Argument positions: ATen/native/native_functions.yaml.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Literal

from gpudoctor.analysis.costs.cost import NOT_RECORDED, Cost, Formula
from gpudoctor.analysis.costs.matrix import matrix_cost
from gpudoctor.analysis.costs.operands import Operands, Shape, sizes, times, total


@dataclass(frozen=True, slots=True)
class _Attention:
    """Where an operator's arguments are."""

    causal: int
    """Truth value; with `mask_type` a number: 0 none, 1 causal from the top left, 2 from the bottom right."""
    bias: int | None = None
    lengths: tuple[int, ...] = ()
    """Cumulative or used sequence lengths, block tables: with one of these, pairs depend on data."""
    windows: tuple[int, ...] = ()
    """Sliding window sizes; none or -1 is no window."""
    layout: Literal["heads first", "sequence first"] = "heads first"
    """[batch, heads, length, width], or [batch, length, heads, width]."""
    corner: Literal["top left", "bottom right"] = "top left"
    mask_type: bool = False
    backward: bool = False


_OPERATORS = {
    "scaled_dot_product_attention": _Attention(5, bias=3),
    "_scaled_dot_product_flash_attention": _Attention(4, corner="bottom right"),
    "_scaled_dot_product_flash_attention_for_cpu": _Attention(4, bias=5),
    "_scaled_dot_product_efficient_attention": _Attention(6, bias=3),
    "_scaled_dot_product_cudnn_attention": _Attention(6, bias=3),
    "_scaled_dot_product_fused_attention_overrideable": _Attention(5, bias=3),
    "_flash_attention_forward": _Attention(
        8, lengths=(3, 4, 13, 15), windows=(11, 12), layout="sequence first", corner="bottom right"
    ),
    "_efficient_attention_forward": _Attention(
        9, bias=3, lengths=(4, 5, 12), windows=(13,), layout="sequence first", mask_type=True
    ),
    "_cudnn_attention_forward": _Attention(10, bias=3, lengths=(4, 5)),
    "_scaled_dot_product_flash_attention_backward": _Attention(
        11, lengths=(6, 7), corner="bottom right", backward=True
    ),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _Attention(7, bias=8, backward=True),
    "_scaled_dot_product_efficient_attention_backward": _Attention(11, bias=4, backward=True),
    "_scaled_dot_product_cudnn_attention_backward": _Attention(14, bias=8, lengths=(9, 10), backward=True),
    "_scaled_dot_product_fused_attention_overrideable_backward": _Attention(13, bias=4, lengths=(8, 9), backward=True),
    "_cudnn_attention_backward": _Attention(14, bias=8, lengths=(9, 10), backward=True),
    "_flash_attention_backward": _Attention(
        11, lengths=(6, 7), windows=(15, 16), layout="sequence first", corner="bottom right", backward=True
    ),
    "_efficient_attention_backward": _Attention(
        14, bias=4, lengths=(6, 7), windows=(18,), layout="sequence first", mask_type=True, backward=True
    ),
}


def _attention(args: Operands, at: _Attention) -> Cost:
    first = 1 if at.backward else 0
    query, key, value = (args.tensor(first + i) for i in range(3))
    if query is None or key is None or value is None or min(len(t.shape) for t in (query, key, value)) < 3:
        return NOT_RECORDED
    out = times(query.numel // max(query.shape[-1], 1), value.shape[-1], query.item_bytes)
    bias = args.tensors(at.bias) if at.bias is not None else []
    read = total(sizes([query, key, value]), sizes(bias))
    moved = total(read, out) if not at.backward else total(read, out, out, sizes([query, key, value]))
    pairs = _seen_pairs(args, at, query.shape, key.shape)
    qk, v = query.shape[-1], value.shape[-1]
    width = 3 * qk + 2 * v if at.backward else qk + v
    return matrix_cost(times(2, pairs, width), moved, query)


def _seen_pairs(args: Operands, at: _Attention, query: Shape, key: Shape) -> int | None:
    """Pairs of queries and keys over all heads and the batch; None when they depend on what is not recorded."""
    if any(tensor.numel for tensor in args.tensors(*at.lengths)):
        return None
    if any(args.given(index) and args.number(index) != -1 for index in at.windows):
        return None
    if at.layout == "heads first":
        heads, queries, keys = prod(query[:-2]), query[-2], key[-2]
    elif len(query) == 4:
        heads, queries, keys = query[0] * query[2], query[1], key[1]
    else:
        return None
    corner: str | None = at.corner
    if at.mask_type:
        kind = args.number(at.causal)
        causal = {0: False, 1: True, 2: True}.get(kind) if kind is not None else None
        corner = "bottom right" if kind == 2 else "top left"
    else:
        causal = args.flag(at.causal)
    if causal is None:
        return None
    return heads * (_pairs(queries, keys, corner == "bottom right") if causal else queries * keys)


def _pairs(queries: int, keys: int, bottom_right: bool) -> int:
    """Pairs under a causal mask whose diagonal starts in the top left corner or ends in the bottom right one.

    Row i (from 0) sees i + 1 keys, or i + 1 + keys − queries, at least none and at most all.
    """
    shift = keys - queries if bottom_right else 0
    first, last = 1 + shift, queries + shift  # keys seen by the first and the last row, before clipping
    whole = max(0, last - keys)  # rows that see every key
    top = min(last, keys)
    bottom = max(first, 1)
    rising = max(0, top - bottom + 1)
    return whole * keys + (bottom + top) * rising // 2 if first <= keys else queries * keys


FORMULAS: dict[str, Formula] = {name: partial(_attention, at=at) for name, at in _OPERATORS.items()}
"""By operator name without `aten::`."""
