"""Ways in which torch.compile fails to help, and healthy ways that look alike: what is said, and on which line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.conftest import SAMPLES, Checked

NET = """\
import torch
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 32), nn.ReLU())
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(self.inner(x))


"""
LOOP = """\
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(STEPS):
    x, y = torch.randn(16, 16), torch.randint(0, 4, (16,))
    loss = CALL
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
COMPILE_LINE = NET.count("\n") + 2
"""Where a script compiles: the line after that of `net = …`."""


def script(compiling: str, call: str = "cross_entropy(net(x), y)", steps: int = 20, net: str = "Net()") -> str:
    return NET + f"net = {net}\n{compiling}\n" + LOOP.replace("CALL", call).replace("STEPS", str(steps))


def line_of(text: str, part: str) -> int:
    return text[: text.index(part)].count("\n") + 1


SEQUENTIAL = "nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))"
WITHOUT_EFFECT = {
    "dropped": (script('torch.compile(net, backend="eager")'), "torch.compile(net"),
    "in place": (script('net.compile(backend="eager")', net=SEQUENTIAL), "net.compile("),
    "bypassed": (
        script('fast = torch.compile(net, backend="eager")', "cross_entropy(fast._orig_mod(x), y)"),
        "fast = torch.compile(",
    ),
    "failed": (
        script(
            "import torch._dynamo\ntorch._dynamo.config.suppress_errors = True\n"
            'def broken(graph, inputs):\n    raise ValueError("no")\n'
            "fast = torch.compile(net, backend=broken)",
            "cross_entropy(fast(x), y)",
        ),
        "loss = cross",
    ),
}


@pytest.mark.parametrize("kind", sorted(WITHOUT_EFFECT))
def test_torch_compile_without_effect_is_found_on_the_line_to_change(kind: str, check: Callable[..., Checked]) -> None:
    text, part = WITHOUT_EFFECT[kind]
    (finding,) = check(text).findings("GD108")
    assert (finding["where"]["file"], finding["where"]["line"]) == ("train.py", line_of(text, part))
    assert finding["saving"] is None


TEACHER = """\
import copy
fast, teacher = torch.compile(net, backend="eager"), copy.deepcopy(net)
def loss_of(x, y):
    with torch.no_grad():
        wanted = teacher(x)
    return (fast(x) - wanted).square().mean() + cross_entropy(fast(x), y)
"""
HEALTHY = {
    "wrapped container": script(
        'fast = torch.compile(net, backend="eager")', "cross_entropy(fast(x), y)", net=SEQUENTIAL
    ),
    "in place, own class": script('net.compile(backend="eager")'),
    "a part": script('net.inner = torch.compile(net.inner, backend="eager")'),
    "an uncompiled copy of it": script(TEACHER, "loss_of(x, y)"),
    "switched off": script('fast = torch.compile(net, backend="eager", disable=True)', "cross_entropy(fast(x), y)"),
    "never called in the loop": script('score = torch.compile(lambda x: net(x).argmax(-1), backend="eager")'),
    "evaluation in between": script(
        'fast = torch.compile(net, backend="eager")\n'
        "def loss_of(step, x, y):\n"
        "    if step % 5 == 4:\n"
        "        fast.eval()\n"
        "        with torch.no_grad():\n"
        "            fast(x)\n"
        "        fast.train()\n"
        "    return cross_entropy(fast(x), y)",
        "loss_of(step, x, y)",
        30,
    ),
    "a number that becomes a symbol": script(
        '@torch.compile(backend="eager")\ndef scaled(x, by):\n    return net(x) * by',
        "cross_entropy(scaled(x, step), y)",
    ),
    "few sizes": script(
        'fast = torch.compile(net, backend="eager", dynamic=False)',
        "cross_entropy(fast(x[: 8 * (1 + step % 2)]), y[: 8 * (1 + step % 2)])",
    ),
}


@pytest.mark.parametrize("kind", sorted(HEALTHY))
def test_healthy_uses_of_torch_compile_have_no_finding_about_it(kind: str, check: Callable[..., Checked]) -> None:
    run = check(HEALTHY[kind])
    assert run.code == 0, run.err
    assert [f["message"] for f in run.diagnosis["findings"] if f["rule"].startswith("GD1")] == []


UNHASHABLE = """\
import torch
from torch import nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(16, 16); self.b = nn.Linear(16, 4)
    def forward(self, x):
        scaled = lambda v, by=2: v * by
        z = self.a(x)
        if z.sum() > 0:
            z = z * 1.5
        return self.b(scaled(z))
net = Net(); fast = torch.compile(net, backend="eager"); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(20):
    loss = fast(torch.randn(8, 16)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
print("end", loss.item())
"""


def test_code_that_dynamo_rewrites_runs_to_its_end_under_observation(check: Callable[..., Checked]) -> None:
    # a function alive across a break: its continuation has constants that cannot be hashed
    run = check(UNHASHABLE, "--run-to-end")
    assert (run.code, run.diagnosis["run"]["script_exit"]) == (0, 0)
    assert "end " in run.err
    assert [finding["where"]["line"] for finding in run.findings("GD101")] == [10]


def test_a_module_of_torchs_own_compiled_in_place_is_not_excused_by_another_that_is_wrapped(
    check: Callable[..., Checked],
) -> None:
    code = script(
        'first = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), backend="eager")\n'
        'net.compile(backend="eager")',
        "cross_entropy(net(first(x)), y)",
        net=SEQUENTIAL,
    )
    (finding,) = check(code).findings("GD108")
    assert finding["where"]["line"] == line_of(code, "net.compile(")


def test_layers_that_share_code_and_differ_in_a_number_are_not_told_to_keep_it_in_a_tensor(
    check: Callable[..., Checked],
) -> None:
    code = """\
import torch
from torch import nn
class Layer(nn.Module):
    def __init__(self, depth):
        super().__init__(); self.depth = depth; self.mix = nn.Linear(16, 16)
    def forward(self, x):
        return x + self.mix(x) / self.depth
layers = nn.ModuleList(Layer(depth) for depth in range(1, 13))
for layer in layers:
    layer.compile(backend="eager")
opt = torch.optim.SGD(layers.parameters(), lr=0.1)
for step in range(16):
    x = torch.randn(8, 16)
    for layer in layers:
        x = layer(x)
    loss = x.square().mean(); opt.zero_grad(); loss.backward(); opt.step()
"""
    (finding,) = check(code).findings("GD103")
    assert finding["where"]["line"] == 7
    assert finding["remedy"]["name"] == "instances"


VALUES = {
    "string": (
        script(
            '@torch.compile(backend="eager")\ndef tagged(x, tag):\n    return net(x) * len(tag)',
            'cross_entropy(tagged(x, f"batch {step}"), y)',
        ),
        "loss = cross",
        "tag",
    ),
    "global": (
        script(
            "SEEN = 0\n"
            '@torch.compile(backend="eager")\ndef counted(x):\n    return net(x) * (2 if SEEN > 99 else 1)\n'
            "def loss_of(x, y):\n    global SEEN\n    SEEN += 1\n    return cross_entropy(counted(x), y)",
            "loss_of(x, y)",
        ),
        "    return net(x) * (2",
        "SEEN changed",
    ),
}


@pytest.mark.parametrize("kind", sorted(VALUES))
def test_a_value_that_recompiles_up_to_the_limit_is_named_on_its_line(kind: str, check: Callable[..., Checked]) -> None:
    text, part, source = VALUES[kind]
    run = check(text)
    for rule in ("GD103", "GD104"):
        (finding,) = run.findings(rule)
        assert (finding["where"]["line"], finding["severity"]) == (line_of(text, part), "warning")
        assert source in finding["message"]


def test_the_compilation_section_is_the_log_in_short(check: Callable[..., Checked]) -> None:
    compiled = check(SAMPLES / "graph-break" / "train.py").diagnosis["compilation"]
    forward = [frame for frame in compiled["frames"] if frame["function"] == "forward"]
    assert [frame["resumes"] for frame in forward] == [False, True]
    assert len(forward[0]["breaks"]) == 1
    assert compiled["graphs"] >= 2
    assert compiled["graph_breaks"] == 1
    assert compiled["dynamo_ns"] + compiled["backend_ns"] + compiled["backward_ns"] == compiled["compile_ns"]


def test_counts_of_compiling_repeat_exactly(check: Callable[..., Checked]) -> None:
    # the same script under an option that changes nothing in it is run anew
    for name in ("recompile-limit", "graph-break"):
        runs = [check(SAMPLES / name / "train.py", *options) for options in ((), ("--total-steps", "100000"))]
        counted = [{k: run.diagnosis["counters"][k] for k in ("graphs", "graph_breaks", "recompiles")} for run in runs]
        assert counted[0] == counted[1]
        frames = [
            [
                (f["function"], f["operators"], f["guards"], f["versions"])
                for f in run.diagnosis["compilation"]["frames"]
            ]
            for run in runs
        ]
        assert frames[0] == frames[1]
