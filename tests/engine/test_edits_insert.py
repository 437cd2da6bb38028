"""Inserting a statement beside another, or behind the imports."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, edit, ids, keeps_its_promise

TF32 = {"kind": "insert", "statement": 'torch.set_float32_matmul_precision("high")', "place": "imports"}
MARK = {"kind": "insert", "statement": "torch._dynamo.mark_dynamic(x, 0)"}
SYNC = {"kind": "insert", "statement": "torch.cuda.synchronize()", "place": "after"}
CALL = 'torch.set_float32_matmul_precision("high")'

IMPORTS = [
    Case(
        "behind the imports", "import os\nimport torch\n\nx = 1\n", 4, f"import os\nimport torch\n\n{CALL}\n\nx = 1\n"
    ),
    Case(
        "docstring and future",
        '"""Doc."""\nfrom __future__ import annotations\n\nimport torch\nfrom torch import nn\n\n\nclass A: pass\n',
        8,
        f'"""Doc."""\nfrom __future__ import annotations\n\nimport torch\nfrom torch import nn\n\n'
        f"{CALL}\n\n\nclass A: pass\n",
    ),
    Case("there already", f"import torch\n\ndef f():\n    {CALL}\n", 3, f"import torch\n\ndef f():\n    {CALL}\n"),
    Case("torch is not imported", "import os\nx = 1\n", 2),
    Case("torch is something else", "import torch\ntorch = fake()\n", 2),
    Case("no imports at the top", "x = 1\nimport torch\n", 1),
]
BESIDE = [
    Case(
        "before a call",
        "import torch\nfor x in xs:\n    # next\n    y = model(x)\n",
        4,
        "import torch\nfor x in xs:\n    # next\n    torch._dynamo.mark_dynamic(x, 0)\n    y = model(x)\n",
    ),
    Case(
        "over several lines",
        "import torch\nif a:\n\ty = model(\n\t\tx,\n\t)\n",
        4,
        "import torch\nif a:\n\ttorch._dynamo.mark_dynamic(x, 0)\n\ty = model(\n\t\tx,\n\t)\n",
    ),
    Case("a loop's own line", "import torch\nwhile model(x):\n    pass\n", 2),
    Case("a suite of one line", "import torch\nif a: y = model(x)\n", 2),
    Case("two statements on the line", "import torch\na = 1; y = model(x)\n", 2),
    Case("a function's own line", "import torch\ndef f(x): return model(x)\n", 2),
]


@pytest.mark.parametrize("case", IMPORTS, ids=ids(IMPORTS))
def test_settings_go_behind_the_imports(case: Case) -> None:
    check(TF32, case)


@pytest.mark.parametrize("case", BESIDE, ids=ids(BESIDE))
def test_statements_go_before_the_line(case: Case) -> None:
    check(MARK, case)


def test_a_statement_can_go_behind_the_line_but_not_behind_the_end_of_the_function() -> None:
    check(SYNC, Case("after", "import torch\nf()\ng()\n", 2, "import torch\nf()\ntorch.cuda.synchronize()\ng()\n"))
    check(SYNC, Case("return", "import torch\ndef f():\n    return 1\n", 3))


def test_an_edit_that_is_made_twice_is_made_once() -> None:
    once = edit(MARK, "import torch\ny = model(x)\n", 2)
    assert edit(MARK, once, 3) == once


LINES = st.sampled_from(
    ["import os", "import torch", "x = 1", "", "# c", "if a:", "    y = f(x)", "from a import b", "\x0c"]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 9), st.sampled_from([TF32, MARK, SYNC]))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int, table: dict[str, str]) -> None:
    keeps_its_promise(table, "\n".join([*rows, ""]), line)
