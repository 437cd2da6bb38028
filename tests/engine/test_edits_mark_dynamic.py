"""A dimension that varies is marked before the compiled call."""

from __future__ import annotations

import pytest

from .edit_cases import Case, check, edit, ids

MARK = {"kind": "mark_dynamic", "function": "forward", "tensor": "x", "dimension": "1"}
HEAD = "import torch\nclass Net:\n    def forward(self, x, mask=None):\n        return x\n"
FAST = HEAD + "fast = torch.compile(Net())\n"
CALL = "torch._dynamo.maybe_mark_dynamic"
CASES = [
    Case(
        "by position",
        FAST + "for a in b:\n    y = fast(a)\n",
        7,
        f"{FAST}for a in b:\n    {CALL}(a, 1)\n    y = fast(a)\n",
    ),
    Case("by keyword", FAST + "y = fast(mask=m, x=a)\n", 6, f"{FAST}{CALL}(a, 1)\ny = fast(mask=m, x=a)\n"),
    Case(
        "in place",
        HEAD + "n = Net()\nn.compile()\ny = n(a)\n",
        7,
        f"{HEAD}n = Net()\nn.compile()\n{CALL}(a, 1)\ny = n(a)\n",
    ),
    Case("computed", FAST + "y = fast(a + 1)\n", 6),
    Case("not compiled", HEAD + "fast = Net()\ny = fast(a)\n", 6),
    Case("in a condition", FAST + "while fast(a):\n    pass\n", 6),
    Case("arguments passed on", FAST + "y = fast(*a)\n", 6),
    Case("two functions of that name", FAST + "def forward(x): pass\ny = fast(a)\n", 7),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_the_tensor_is_marked_before_the_call(case: Case) -> None:
    check(MARK, case)


def test_a_decorated_function_and_a_second_time() -> None:
    table = {**MARK, "function": "f"}
    text = "import torch\n@torch.compile\ndef f(x): return x\ny = f(a)\n"
    once = edit(table, text, 4)
    assert once == text.replace("y =", f"{CALL}(a, 1)\ny =")
    assert edit(table, once, 5) == once
