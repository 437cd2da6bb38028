"""The cost of one operator call: what it must compute and what it must move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpudoctor.analysis.costs.operands import Operands, total


@dataclass(frozen=True, slots=True)
class Cost:
    """What one operator call must do at least.

    Attributes:
        flops: floating point operations of matrix products, convolutions and attention; a multiply-add is two. Zero for
            other operators, whose arithmetic matrix units have no part in (`torch.utils.flop_counter` counts the same).
            None when the recording does not tell.
        bytes_min: bytes between device memory and the chip when every input is read once and every output is written
            once. Caches cannot lower it for data that is not there yet; kernels that read twice move more. None when
            the recording does not tell.
        matrix_dtype: dtype of the products (fp64, fp32, fp16, bf16, fp8, fp4, int8); None for other operators, and when
            the recording does not tell. fp32 products may run as tf32: `flops.matrix_dtype_used`.
    """

    flops: int | None
    bytes_min: int | None
    matrix_dtype: str | None = None


Formula = Callable[[Operands], Cost]

NOT_RECORDED = Cost(None, None)
"""The operator is known, its operands are not."""


def moves(*parts: int | None) -> Cost:
    """The cost of an operator that matrix units have no part in: parts of its traffic, in bytes.

    The bound is that of the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009): compulsory traffic.
    """
    return Cost(0, total(*parts))
