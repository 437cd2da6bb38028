"""A running total stays on the device until the loop is over."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

ACCUMULATE = {"kind": "accumulate"}

EPOCH = """\
for epoch in range(3):
    total, n = 0.0, 0
    for x, y in loader:
        loss = f(net(x), y)
        loss.backward()
        opt.step()
        total += loss.item() * x.size(0)  # sum
        n += 1
    # report
    print(total / n)
"""
DONE = EPOCH.replace("loss.item()", "loss.detach().float()").replace(
    "    # report", "    total = float(total)\n    # report"
)
COUNT = """\
def train(self):
\tright = 0
\tfor x, y in self.loader:
\t\tself.fit(x, y)
\t\tright += (net(x).argmax(1) == y).sum().item()
\treturn right / 10

class A:
\tdef fit(self, x, y):
\t\tf(x, y).backward()
"""
CASES = [
    Case("a mean loss", EPOCH, 7, DONE),
    Case("made twice", DONE, 7),
    Case("by float()", EPOCH.replace("loss.item()", "float(loss)"), 7, DONE),
    Case("copied first", EPOCH.replace("loss.item()", "loss.detach().cpu().item()"), 7, DONE),
    Case(
        "a count",
        COUNT,
        5,
        COUNT.replace(".item()", "").replace("\treturn right", "\tright = int(right)\n\treturn right"),
    ),
    Case(
        "never used behind the loop",
        "t = 0.0\nfor x in xs:\n    loss = f(x)\n    loss.backward()\n    t += loss.item()\n",
        5,
        "t = 0.0\nfor x in xs:\n    loss = f(x)\n    loss.backward()\n    t += loss.detach().float()\n",
    ),
    Case("used in the loop", EPOCH.replace("        n += 1", "        n += 1; bar(total)"), 7),
    Case("used in the loop's head", EPOCH.replace("in loader", "in until(total)"), 7),
    Case(
        "started in another block",
        EPOCH.replace("    total, n = 0.0, 0\n", "    if n:\n        total, n = 0.0, 0\n"),
        8,
    ),
    Case("not started at a zero", EPOCH.replace("0.0, 0", "first, 0"), 7),
    Case("started before the outer loop", "total = n = 0.0\n" + EPOCH.replace("    total, n = 0.0, 0\n", ""), 7),
    Case("a whole number or not", EPOCH.replace("0.0, 0", "0, 0"), 7),
    Case("a loop that does not train", EPOCH.replace("backward", "abs").replace("opt.step", "show"), 7),
    Case("a condition", EPOCH.replace("        total +=", "        if x: total +="), 7),
    Case(
        "returned from inside",
        "def f():\n" + "".join(f"    {r}\n" for r in EPOCH.replace("n += 1", "return n").splitlines()),
        8,
    ),
    Case(
        "a global", "total = 0.0\ndef f():\n    return total\nfor x in y:\n    opt.step()\n    total += x.item()\n", 6
    ),
    Case(
        "a closure",
        "def g():\n    t = 0.0\n    def f():\n        return t\n"
        "    for x in y:\n        opt.step()\n        t += x.item()\n",
        7,
    ),
    Case("an attribute", EPOCH.replace("total +=", "self.total +="), 7),
    Case("a difference", EPOCH.replace("total +=", "total -="), 7),
    Case("two values", EPOCH.replace("* x.size(0)", "+ aux.item()"), 7),
    Case("times a tensor", EPOCH.replace("* x.size(0)", "* weight"), 7),
    Case("an else", EPOCH.replace("    # report", "    else:\n        done()\n    # report"), 7),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_only_totals_that_nothing_looks_at_stay_on_the_device(case: Case) -> None:
    check(ACCUMULATE, case)


LINES = st.sampled_from(
    ["t = 0.0", "for x in y:", "    opt.step()", "    t += x.item()", "print(t)", "", "# c", "t += x.item()"]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 9))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int) -> None:
    keeps_its_promise(ACCUMULATE, "\n".join([*rows, ""]), line)
