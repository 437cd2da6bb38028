from __future__ import annotations

from typing import Any

from gpudoctor import profile as schema
from gpudoctor.analysis import conv_norms


def op(number: int, name: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": name, "parent": parent, "start_ns": 10 * number, "thread": 1, "step": 3}
    return row | {"phase": "forward", "file": "t.py", "line": 4} | more


CONV = [
    op(0, "aten::conv2d", shapes="[[8,3,9,9],[16,3,3,3],[16],[],[],[],[]]", module_path="stem.0"),
    op(1, "aten::convolution", 0, shapes="[[8,3,9,9],[16,3,3,3],[16]]"),
]
COUNT = op(2, "aten::add_", shapes="[[],[],[]]")  # num_batches_tracked


def norm(training: str = "True", size: str = "[8,16,7,7]") -> dict[str, Any]:
    arguments = f'["","","","","","{training}","0.1","1e-5","True"]'
    return op(3, "aten::batch_norm", shapes=f"[{size},[16],[16],[16],[16]]", arguments=arguments, module_path="stem.1")


def backward(mask: str = "[False, True, True]", summed: bool = False) -> list[dict[str, Any]]:
    rows = [
        op(10, "autograd::engine::evaluate_function: NativeBatchNormBackward0", phase="backward", forward_op=3),
        op(12, "ConvolutionBackward0", phase="backward", forward_op=1),
        op(13, "aten::convolution_backward", 12, phase="backward", forward_op=1, arguments=f'["","","","{mask}"]'),
    ]
    return rows + ([op(11, "aten::add", 10, phase="backward")] if summed else [])


def found(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    frame = conv_norms.rows(schema.frame("ops", rows), None).astype(object)
    made = frame.where(frame.notna(), None).to_dict("records")
    return [(row["module"], row["norm"], row["training"], row["bias_gradient"], row["only_use"]) for row in made]


def test_a_norm_right_behind_takes_the_output() -> None:
    assert found(*CONV, COUNT, norm(), *backward()) == [("stem.0", "stem.1", True, True, True)]


def test_a_frozen_bias_a_norm_in_evaluation_and_a_run_without_backward_are_told() -> None:
    assert found(*CONV, norm(), *backward("[True, True, False]"))[0][3] is False
    assert found(*CONV, norm("False"), *backward())[0][2] is False
    assert found(*CONV, norm())[0][3:] == (None, None)


def test_an_output_that_goes_around_the_norm_too_has_its_gradients_added_up() -> None:
    assert found(*CONV, norm(), *backward(summed=True))[0][4] is False


def test_something_in_between_another_size_or_no_bias_is_no_pair() -> None:
    between = op(2, "aten::relu", shapes="[[8,16,7,7]]")
    assert found(*CONV, between, norm(), *backward()) == []
    assert found(*CONV, norm(size="[8,32,7,7]"), *backward()) == []
    plain = [CONV[0] | {"shapes": "[[8,3,9,9],[16,3,3,3],[],[],[],[],[]]"}, CONV[1]]
    assert found(*plain, norm(), *backward()) == []


def test_on_a_gpu_the_biass_own_kernels_are_timed() -> None:
    rows = [*CONV, op(4, "aten::add_", 1), norm() | {"op": 5, "start_ns": 50}, *backward(), op(14, "aten::sum", 13)]
    kernels = [
        {"kernel": 0, "kind": "kernel", "op": 1, "dur_ns": 900},
        {"kernel": 1, "kind": "kernel", "op": 4, "dur_ns": 30},
        {"kernel": 2, "kind": "kernel", "op": 14, "dur_ns": 20},
    ]
    made = conv_norms.rows(schema.frame("ops", rows), schema.frame("kernels", kernels))
    assert made["bias_ns"].tolist() == [50]


def test_no_operators_no_rows() -> None:
    assert found() == []
