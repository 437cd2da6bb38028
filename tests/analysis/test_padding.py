"""The share of padding by shape of a batch, and which operators run over its positions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import padding
from gpudoctor.ingest import padded_inputs

SEEN = {"step": 3, "source": "ids", "module": "tokens", "file": "t.py", "line": 4, "function": "forward"}
SEEN |= {"rows": 4, "width": 10, "padded": 20, "shortest": 2, "longest": 8}


def op(number: int, *shapes: Any, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": "aten::mm", "step": 3, "self_ns": 50_000, "depth": 0, "phase": "forward"}
    return row | {"shapes": json.dumps(shapes)} | more


def found(ops: list[dict[str, Any]], *seen: dict[str, Any], kernels: Any = None) -> list[dict[str, Any]]:
    kernels = None if kernels is None else schema.frame("kernels", kernels)
    made = padding.rows(seen or (SEEN,), schema.frame("ops", ops), kernels)
    rows: list[dict[str, Any]] = made.to_dict("records")  # type: ignore[assignment]
    return rows


@pytest.mark.parametrize(
    ("shapes", "over"),
    [
        (([4, 10, 64], [64]), True),  # batch first
        (([10, 4, 64], [64]), True),  # sequence first
        (([4, 64, 10], [8, 64, 3]), True),  # a convolution along the sequence
        (([8, 10, 32], [8, 32, 10]), True),  # two heads of each sequence
        (([40, 64], [64, 64]), True),  # flattened
        (([64, 40], [40, 64]), True),  # a weight's gradient
        (([4, 64], [64, 64]), False),  # one vector a sequence
        (([64], [4, 10, 64]), False),  # sizes of something that is no input
        (([4, 10],), False),  # a weight may be as small
        (([], "x"), False),
    ],
)
def test_which_inputs_run_over_the_positions(shapes: Any, over: bool) -> None:
    assert bool(found([op(0, *shapes)])[0]["over_ns"]) is over


def test_the_row_says_how_much_is_padding() -> None:
    (row,) = found([op(0, [4, 10, 64])])
    assert (row["padded_ratio"], row["shortest"], row["longest"], row["over_ns"]) == (0.5, 2, 8, 50_000)


def test_two_declarations_for_one_shape_are_one_row_with_their_mean() -> None:
    (row,) = found([op(0, [4, 10, 64])], SEEN, SEEN | {"source": "mask", "padded": 10})
    assert row["padded_ratio"] == 0.375


def test_what_an_operator_calls_and_its_backward_run_over_them_as_well() -> None:
    ops = [
        op(0, [4, 10, 64], name="aten::lstm"),
        op(1, [4, 64], [64, 256], parent=0, depth=1),
        op(2, [4, 64], forward_op=1, phase="backward"),
        op(3, [4, 64], phase="backward"),
    ]
    assert found(ops)[0]["over_ns"] == 150_000


def test_other_steps_optimizers_and_calls_of_a_few_microseconds_do_not_count() -> None:
    ops = [
        op(0, [4, 10, 64], step=4),
        op(1, [40, 64], phase="optimizer"),
        op(2, [4, 10, 64], self_ns=padding.MIN_OP_NS - 1),
    ]
    assert found(ops)[0]["over_ns"] == 0


def test_layers_are_what_has_weights_or_attends() -> None:
    ops = [
        op(0, [4, 10, 64], op_class="gemm"),
        op(1, [4, 10, 64], op_class="attention"),
        op(2, [4, 10, 64], name="aten::mkldnn_rnn_layer"),
        op(3, [4, 10, 64], name="aten::mul", op_class="pointwise"),
        op(4, [4, 64], op_class="gemm"),
    ]
    assert found(ops)[0]["layers"] == 3


def test_on_a_device_the_kernels_time_counts() -> None:
    kernels = [{"kernel": 0, "op": 0, "dur_ns": 7_000}]
    assert found([op(0, [4, 10, 64])], kernels=kernels)[0]["over_ns"] == 7_000


def test_slots_of_features_are_no_sequences() -> None:
    assert found([op(0, [4, 3, 64])], SEEN | {"width": 3}) == []


STEPS = [{"step": 3, "observation": "detail", "start_ns": 100, "dur_ns": 50}]


def test_inputs_belong_to_the_profiled_step_in_which_they_were_seen() -> None:
    raw = [SEEN | {"start_ns": at} for at in (99, 100, 149, 150)]
    assert len(padded_inputs.rows(raw, STEPS)) == 2


@pytest.mark.parametrize(
    ("raw", "compiled", "reason"),
    [(None, [], "line by line"), ([], [{"file": "t.py"}], "compile"), ([], [], None)],
)
def test_what_was_not_seen_is_not_measured(raw: Any, compiled: Any, reason: str | None) -> None:
    tables: dict[str, Any] = {}
    missing: dict[str, str] = {}
    padded_inputs.add(raw, compiled, STEPS, tables, missing, {})
    assert ("padded_inputs" in tables) is (reason is None)
    assert reason is None or reason in missing["padding"]
