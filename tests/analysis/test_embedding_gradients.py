"""What dense gradients of embeddings cost, from the operators of one step; and where the source makes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import constructions, embedding_gradients

ROWS, WIDTH = 1000, 8
TABLE = [ROWS, WIDTH]
STEP = "Optimizer.step#SGD.step"


def op(number: int, name: str, parent: int | None = None, **more: Any) -> dict[str, Any]:
    row = {"op": number, "name": name, "parent": parent, "start_ns": 100 * number, "dur_ns": 50, "step": 3, "thread": 1}
    shapes, arguments = json.dumps(more.pop("shapes", [])), json.dumps(more.pop("arguments", []))
    return row | {"phase": "backward", "observation": "detail", "shapes": shapes, "arguments": arguments} | more


def backward(number: int, module: str = "words", looked_up: int = 4, **more: Any) -> list[dict[str, Any]]:
    """The engine's range, 90 ns, with a sum of gradients in it, and the operator."""
    place = {"file": "train.py", "line": 9, "function": "forward", "module_path": module, "start_ns": 100 * number}
    dense = {"shapes": [[looked_up, WIDTH], [looked_up]], "arguments": ["", "", str(ROWS), "-1", "False"], **more}
    return [
        op(number, "autograd::engine::evaluate_function: EmbeddingBackward0", dur_ns=90, **place),
        op(number + 1, "aten::embedding_backward", number, **place),
        op(number + 2, "aten::embedding_dense_backward", number + 1, dtypes="float,long int", **place, **dense),
    ]


def update(number: int, *sizes: list[int], ns: int = 60) -> list[dict[str, Any]]:
    """An optimizer that works on tensors of these sizes in one operator."""
    inner = {"shapes": [list(sizes), []], "dur_ns": ns, "phase": "optimizer", "start_ns": 100 * number}
    return [
        op(number, STEP, phase="optimizer", file="train.py", line=20),
        op(number + 1, "aten::_fused_sgd_", number, **inner),
        op(number + 2, "aten::mul", number + 1, **inner),  # part of the one above
    ]


def accumulates(number: int, count: int = 1) -> list[dict[str, Any]]:
    return [op(number + at, "torch::autograd::AccumulateGrad", shapes=[TABLE]) for at in range(count)]


def found(*parts: list[dict[str, Any]], kernels: list[dict[str, Any]] | None = None, source: str = "") -> Any:
    rows = [row for part in parts for row in part]
    made = embedding_gradients.rows(
        schema.frame("ops", rows),
        None if kernels is None else schema.frame("kernels", kernels),
        {"train.py": source},
    )
    cells = made.astype(object)
    return cells.where(cells.notna(), None).to_dict("records")


def test_a_gradient_costs_what_makes_it_and_its_part_of_the_optimizer() -> None:
    (row,) = found(backward(0), accumulates(10), update(20, TABLE, [4000, 2]))
    assert (row["module"], row["rows"], row["width"], row["looked_up"]) == ("words", ROWS, WIDTH, 4)
    assert (row["gradient_ns"], row["optimizer_ns"], row["bytes"]) == (90, 30, ROWS * WIDTH * 4)
    assert (row["optimizer"], row["takes_sparse"], row["tied"]) == ("SGD", True, False)
    assert (row["step_file"], row["step_line"]) == ("train.py", 20)


def test_on_a_gpu_the_kernels_count() -> None:
    kernels = [
        {"kernel": 0, "kind": "kernel", "op": 2, "step": 3, "dur_ns": 700},
        {"kernel": 1, "kind": "kernel", "op": 22, "step": 3, "dur_ns": 500},
        {"kernel": 2, "kind": "kernel", "op": None, "step": 3, "dur_ns": 9},
    ]
    (row,) = found(backward(0), accumulates(10), update(20, TABLE), kernels=kernels)
    assert (row["gradient_ns"], row["optimizer_ns"]) == (700, 500)


def test_tables_of_one_shape_share_the_optimizers_time() -> None:
    rows = found(backward(0, "a"), backward(4, "b"), accumulates(10, 2), update(20, TABLE, TABLE))
    assert [(row["module"], row["optimizer_ns"]) for row in rows] == [("a", 30), ("b", 30)]


def test_a_table_that_is_looked_up_twice_is_one() -> None:
    (row,) = found(backward(0), backward(4, looked_up=6), accumulates(10), update(20, TABLE))
    assert (row["looked_up"], row["gradient_ns"]) == (10, 180)


@pytest.mark.parametrize(("parameters", "tied"), [(1, True), (2, False)])
def test_an_output_layer_of_that_shape_is_tied_when_there_is_one_parameter(parameters: int, tied: bool) -> None:
    head = op(9, "aten::mm", shapes=[[4, WIDTH], [WIDTH, ROWS]], op_class="gemm", phase="forward")
    (row,) = found(backward(0), [head], accumulates(10, parameters), update(20, TABLE))
    assert row["tied"] is tied


def test_scaling_by_frequency_has_no_sparse_gradient() -> None:
    (row,) = found(backward(0, arguments=["", "", str(ROWS), "-1", "True"]), update(20, TABLE))
    assert row["takes_sparse"] is False


def test_without_an_optimizer_nothing_is_said_about_it() -> None:
    (row,) = found(backward(0))
    assert (row["optimizer"], row["takes_sparse"], row["optimizer_ns"]) == (None, None, 0)


@pytest.mark.parametrize("arguments", [[], ["", "", "x"], ["", ""]])
def test_an_operator_whose_arguments_were_not_recorded_is_left_out(arguments: list[str]) -> None:
    assert found(backward(0, arguments=arguments)) == []


def test_no_operators_no_rows() -> None:
    assert found([]) == []


SOURCE = """
import torch.nn as nn
from torch import optim
class Net(nn.Module):
    def __init__(self):
        self.words = nn.Embedding(9, 2)
        self.tables = nn.ModuleDict({"user": nn.Embedding(9, 2), "item": nn.EmbeddingBag(9, 2)})
        self.stack = nn.ModuleList(
            nn.Embedding.from_pretrained(one) for one in weights
        )
a = optim.SGD(p)
b, c = optim.Adam(p), optim.Adam(q)
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [("words", 6), ("net.words", 6), ("tables.user", 7), ("encoder.tables.item", 7), ("stack.3", 9), ("other", None)],
)
def test_where_an_embedding_is_made(path: str, line: int | None) -> None:
    place = constructions.of({"train.py": SOURCE, "broken.py": "def"}).embedding(path)
    assert (place and place.line) == line


def test_the_only_embedding_needs_no_name() -> None:
    assert constructions.of({"t.py": "net = Sequential(Embedding(5, 2))"}).embedding("0") is not None


def test_an_optimizer_that_is_made_twice_has_no_line() -> None:
    made = constructions.of({"train.py": SOURCE})
    assert made.optimizer("Adam") is None
    assert made.optimizer("SGD") == constructions.Place("train.py", 11)
