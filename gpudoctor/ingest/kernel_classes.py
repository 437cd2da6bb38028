"""Classes of device kernels by name, and the number format that a matrix kernel's name tells.

The tables are data: `kernel_classes.toml` beside this module, with the origin of each pattern and the choices made
where two classes would do.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from gpudoctor.ingest.op_classes import op_class

CLASSES = (
    "gemm",
    "convolution",
    "attention",
    "normalisation",
    "reduction",
    "pointwise",
    "copy",
    "optimizer",
    "communication",
    "embedding",
    "triton",
    "other",
)
"""All classes that `classify` answers with; `triton` is code that Inductor generated."""

MATRIX_CLASSES = frozenset({"gemm", "convolution", "attention"})
"""Classes whose kernels multiply matrices, so that their number format decides about speed."""

_BY_OPERATOR = MATRIX_CLASSES | {"normalisation", "reduction", "copy", "optimizer"}
"""Classes of operators that say what an unknown kernel of theirs does; `pointwise` there means any other operator."""


_HEAD = 2000
"""Characters of a name that are looked at: what a kernel is stands in front, template arguments can fill pages."""


@dataclass(frozen=True, slots=True)
class _Operator:
    pattern: re.Pattern[str]
    kernel_class: str
    over: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Tables:
    classes: tuple[tuple[re.Pattern[str], str], ...]
    ccl: re.Pattern[str]
    operators: tuple[_Operator, ...]
    precisions: tuple[tuple[re.Pattern[str], str | None], ...]


def classify(name: str, op: str | None = None) -> str:
    """Class of a device kernel, one of `CLASSES`.

    Args:
        name: the kernel's name as the trace shows it.
        op: name of the operator that launched it, or `Optimizer.step…` for one inside an optimizer's step. It decides
            where the name is used by operators of several kinds: a matrix kernel under a convolution is a convolution,
            an elementwise kernel in an optimizer's step belongs to the optimizer.
    """
    by_name = _by_name(name)
    return by_name if op is None else _with_operator(by_name, op)


def is_communication(name: str) -> bool:
    """Whether a kernel moves data between devices: a collective library's, or one that reads its peers' memory."""
    return _by_name(name) == "communication"


def is_collective_library(name: str) -> bool:
    """Whether a kernel is a collective library's own (NCCL, RCCL, MSCCL, oneCCL): all that other tools count."""
    return _tables().ccl.search(name) is not None


@lru_cache(maxsize=65536)
def precision(name: str) -> str | None:
    """Number format in which a matrix kernel's operands enter the multiplication, where its name tells.

    Returns:
        fp64, fp32 (not on tensor cores), tf32, bf16, fp16, fp8, fp4 or int8; None for other classes and for names that
        do not tell (Triton's, split-K sums).
    """
    if _by_name(name) not in MATRIX_CLASSES:
        return None
    head = name[:_HEAD]
    return next((found for pattern, found in _tables().precisions if pattern.search(head)), None)


@lru_cache(maxsize=65536)
def _by_name(name: str) -> str:
    head = name[:_HEAD]
    return next((found for pattern, found in _tables().classes if pattern.search(head)), "other")


@lru_cache(maxsize=65536)
def _with_operator(by_name: str, op: str) -> str:
    for operator in _tables().operators:
        if by_name in operator.over and operator.pattern.search(op):
            return operator.kernel_class
    of_operator = op_class(op)
    return of_operator if by_name == "other" and of_operator in _BY_OPERATOR else by_name


@cache
def _tables() -> _Tables:
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        data: dict[str, Any] = tomllib.load(file)
    patterns = data["patterns"]
    return _Tables(
        classes=tuple((_any(entry["patterns"]), entry["class"]) for entry in patterns),
        ccl=_any([pattern for entry in patterns if entry.get("ccl") for pattern in entry["patterns"]]),
        operators=tuple(
            _Operator(re.compile(entry["operator"]), entry["class"], frozenset(entry["over"]))
            for entry in data["operators"]
        ),
        precisions=tuple(
            (re.compile(pattern), found or None) for entry in data["precisions"] for pattern, found in entry["table"]
        ),
    )


def _any(patterns: list[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
