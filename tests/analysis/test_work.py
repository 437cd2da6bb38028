from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import hardware
from gpudoctor import profile as schema
from gpudoctor.analysis import roofline, work
from gpudoctor.analysis.derive import derived
from gpudoctor.ingest import trace
from tests.shared_traces import shared_trace


def op(number: int, name: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    return {"op": number, "name": name, "parent": parent, "self_ns": 1, "step": 0, **more}


LINEAR = [
    op(0, "aten::linear", shapes="[[128,64],[32,64],[32]]", dtypes="float,float,float"),
    op(1, "aten::addmm", 0, shapes="[[32],[128,64],[64,32],[],[]]", dtypes="float,float,float,Scalar,Scalar"),
    op(2, "aten::relu", shapes="[[128,32]]", dtypes="float"),
    op(3, "my::op", shapes="[[128,32]]", dtypes="float"),
]


def test_the_innermost_call_owns_the_work() -> None:
    found = work.of_calls(schema.frame("ops", LINEAR))
    assert found.owns.tolist() == [False, True, True, False]
    assert found.flops[1] == pytest.approx(2 * 128 * 64 * 32, rel=0.02)
    assert [code >= 0 for code in found.dtype.codes.tolist()] == [False, True, False, False]


def test_only_matrix_work_has_operations_and_what_no_formula_knows_has_nothing() -> None:
    found = work.of_calls(schema.frame("ops", LINEAR))
    assert found.flops[2] != found.flops[2]
    assert found.bytes[2] == 2 * 128 * 32 * 4
    assert found.bytes[3] != found.bytes[3]


def test_fp32_products_are_held_against_the_peak_that_their_kernels_name() -> None:
    gpu = hardware.find("NVIDIA A100-SXM4-80GB")
    assert gpu is not None
    ops = schema.frame("ops", LINEAR)
    for precision, peak in (("fp32", gpu.matmul_flops("fp32")), ("tf32", gpu.matmul_flops("tf32"))):
        kernels = schema.frame(
            "kernels",
            [{"kernel": 0, "op": 1, "kind": "kernel", "dur_ns": 1000, "precision": precision, "kernel_class": "gemm"}],
        )
        (row,) = roofline.table(ops, kernels, work.of_calls(ops), gpu).to_dict("records")
        assert peak is not None
        assert (row["name"], row["matrix_dtype"]) == ("aten::addmm", precision)
        assert row["compute_share"] == pytest.approx(row["flops_per_s"] / peak)


def test_no_recorded_product_is_faster_than_its_gpu() -> None:
    made = derived(trace.load(shared_trace("hta/trace_diff_control__control.json.gz"))).table("roofline")
    assert len(made) > 10
    assert made["compute_share"].dropna().max() < 1
    assert set(made["bound"].dropna()) <= {"compute", "memory", "neither"}
