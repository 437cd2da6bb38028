from __future__ import annotations

from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis import casts

HALF, FULL = "c10::BFloat16", "float"


def op(number: int, name: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": name, "parent": parent, "start_ns": 10 * number, "self_ns": 5, "step": 3}
    return row | {"phase": "forward", "observation": "detail", "owner": "user", "file": "t.py", "line": 1} | more


def conversion(first: int, target: str, source: str, parent: int | None = None, **more: Any) -> list[dict[str, Any]]:
    """`to`, `_to_copy` and `copy_`, as torch nests them; ids from `first` on."""
    shape = more.pop("shape", "[8,4]")
    own = {"shapes": f"[{shape},[]]", "dtypes": f"{source},Scalar", **more}
    return [
        op(first, "aten::to", parent, **own),
        op(first + 1, "aten::_to_copy", first, **own),
        op(
            first + 2,
            "aten::copy_",
            first + 1,
            **own | {"shapes": f"[{shape},{shape},[]]", "dtypes": f"{target},{source},"},
        ),
    ]


def matrix(number: int, **more: Any) -> dict[str, Any]:
    return op(number, "aten::mm", op_class="gemm", **more)


def found(*rows: dict[str, Any], kernels: list[dict[str, Any]] | None = None) -> list[dict[str, Any]]:
    frame = casts.rows(schema.frame("ops", rows), None if kernels is None else schema.frame("kernels", kernels))
    made: list[dict[str, Any]] = frame.to_dict("records")  # type: ignore[assignment]
    return made


def test_a_conversion_that_the_code_asks_for_counts_for_its_line_with_both_dtypes() -> None:
    (row,) = found(*conversion(0, FULL, HALF), matrix(9))
    assert (row["kind"], row["source"], row["target"], row["widens"]) == ("line", "bfloat16", "float32", True)
    assert (row["op"], row["line"], row["dur_ns"]) == (2, 1, 5)


def test_its_gradient_is_of_the_same_kind() -> None:
    backward = [
        op(20, "autograd::engine::evaluate_function: ToCopyBackward0", phase="backward", forward_op=1),
        op(21, "ToCopyBackward0", 20, phase="backward", forward_op=1),
        *conversion(22, HALF, FULL, 21, phase="backward", forward_op=1),
    ]
    assert [row["kind"] for row in found(*conversion(0, FULL, HALF), matrix(9), *backward)] == ["line", "line"]


def test_what_an_operator_of_the_backward_pass_converts_is_its_own() -> None:
    inside = [op(20, "MmBackward0", phase="backward"), op(21, "aten::mm", 20, phase="backward")]
    (row,) = found(matrix(9), *inside, *conversion(22, HALF, FULL, 21, phase="backward"))
    assert row["kind"] == "operator"
    (row,) = found(
        op(20, "SumBackward0", phase="backward", forward_op=9),
        matrix(9),
        *conversion(22, HALF, FULL, 20, phase="backward", forward_op=9),
    )
    assert row["kind"] == "backward"


def test_widening_that_no_matrix_work_follows_before_the_backward_pass_goes_to_the_loss() -> None:
    later = [op(10, "SumBackward0", phase="backward"), *conversion(20, FULL, HALF), matrix(30)]
    rows = found(matrix(0), *conversion(2, FULL, HALF), *later)
    assert [row["kind"] for row in rows] == ["loss", "line"]


def test_conversions_inside_an_operator_are_autocasts_or_its_own() -> None:
    linear = op(0, "aten::linear", shapes="[[8,4],[16,4],[16]]")
    assert [row["kind"] for row in found(linear, *conversion(1, HALF, FULL, 0), matrix(9))] == ["operator"]


def test_a_weight_that_is_converted_twice_in_a_forward_pass_was_forgotten() -> None:
    def layer(first: int, module: str) -> list[dict[str, Any]]:
        call = op(first, "aten::linear", shapes="[[8,4],[16,4],[16]]", module_path=module)
        return [call, *conversion(first + 1, HALF, FULL, first, shape="[16,4]", module_path=module)]

    backward = op(30, "MmBackward0", phase="backward")
    rows = found(*layer(0, "a"), *layer(10, "a"), *layer(20, "b"), backward, *layer(40, "a"))
    assert [row["kind"] for row in rows] == ["operator", "again", "operator", "operator"]


def test_an_annotation_of_the_users_is_no_operator_and_a_library_is_not_the_user() -> None:
    block = op(0, "my block")
    assert [row["kind"] for row in found(block, *conversion(1, FULL, HALF, 0), matrix(9))] == ["line"]
    assert [row["kind"] for row in found(*conversion(1, FULL, HALF, owner="library"), matrix(9))] == ["library"]


def test_integers_equal_dtypes_and_single_numbers_are_left_out() -> None:
    rows = [*conversion(0, FULL, "long int"), *conversion(3, FULL, FULL), *conversion(6, FULL, "double", shape="[]")]
    assert found(*rows, matrix(9)) == []


def test_on_a_gpu_its_kernels_count() -> None:
    kernels = [
        {"kernel": 0, "kind": "kernel", "op": 2, "dur_ns": 70},
        {"kernel": 1, "kind": "memcpy", "op": 2, "dur_ns": 900},
    ]
    (row,) = found(*conversion(0, FULL, HALF), matrix(9), kernels=kernels)
    assert row["dur_ns"] == 70


def test_no_operators_no_casts() -> None:
    assert found() == []
