"""`backward()` moves out of `with torch.autocast(...)`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

LEAVE = {"kind": "leave_with", "contexts": ["torch.autocast", "torch.amp.autocast"]}
HEAD = "import torch\n"
CASES = [
    Case(
        "the last statements",
        HEAD
        + "with torch.autocast('cpu'):\n    loss = f(x)\n    # c\n    loss.backward()  # d\n\n    opt.step()\nx = 1\n",
        5,
        HEAD + "with torch.autocast('cpu'):\n    loss = f(x)\n# c\nloss.backward()  # d\n\nopt.step()\nx = 1\n",
    ),
    Case(
        "in a loop, with tabs, scaled",
        "from torch.amp import autocast as ac\nfor x in y:\n\twith ac('cuda'):\n\t\tloss = f(x)\n"
        "\t\tscaler.scale(loss).backward()\n"
        "\t\tif n % 2:\n\t\t\tscaler.step(opt)\n",
        5,
        "from torch.amp import autocast as ac\nfor x in y:\n\twith ac('cuda'):\n\t\tloss = f(x)\n"
        "\tscaler.scale(loss).backward()\n"
        "\tif n % 2:\n\t\tscaler.step(opt)\n",
    ),
    Case(
        "a forward pass behind it",
        HEAD + "with torch.autocast('cpu'):\n    a = f(x)\n    a.backward()\n    b = f(y)\n",
        4,
    ),
    Case(
        "a loop behind it",
        HEAD + "with torch.autocast('cpu'):\n    a = f(x)\n    a.backward()\n    for p in q:\n        p.step()\n",
        4,
    ),
    Case("nothing else in the block", HEAD + "with torch.autocast('cpu'):\n    f(x).backward()\n", 3),
    Case("the forward pass is on the line", HEAD + "with torch.autocast('cpu'):\n    a = 1\n    f(x).backward()\n", 4),
    Case("two contexts", HEAD + "with torch.autocast('cpu'), g():\n    a = f(x)\n    a.backward()\n", 4),
    Case("another context", HEAD + "with torch.no_grad():\n    a = f(x)\n    a.backward()\n", 4),
    Case(
        "deeper in the block", HEAD + "with torch.autocast('cpu'):\n    a = f(x)\n    if a:\n        a.backward()\n", 5
    ),
    Case("a decorated function", HEAD + "@torch.autocast('cpu')\ndef f(x):\n    a = g(x)\n    a.backward()\n", 5),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_statements_that_only_train_leave_the_block(case: Case) -> None:
    check(LEAVE, case)


LINES = st.sampled_from(
    ["with torch.autocast('cpu'):", "    a = f(x)", "    a.backward()", "    # c", "", "b = 1", "    o.step()"]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 10))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int) -> None:
    keeps_its_promise(LEAVE, "\n".join(["import torch", *rows, ""]), line)
