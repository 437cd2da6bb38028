from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpudoctor import profile as schema
from gpudoctor.ingest.nesting import nest
from gpudoctor.ingest.phases import NAMES, Phases, mark_compiled_optimizers


@dataclass
class Call:
    name: str
    start: int
    end: int
    seq: int | None = None
    thread: int = 1


def phases(calls: list[Call], by_hand: bool = False) -> list[str]:
    tree = nest(
        np.array([c.start for c in calls]),
        np.array([c.end - c.start for c in calls]),
        np.array([c.thread for c in calls], np.int32),
    )
    names = sorted({c.name for c in calls})
    code = np.array([names.index(c.name) for c in calls], np.int32)[tree.order]
    recorded = np.array([c.seq is not None for c in calls])[tree.order]
    nothing = np.zeros(len(calls), bool)
    found = Phases(tree, code, names, np.zeros(len(calls), np.int64), recorded, nothing).of_all(by_hand)
    made = np.empty(len(calls), np.int64)
    made[tree.order] = found
    return [NAMES[phase] for phase in made]


def test_the_forward_lasts_until_the_last_backward_call() -> None:
    accumulation = [
        Call("aten::linear", 0, 1, seq=1),
        Call("gpudoctor::backward", 2, 3),
        Call("aten::linear", 4, 5, seq=2),
        Call("gpudoctor::backward", 6, 7),
        Call("aten::linalg_vector_norm", 8, 9),
        Call("Optimizer.step#SGD.step", 10, 11),
    ]
    assert phases(accumulation) == ["forward", "backward", "forward", "backward", "other", "optimizer"]


def test_a_closures_forward_and_backward_are_not_the_optimizers() -> None:
    nodes = [
        Call("Optimizer.step#LBFGS.step", 0, 100),
        Call("[pl]closure", 1, 30),
        Call("aten::randn", 2, 3),
        Call("aten::linear", 4, 5, seq=1),
        Call("gpudoctor::backward", 6, 9),
        Call("aten::isfinite", 10, 11),
        Call("aten::add_", 40, 41),
        Call("aten::linear", 50, 51, seq=2),
        Call("gpudoctor::backward", 60, 70),
        Call("aten::add_", 80, 81),
    ]
    assert phases(nodes) == [
        *("optimizer", "forward", "forward", "forward", "backward"),
        *("forward", "optimizer", "forward", "backward", "optimizer"),
    ]


def test_an_update_by_hand_comes_first_in_a_step_that_ends_at_backward() -> None:
    nodes = [
        Call("aten::mul", 0, 1),
        Call("aten::sub_", 2, 3),
        Call("aten::randn", 4, 5),
        Call("aten::linear", 6, 7, seq=1),
        Call("aten::add_", 8, 9),
        Call("gpudoctor::backward", 10, 11),
    ]
    assert phases(nodes, by_hand=True) == ["optimizer", "optimizer", "forward", "forward", "forward", "backward"]
    assert phases(nodes)[:2] == ["forward", "forward"]


def test_work_that_backward_hands_to_another_thread_belongs_to_it() -> None:
    nodes = [Call("gpudoctor::backward", 0, 10), Call("gloo:all_reduce", 5, 20, thread=2)]
    assert phases(nodes) == ["backward", "backward"]


def test_without_a_backward_call_all_is_forward() -> None:
    assert phases([Call("aten::linear", 0, 1), Call("aten::item", 2, 3)]) == ["forward", "forward"]


def test_compiled_code_of_torch_optim_is_the_optimizer() -> None:
    ops = schema.frame(
        "ops",
        [
            {"region": "0/0", "phase": "forward"},
            {"region": "1/0", "phase": "forward"},
            {"region": None, "phase": "other"},
        ],
    )
    mark_compiled_optimizers(ops, [{"compile_id": "1/0", "file": "/x/site-packages/torch/optim/adam.py"}])
    assert list(ops["phase"]) == ["forward", "optimizer", "other"]
