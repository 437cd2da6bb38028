"""What is kept of each step is kept without its graph, where nothing can need the graph."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

DETACH = {"kind": "detach"}

SUM = """\
import torch
def main():
    total = 0.0
    for x in loader:
        aux = net(x).square().mean()
        total += (net(x) - x).abs().mean()  # sum
    print(total / 60, float(total))
"""
LIST = """\
import torch
losses, n = [], 0
for x in loader:
    loss = f(net(x))
    losses.append(loss)
    loss.backward()
print(len(losses), torch.stack(losses).mean().item(), sum(losses).item(), f"{losses[-1]:.2f}")
"""
CASES = [
    Case("a sum", SUM, 6, SUM.replace("x).abs().mean()", "x).abs().mean().detach()")),
    Case(
        "made twice",
        SUM.replace("x).abs().mean()", "x).abs().mean().detach()"),
        6,
        SUM.replace("x).abs().mean()", "x).abs().mean().detach()"),
    ),
    Case("a list of what backward is called on", LIST, 5, LIST.replace("append(loss)", "append(loss.detach())")),
    Case(
        "arithmetic",
        SUM.replace(".mean()  #", ".mean() / 2  #"),
        6,
        SUM.replace("(net(x) - x).abs().mean()  #", "((net(x) - x).abs().mean() / 2).detach()  #"),
    ),
    Case(
        "a function of torch",
        SUM.replace("(net(x) - x).abs().mean()", "torch.dist(x, y)"),
        6,
        SUM.replace("(net(x) - x).abs().mean()", "torch.dist(x, y).detach()"),
    ),
    Case(
        "started together with others",
        SUM.replace("total = 0.0", "total, other = 0.0, net(y)"),
        6,
        SUM.replace("total = 0.0", "total, other = 0.0, net(y)").replace("x).abs().mean()", "x).abs().mean().detach()"),
    ),
    Case("started from others", SUM.replace("total = 0.0", "total, other = pair"), 6),
    Case("perhaps a number", SUM.replace("(net(x) - x).abs().mean()", "f(x)"), 6),
    Case("a name that may be a number", SUM.replace("(net(x) - x).abs().mean()", "aux"), 6),
    Case("back-propagated later", SUM + "    total.backward()\n", 6),
    Case("a gradient of it", SUM + "    torch.autograd.grad(total, x)\n", 6),
    Case("returned", SUM + "    return total\n", 6),
    Case("passed on", SUM + "    step(total)\n", 6),
    Case("stacked and passed on", LIST + "step(torch.stack(losses))\n", 5),
    Case("part of itself", SUM.replace("(net(x) - x)", "(net(x) - total)"), 6),
    Case("used by another function", LIST + "def end():\n    print(losses)\n", 5),
    Case("global", SUM.replace("    total = 0.0\n", "    global total\n"), 5),
    Case("an attribute", SUM.replace("total", "self.total"), 6),
    Case("starts as a tensor with a graph", SUM.replace("total = 0.0", "total = net(y)"), 6),
    Case("two statements on the line", SUM.replace("  # sum", "; n = 1"), 6),
    Case("taken away from", SUM.replace("+=", "-="), 6),
    Case("a record", LIST.replace("append(loss)", "append((1, loss))"), 5),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_detaches_what_is_added(case: Case) -> None:
    check(DETACH, case)


@settings(max_examples=30)
@given(
    st.integers(1, 8),
    st.sampled_from(["total", "loss", "x", "losses"]),
    st.sampled_from(["y()", "(a, b)", "z.q", "*w"]),
)
def test_any_text_stays_valid(line: int, word: str, other: str) -> None:
    keeps_its_promise(DETACH, SUM.replace(word, other), line)
    keeps_its_promise(DETACH, LIST.replace(word, other), line)
