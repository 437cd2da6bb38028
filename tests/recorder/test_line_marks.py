"""Marks give every operator its own line, or none: never that of another one. And the path of its module."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from sys import settrace as settrace_behind_our_back
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gpudoctor.ingest import kineto, ops
from gpudoctor.ingest.callers import Names
from gpudoctor.recorder.compile_targets import CompileTargets
from gpudoctor.recorder.line_marks import LineMarks
from gpudoctor.userfiles import UserFiles
from tests.op_rows import op_rows

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def no_tracer() -> Any:
    """What a test leaves behind would trace the ones after it, and coverage would keep marks from being set."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


@pytest.fixture
def marked(tmp_path: Path) -> Callable[[Callable[[], Any]], tuple[dict[str, Row], LineMarks]]:
    """Runs a function as in a detail step: its operators by name, the last of each, and the marks."""

    def run(body: Callable[[], Any]) -> tuple[dict[str, Row], LineMarks]:
        files = UserFiles(str(ROOT))
        marks = LineMarks(files, CompileTargets(files))
        with profile(activities=[ProfilerActivity.CPU], with_stack=True) as session:
            marks.start()
            body()
            marks.stop()
        session.export_chrome_trace(str(tmp_path / "trace.json"))
        marks.save(tmp_path)
        lines, modules = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("lines", "modules"))
        trace = kineto.read(tmp_path / "trace.json")
        here = str(Path(__file__).relative_to(ROOT))
        names = Names(lines, {here: Path(__file__).read_text()}, modules=modules)
        rows = op_rows(trace, [ops.Window(0, 0, 1 << 62)], names)
        return {row["name"].removeprefix("aten::"): row for row in rows}, marks

    return run


def line_of(function: Callable[..., Any], text: str) -> int:
    """The line of the file on which a function has this text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def place(row: Row) -> tuple[int | None, str | None]:
    return row["line"], row["precision"]


X = torch.ones(2, 2)


def deeper() -> torch.Tensor:
    return X.tan()


def test_an_operator_has_the_line_that_called_it(marked: Any) -> None:
    def body() -> None:
        X.sin()
        X + X
        deeper()
        X.cos()

    found, marks = marked(body)
    assert place(found["sin"]) == (line_of(body, "sin"), "call")
    assert place(found["add"]) == (line_of(body, "X + X"), "call")
    assert place(found["cos"]) == (line_of(body, "cos"), "call")
    assert place(found["tan"]) == (line_of(deeper, "tan"), "call")
    assert not marks.interrupted


def test_without_a_trace_function_there_is_no_line_but_the_functions(marked: Any) -> None:
    def body() -> None:
        X.sin()
        sys.settrace(None)
        X.cos()
        deeper()

    found, marks = marked(body)
    assert place(found["sin"]) == (line_of(body, "sin"), "call")
    assert place(found["cos"]) == (line_of(body, "def body"), "def")
    assert place(found["tan"]) == (line_of(deeper, "def deeper"), "def")
    assert marks.interrupted
    assert sys.settrace is settrace_behind_our_back


def test_lines_come_back_with_the_trace_function(marked: Any) -> None:
    def entered_without_tracing(before: Any) -> None:
        X.cos()
        sys.settrace(before)
        deeper()
        X.exp()

    def body() -> None:
        before = sys.gettrace()
        sys.settrace(None)
        entered_without_tracing(before)
        X.sin()

    found, _ = marked(body)
    assert found["cos"]["precision"] == "def"
    assert place(found["tan"]) == (line_of(deeper, "tan"), "call")
    assert place(found["exp"]) == (line_of(entered_without_tracing, "exp"), "call")
    assert place(found["sin"]) == (line_of(body, "sin"), "call")


@pytest.mark.parametrize("settrace", [lambda f: sys.settrace(f), settrace_behind_our_back])
def test_a_tracer_of_the_scripts_own_stays_and_gets_its_events(settrace: Any, marked: Any) -> None:
    events: list[str] = []

    def own(frame: Any, event: str, argument: Any) -> Any:
        events.append(frame.f_code.co_name)
        return own

    def body() -> None:
        settrace(own)
        X.cos()
        deeper()

    found, marks = marked(body)
    assert sys.gettrace() is own
    assert "deeper" in events
    assert marks.interrupted
    assert found["cos"]["precision"] == "def"
    assert found["tan"]["precision"] == "def"


def test_where_somebody_traces_already_nothing_is_set(marked: Any) -> None:
    def own(frame: Any, event: str, argument: Any) -> Any:
        return None

    sys.settrace(own)
    found, marks = marked(deeper)
    assert sys.gettrace() is own
    assert marks.blocked
    assert place(found["tan"]) == (line_of(deeper, "def deeper"), "def")


def test_our_trace_function_set_again_after_the_burst_ends_itself(marked: Any) -> None:
    kept: list[Any] = []
    marked(lambda: kept.append(sys.gettrace()))
    sys.settrace(kept[0])
    deeper()
    assert sys.gettrace() is None


class Block(nn.Module):
    def __init__(self, shared: nn.Module) -> None:
        super().__init__()
        self.shared, self.act, self.parts = shared, nn.Sigmoid(), nn.ModuleList([nn.Tanh()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for part in self.parts:
            x = part(self.act(self.shared(x)))
        return x.exp()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = nn.ELU()
        self.layers = nn.Sequential(Block(shared), Block(shared))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out.cos()


def test_an_operator_has_the_path_of_its_module(marked: Any) -> None:
    model = Net()
    found, _ = marked(lambda: model(X).sin())
    assert found["sigmoid"]["module_path"] == "layers.1.act"
    assert found["tanh"]["module_path"] == "layers.1.parts.0"
    assert found["elu"]["module_path"] == "layers.0.shared"
    assert found["exp"]["module_path"] == "layers.1"
    assert found["cos"]["module_path"] == "model"
    assert found["sin"]["module_path"] is None


def test_a_range_of_a_module_is_no_operator(marked: Any) -> None:
    found, _ = marked(lambda: Net()(X))
    assert not [name for name in found if "gpudoctor" in name]
    assert found["sigmoid"]["parent"] is None
    assert found["sigmoid"]["depth"] == 0


def test_wrappers_add_nothing_to_a_path(marked: Any) -> None:
    model = torch.optim.swa_utils.AveragedModel(nn.DataParallel(Net()))
    found, _ = marked(lambda: model(X))
    assert found["sigmoid"]["module_path"] == "layers.1.act"


def test_modules_of_several_models_have_the_models_name(marked: Any) -> None:
    critic, actor = Net(), nn.Sequential(nn.Softplus())
    found, _ = marked(lambda: (critic(X), actor(X)))
    assert found["sigmoid"]["module_path"] == "critic.layers.1.act"
    assert found["softplus"]["module_path"] == "actor.0"


def test_a_module_that_calls_itself_or_raises_ends_its_range(marked: Any) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Tanh()

        def forward(self, depth: int) -> torch.Tensor:
            if depth == 0:
                raise ValueError
            try:
                self(depth - 1)
            except ValueError:
                X.sinh()
            out: torch.Tensor = self.inner(X)
            return out

    def body() -> None:
        Nested()(2)
        X.cos()

    found, _ = marked(body)
    assert found["sinh"]["module_path"] == "Nested"
    assert found["tanh"]["module_path"] == "inner"
    assert found["cos"]["module_path"] is None


def test_backward_operators_have_the_path_of_their_forward_operator(marked: Any) -> None:
    def body() -> None:
        model = Net()
        leaf = X.clone().requires_grad_()
        model(leaf).sum().backward()

    found, _ = marked(body)
    assert found["sigmoid_backward"]["module_path"] == "layers.0.act"
    assert place(found["sigmoid_backward"]) == (line_of(Block.forward, "part(self.act"), "call")


def test_a_list_of_modules_gives_its_name_to_its_members(marked: Any) -> None:
    parts = nn.ModuleList([nn.Tanh(), nn.Sigmoid()])
    found, _ = marked(lambda: [part(X) for part in parts])
    assert found["sigmoid"]["module_path"] == "parts.1"


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.pow(3)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * grads[0] * x.square()


def leaf() -> torch.Tensor:
    return X.clone().requires_grad_()


def test_a_function_of_the_users_own_keeps_the_lines_of_its_backward(marked: Any) -> None:
    def body() -> None:
        Cube.apply(leaf()).sum().backward()  # type: ignore[no-untyped-call]

    found, _ = marked(body)
    assert place(found["square"]) == (line_of(Cube.backward, "square"), "call")
    assert place(found["CubeBackward"]) == (line_of(body, "Cube.apply"), "call")


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_computes_again_keeps_its_lines_and_gives_them_to_its_backward(
    reentrant: bool, marked: Any
) -> None:
    def segment(x: torch.Tensor) -> torch.Tensor:
        y = x.sigmoid()
        return y.tanh()

    def body() -> None:
        torch.utils.checkpoint.checkpoint(segment, leaf(), use_reentrant=reentrant).sum().backward()

    found, _ = marked(body)
    assert found["tanh"]["phase"] == "backward"  # its last time
    assert place(found["tanh"]) == (line_of(segment, "tanh"), "call")
    assert place(found["tanh_backward"]) == (line_of(segment, "tanh"), "call")
    assert place(found["sigmoid_backward"]) == (line_of(segment, "sigmoid"), "call")


def test_backward_of_a_change_in_place_has_the_line_of_the_change(marked: Any) -> None:
    def body() -> None:
        x = leaf() * 2
        x[0].exp_()
        y = x.transpose(0, 1)
        y.sum().backward()

    found, _ = marked(body)
    engine = "autograd::engine::evaluate_function: "
    assert place(found[f"{engine}torch::autograd::CopySlices"]) == (line_of(body, "exp_"), "call")
    assert place(found["ExpBackward0"]) == (line_of(body, "exp_"), "call")
    assert place(found[f"{engine}TransposeBackward0"]) == (line_of(body, "transpose"), "call")


def test_a_second_derivative_has_the_line_of_the_first_function(marked: Any) -> None:
    def body() -> None:
        x = leaf()
        y = x.sigmoid()
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        grad.sum().backward()

    found, _ = marked(body)
    engine = "autograd::engine::evaluate_function: "
    assert place(found[f"{engine}SigmoidBackwardBackward0"]) == (line_of(body, "sigmoid"), "call")


def test_a_hook_keeps_its_line_and_what_comes_after_it_the_forwards(marked: Any) -> None:
    def hook(grad: torch.Tensor) -> torch.Tensor:
        return grad.cos()

    def body() -> None:
        x = leaf()
        y = x.sigmoid()
        y.register_hook(hook)
        y.sum().backward()

    found, _ = marked(body)
    assert place(found["cos"]) == (line_of(hook, "cos"), "call")
    assert place(found["sigmoid_backward"]) == (line_of(body, "sigmoid"), "call")
    accumulate = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    assert accumulate not in found or place(found[accumulate]) == (line_of(body, "backward()"), "call")
