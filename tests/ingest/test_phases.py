from __future__ import annotations

from gpudoctor.ingest.kineto import Node
from gpudoctor.ingest.phases import Phases, mark_compiled_optimizers


def node(name: str, start: int, end: int, parent: Node | None = None, seq: int | None = None, thread: int = 1) -> Node:
    return Node(name, "cpu_op", start, end, thread, {} if seq is None else {"Sequence number": seq}, parent)


def phases(nodes: list[Node], by_hand: bool = False) -> list[str]:
    found = Phases(nodes, [0], by_hand)
    made: dict[int, dict[str, str]] = {}
    for one in nodes:
        above = made.get(id(one.parent)) if one.parent is not None else None
        made[id(one)] = {"phase": found.of(one, above)}
    return [row["phase"] for row in made.values()]


def test_the_forward_lasts_until_the_last_backward_call() -> None:
    accumulation = [
        node("aten::linear", 0, 1, seq=1),
        node("gpudoctor::backward", 2, 3),
        node("aten::linear", 4, 5, seq=2),
        node("gpudoctor::backward", 6, 7),
        node("aten::linalg_vector_norm", 8, 9),
        node("Optimizer.step#SGD.step", 10, 11),
    ]
    assert phases(accumulation) == ["forward", "backward", "forward", "backward", "other", "optimizer"]


def test_a_closures_forward_and_backward_are_not_the_optimizers() -> None:
    step = node("Optimizer.step#LBFGS.step", 0, 100)
    around = node("[pl]closure", 1, 30, step)
    nodes = [
        step,
        around,
        node("aten::randn", 2, 3, around),
        node("aten::linear", 4, 5, around, seq=1),
        node("gpudoctor::backward", 6, 9, around),
        node("aten::isfinite", 10, 11, around),
        node("aten::add_", 40, 41, step),
        node("aten::linear", 50, 51, step, seq=2),
        node("gpudoctor::backward", 60, 70, step),
        node("aten::add_", 80, 81, step),
    ]
    assert phases(nodes) == [
        *("optimizer", "forward", "forward", "forward", "backward"),
        *("forward", "optimizer", "forward", "backward", "optimizer"),
    ]


def test_an_update_by_hand_comes_first_in_a_step_that_ends_at_backward() -> None:
    nodes = [
        node("aten::mul", 0, 1),
        node("aten::sub_", 2, 3),
        node("aten::randn", 4, 5),
        node("aten::linear", 6, 7, seq=1),
        node("aten::add_", 8, 9),
        node("gpudoctor::backward", 10, 11),
    ]
    assert phases(nodes, by_hand=True) == ["optimizer", "optimizer", "forward", "forward", "forward", "backward"]
    assert phases(nodes)[:2] == ["forward", "forward"]


def test_work_that_backward_hands_to_another_thread_belongs_to_it() -> None:
    nodes = [node("gpudoctor::backward", 0, 10), node("gloo:all_reduce", 5, 20, thread=2)]
    assert phases(nodes) == ["backward", "backward"]


def test_without_a_backward_call_all_is_forward() -> None:
    assert phases([node("aten::linear", 0, 1), node("aten::item", 2, 3)]) == ["forward", "forward"]


def test_compiled_code_of_torch_optim_is_the_optimizer() -> None:
    ops = [
        {"region": "0/0", "phase": "forward"},
        {"region": "1/0", "phase": "forward"},
        {"region": None, "phase": "other"},
    ]
    mark_compiled_optimizers(ops, [{"compile_id": "1/0", "file": "/x/site-packages/torch/optim/adam.py"}])
    assert [op["phase"] for op in ops] == ["forward", "optimizer", "other"]
