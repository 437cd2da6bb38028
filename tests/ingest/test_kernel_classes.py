"""Kernel classes and precisions: names labelled by hand, and what they make of public traces read in place."""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.ingest.kernel_classes import (
    CLASSES,
    MATRIX_CLASSES,
    classify,
    is_collective_library,
    is_communication,
    precision,
)

HERE = Path(__file__).parent
TRACES = HERE.parents[2] / "shared" / "traces"
CUT = 320
"""Labelled names longer than this are cut."""

needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the public traces are not beside this checkout (../shared/traces)"
)


@dataclass(frozen=True, slots=True)
class Label:
    kernel_class: str
    precision: str | None
    name: str


def labels(file: str) -> list[Label]:
    _, *rows = (HERE / file).read_text(encoding="utf-8").splitlines()
    fields = [row.split("\t") for row in rows]
    return [Label(kind, None if number == "-" else number, name) for kind, number, name in fields]


FROM_TRACES = labels("kernel_names.tsv")
HELD_OUT = labels("kernel_names_held_out.tsv")
"""Names that these traces do not hold: of libraries' public sources, and of profiles that other people published."""


@dataclass(slots=True)
class Kernels:
    """Device kernels of one trace: per name the operators that launched it and its time, per device the intervals."""

    time_ns: Counter[str] = field(default_factory=Counter)
    launched: dict[str, Counter[str | None]] = field(default_factory=lambda: defaultdict(Counter))
    intervals: dict[str, list[tuple[str, int, int]]] = field(default_factory=lambda: defaultdict(list))


@functools.cache
def kernels_of(path: str) -> Kernels:
    raw = (TRACES / path).read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    loaded = json.loads(text, parse_float=Decimal, strict=False)
    events: list[Any] = loaded["traceEvents"] if isinstance(loaded, dict) else loaded
    spans = [event for event in events if isinstance(event, dict) and event.get("ph") == "X"]
    operators = {
        external_id(event): event.get("name")
        for event in spans
        if str(event.get("cat")).lower() in ("cpu_op", "operator")
    }
    found = Kernels()
    for event in spans:
        if str(event.get("cat")).lower() != "kernel":
            continue
        name, start, dur = event["name"], nanoseconds(event["ts"]), nanoseconds(event.get("dur", 0))
        found.time_ns[name] += dur
        found.launched[name][operators.get(external_id(event)) if external_id(event) is not None else None] += dur
        found.intervals[str((event.get("args") or {}).get("device"))].append((name, start, start + dur))
    return found


def external_id(event: dict[str, Any]) -> Any:
    args = event.get("args") or {}
    return args.get("External id", args.get("external id"))


def nanoseconds(microseconds: Any) -> int:
    return int(Decimal(microseconds) * 1000)


def union(intervals: Iterator[tuple[int, int]]) -> int:
    total, until = 0, None
    for start, end in sorted(intervals):
        total += max(0, end - (start if until is None else max(start, until)))
        until = end if until is None else max(until, end)
    return total


def reference() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRACES / "reference.json").read_text(encoding="utf-8"))
    return found


def traces_of(what: str) -> list[str]:
    """Traces whose row in the table of README.md says `what` in the column with that name."""
    if not TRACES.is_dir():
        return []
    rows = [line.split("|") for line in (TRACES / "README.md").read_text(encoding="utf-8").splitlines()]
    kineto = [row for row in rows if len(row) == 14]
    return [row[1].strip(" `") for row in kineto if what in row[7] and row[4].strip().isdigit() and int(row[4])]


def wrong_classes(names: list[Label]) -> list[tuple[str, str, str]]:
    return [
        (label.kernel_class, classify(label.name), label.name[:100])
        for label in names
        if classify(label.name) != label.kernel_class
    ]


def wrong_precisions(names: list[Label]) -> list[tuple[str | None, str | None, str]]:
    return [
        (label.precision, precision(label.name), label.name[:100])
        for label in names
        if precision(label.name) != label.precision
    ]


def test_the_labelled_names_are_many_distinct_and_of_every_class() -> None:
    assert len({label.name for label in FROM_TRACES}) == len(FROM_TRACES) >= 250
    assert len({label.name for label in HELD_OUT}) == len(HELD_OUT) >= 60
    assert not {label.name for label in FROM_TRACES} & {label.name for label in HELD_OUT}
    for names in (FROM_TRACES, HELD_OUT):
        assert {label.kernel_class for label in names} == set(CLASSES)


@pytest.mark.parametrize("names", [FROM_TRACES, HELD_OUT], ids=["names in traces", "names not in these traces"])
def test_every_labelled_name_gets_its_class(names: list[Label]) -> None:
    assert wrong_classes(names) == []


@pytest.mark.parametrize("names", [FROM_TRACES, HELD_OUT], ids=["names in traces", "names not in these traces"])
def test_every_labelled_name_gets_its_precision(names: list[Label]) -> None:
    assert wrong_precisions(names) == []


@needs_traces
def test_labelled_names_stand_in_the_traces_and_their_full_length_changes_nothing() -> None:
    full = {name for path in reference() for name in kernels_of(path).time_ns}
    by_head = defaultdict(list)
    for name in full:
        by_head[name[:CUT]].append(name)
    absent = [label.name for label in FROM_TRACES if label.name not in by_head]
    assert absent == []
    differing = [
        name
        for label in FROM_TRACES
        for name in by_head[label.name]
        if (classify(name), precision(name)) != (label.kernel_class, label.precision)
    ]
    assert differing == []


def other_share(path: str) -> float:
    kernels = kernels_of(path)
    total = sum(kernels.time_ns.values())
    other = sum(
        ns
        for name, launched in kernels.launched.items()
        for operator, ns in launched.items()
        if classify(name, operator) == "other"
    )
    return other / total if total else 0.0


@needs_traces
@pytest.mark.parametrize("path", traces_of("training"))
def test_at_most_three_percent_of_a_training_traces_device_time_is_other(path: str) -> None:
    assert other_share(path) <= 0.03


@needs_traces
def test_collective_library_kernels_are_those_that_the_reference_counts() -> None:
    for path, expected in reference().items():
        kernels = kernels_of(path)
        total = sum(ns for name, ns in kernels.time_ns.items() if is_collective_library(name))
        spans = [
            union((start, end) for name, start, end in intervals if is_collective_library(name))
            for intervals in kernels.intervals.values()
        ]
        devices = expected["devices"].values()
        assert total == sum(device["comm_kernel_sum_ns"] for device in devices), path
        assert sum(spans) == sum(device["comm_union_ns"] for device in devices), path


@needs_traces
def test_communication_beyond_the_libraries_is_symmetric_memory_only() -> None:
    beyond = {
        (path, name.split("<")[0])
        for path in reference()
        for name in kernels_of(path).time_ns
        if is_communication(name) and not is_collective_library(name)
    }
    assert beyond == {("tracelens/b200__eager_trace.json.gz", "void (anonymous namespace)::multimem_all_reduce_kernel")}


FOREACH = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)"
    "::TensorListMetadata<1>, at::native::(anonymous namespace)::UnaryOpFunctor<float, 1, 1, 0>, std::negate<float> >"
)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"


@pytest.mark.parametrize(
    ("name", "op", "expected"),
    [
        (ADD, None, "pointwise"),
        (ADD, "aten::add", "pointwise"),
        (ADD, "Optimizer.step", "optimizer"),
        (ADD, "Optimizer.step#AdamW.step", "optimizer"),
        ("triton_poi_fused_add_0", "Optimizer.step", "optimizer"),
        ("ampere_sgemm_32x32_sliced1x4_nn", "Optimizer.step", "gemm"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "Optimizer.step", "communication"),
        ("volta_sgemm_128x64_nn", "aten::mm", "gemm"),
        ("volta_sgemm_128x64_nn", "aten::cudnn_convolution", "convolution"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64", "aten::miopen_convolution", "convolution"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x64", "aten::convolution_backward", "convolution"),
        ("batched_transpose_32x16_half", "aten::convolution_backward", "copy"),
        (FOREACH, None, "optimizer"),
        (FOREACH, "aten::_foreach_neg", "optimizer"),
        (FOREACH, "aten::_foreach_norm", "reduction"),
        (FOREACH, "aten::_foreach_copy_", "copy"),
        ("void cub::DeviceRadixSortOnesweepKernel<int>", "aten::embedding_dense_backward", "embedding"),
        ("void cub::DeviceRadixSortOnesweepKernel<int>", "aten::sort", "reduction"),
        (ADD, "aten::native_group_norm", "normalisation"),
        ("opaque_kernel", None, "other"),
        ("opaque_kernel", "aten::mm", "gemm"),
        ("opaque_kernel", "aten::_softmax", "reduction"),
        ("opaque_kernel", "aten::fft_fft", "other"),
        ("opaque_kernel", "mylib::op", "other"),
        ("opaque_kernel", "c10d::allreduce_", "communication"),
    ],
)
def test_the_launching_operator_decides_what_the_name_leaves_open(name: str, op: str | None, expected: str) -> None:
    assert classify(name, op) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>", "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", "tf32"),
        ("turing_fp16_s1688gemm_fp16_128x64_ldg8_f2f_nn", "fp16"),
        ("nvjet_sss_128x256_64x4_2x1_v_bz_TNT", "tf32"),
        ("Cijk_Ailk_Bljk_SB_MT64x64x16", "fp32"),
        ("Cijk_Ailk_Bljk_S_MX_B_MT64x64x16", "tf32"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT64x64x16", "bf16"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x16", "fp16"),
    ],
)
def test_tf32_is_told_from_float_and_from_half_by_the_same_instruction(name: str, expected: str) -> None:
    assert precision(name) == expected


def test_only_matrix_kernels_have_a_precision() -> None:
    assert precision(ADD) is None
    assert precision("triton_poi_fused_bf16_0") is None
    assert all(label.kernel_class in MATRIX_CLASSES for label in [*FROM_TRACES, *HELD_OUT] if label.precision)


def test_the_order_of_patterns_holds_against_misleading_words() -> None:
    assert classify("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>") == "copy"
    assert classify("void vllm::rotary_embedding_kernel<c10::BFloat16, true>") == "pointwise"
    assert classify("void dense_embedding_codegen_forward_unweighted_kernel<float>") == "embedding"
    assert classify("split_embedding_backward_codegen_adagrad_unweighted_find_long_segments") == "embedding"
    assert classify("triton_poi_fused_convolution_relu_0") == "triton"
    assert classify("void cutlass::device_kernel<flash::FlashAttnFwdSm90<Loop, flash::Softmax<2> > >") == "attention"
