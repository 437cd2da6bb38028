"""Deleting calls that stand alone: `torch.cuda.empty_cache()`, `gc.collect()`, anomaly detection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

EMPTY = {"kind": "delete", "calls": ["torch.cuda.empty_cache", "gc.collect"]}
ANOMALY = {
    "kind": "delete",
    "calls": ["torch.autograd.set_detect_anomaly", "torch.autograd.detect_anomaly"],
}

CALLS = [
    Case("a line", "import gc\nx = 1\ngc.collect()\ny = 2\n", 3, "x = 1\ny = 2\n"),
    Case("the last line", "import gc\nx = 1\ngc.collect()\n", 3, "x = 1\n"),
    Case("with an argument", "import gc\ngc.collect(2)\nx = 1\n", 2, "x = 1\n"),
    Case(
        "the only statement",
        "import torch\nif a:\n    # tidy\n    torch.cuda.empty_cache()\n",
        4,
        "import torch\nif a:\n    # tidy\n    pass\n",
    ),
    Case(
        "the last of a block keeps the comment above",
        "import gc\ndef f():\n\tx()\n\t# why\n\tgc.collect()\ny = 1\n",
        5,
        "def f():\n\tx()\n\t# why\ny = 1\n",
    ),
    Case(
        "a comment above stays",
        "import gc\nx = 1\n\n# tidy up\ngc.collect()\ny = 2\n",
        5,
        "x = 1\n\n# tidy up\ny = 2\n",
    ),
    Case("behind a semicolon", "import gc\nx = 1; gc.collect()  # c\n", 2, "x = 1  # c\n"),
    Case("before a semicolon", "import gc\ngc.collect(); x = 1\n", 2, "x = 1\n"),
    Case("in the middle", "import gc\na = 1; gc.collect(); x = 1;\n", 2, "a = 1; x = 1;\n"),
    Case("a suite of one line", "import gc\nif a: gc.collect()\n", 2, "if a: pass\n"),
    Case("a suite of two", "import gc\nif a: gc.collect(); b()\n", 2, "if a: b()\n"),
    Case(
        "an imported name",
        "from gc import collect as tidy\ntidy()\nx = 1\n",
        2,
        "x = 1\n",
    ),
    Case(
        "a module's alias",
        "import torch.cuda as tc\nfor x in y:\n    f(x)\n    tc.empty_cache()\n    g(x)\n",
        4,
        "import torch.cuda as tc\nfor x in y:\n    f(x)\n    g(x)\n",
    ),
    Case(
        "over several lines",
        "import torch\nx()\ntorch.cuda.empty_cache(\n)\ny()\n",
        4,
        "import torch\nx()\ny()\n",
    ),
    Case("what it returns is used", "import gc\nn = gc.collect()\n", 2),
    Case("part of an expression", "import gc\nprint(gc.collect())\n", 2),
    Case("a computed argument", "import gc\ngc.collect(generation)\n", 2),
    Case("another object of that name", "gc = Client()\ngc.collect()\n", 2),
    Case("a parameter of that name", "import gc\ndef f(gc):\n    gc.collect()\n", 3),
    Case("not imported", "gc.collect()\n", 1),
    Case("a star import", "from gc import *\ncollect()\n", 2),
    Case("two on a line", "import gc\ngc.collect(); gc.collect()\n", 2),
    Case("another line", "import gc\nx = 1\ngc.collect()\n", 2),
    Case("in a lambda", "import gc\nf = lambda: gc.collect()\n", 2),
]

IMPORTS = [
    Case(
        "one of several names",
        "import gc, torch\ngc.collect()\ntorch.ones(1)\n",
        2,
        "import torch\ntorch.ones(1)\n",
    ),
    Case(
        "between two gaps",
        "import sys\n\nimport gc\n\nimport torch\nf(sys, torch)\ngc.collect()\n",
        7,
        "import sys\n\nimport torch\nf(sys, torch)\n",
    ),
    Case(
        "its comment stays",
        "import sys\n\n# memory\nimport gc\nimport torch\ngc.collect()\n",
        6,
        "import sys\n\n# memory\nimport torch\n",
    ),
    Case("used elsewhere", "import gc\ngc.collect()\ngc.freeze()\n", 2, "import gc\ngc.freeze()\n"),
    Case("read elsewhere", "import gc\ngc.collect()\nf(gc)\n", 2, "import gc\nf(gc)\n"),
    Case("given away", "import gc\n__all__ = ['gc']\ngc.collect()\n", 3, "import gc\n__all__ = ['gc']\n"),
    Case("with a remark", "import gc  # noqa\ngc.collect()\n", 2, "import gc  # noqa\n"),
    Case(
        "in a try",
        "try:\n    import gc\nexcept ImportError:\n    a()\ngc.collect()\n",
        5,
        "try:\n    import gc\nexcept ImportError:\n    a()\n",
    ),
    Case(
        "another package's",
        "import torch.cuda as tc\ntc.empty_cache()\n",
        2,
        "import torch.cuda as tc\n",
    ),
]

WAIT = {"kind": "delete", "calls": ["torch.cuda.synchronize"], "purpose": "wait"}
LOOP = "import time, torch\nfor x in y:\n    {}\n    torch.cuda.synchronize()\n"
WAITS = [
    Case("alone", LOOP.format("f(x)"), 4, "import time, torch\nfor x in y:\n    f(x)\n"),
    Case(
        "a copy to the GPU",
        LOOP.format("f(x.to(self.device, non_blocking=True))"),
        4,
        "import time, torch\nfor x in y:\n    f(x.to(self.device, non_blocking=True))\n",
    ),
    Case("a clock", LOOP.format("f(x); seconds = time.perf_counter()"), 4),
    Case("an event's time", LOOP.format("print(begin.elapsed_time(end))"), 4),
    Case("a stream", LOOP.format("f(x, torch.cuda.Stream())"), 4),
    Case("a copy to the host", LOOP.format("out.append(f(x).to('cpu', non_blocking=True))"), 4),
    Case("a copy to anywhere", LOOP.format("out.copy_(f(x), non_blocking=True)"), 4),
]

BLOCKS = [
    Case(
        "a statement",
        "import torch\ntorch.autograd.set_detect_anomaly(True)\nx = 1\n",
        2,
        "import torch\nx = 1\n",
    ),
    Case(
        "a with block",
        "import torch\nx = 1\nwith torch.autograd.detect_anomaly():\n"
        "    # c\n    a = f(\n        1,\n    )\n\n    b = 2  # d\ny = 1\n",
        3,
        "import torch\nx = 1\n# c\na = f(\n    1,\n)\n\nb = 2  # d\ny = 1\n",
    ),
    Case(
        "one of several items",
        "from torch import autograd\nimport torch\nwith torch.no_grad(), autograd.set_detect_anomaly(True):\n    a()\n",
        3,
        "from torch import autograd\nimport torch\nwith torch.no_grad():\n    a()\n",
    ),
    Case(
        "the first of several items",
        "import torch\nwith torch.autograd.detect_anomaly(), open(p) as f:\n    a()\n",
        2,
        "import torch\nwith open(p) as f:\n    a()\n",
    ),
    Case("a flag that is computed", "import torch\ntorch.autograd.set_detect_anomaly(args.debug)\n", 2),
    Case("its value is named", "import torch\nwith torch.autograd.detect_anomaly() as d:\n    a()\n", 2),
    Case(
        "a text over lines in it",
        'import torch\nwith torch.autograd.detect_anomaly():\n    a("""x\n    y""")\n',
        2,
        'import torch\na("""x\n    y""")\n',
    ),
    Case("on one line", "import torch\nwith torch.autograd.detect_anomaly(): a()\n", 2),
]


@pytest.mark.parametrize("case", CALLS, ids=ids(CALLS))
def test_calls_that_stand_alone_are_deleted(case: Case) -> None:
    check(EMPTY, case)


@pytest.mark.parametrize("case", IMPORTS, ids=ids(IMPORTS))
def test_an_import_that_nothing_else_uses_goes_too(case: Case) -> None:
    check(EMPTY, case)


@pytest.mark.parametrize("case", WAITS, ids=ids(WAITS))
def test_a_wait_with_a_purpose_stays(case: Case) -> None:
    check(WAIT, case)


@pytest.mark.parametrize("case", BLOCKS, ids=ids(BLOCKS))
def test_blocks_of_a_context_are_moved_left(case: Case) -> None:
    check(ANOMALY, case)


LINES = st.sampled_from(
    [
        "gc.collect()",
        "if a:",
        "    gc.collect()",
        "    x = 1",
        "# c",
        "",
        "x = 1; gc.collect()",
        "\x0c",
        "def f():",
        "    '''s",
    ]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 9))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int) -> None:
    keeps_its_promise(EMPTY, "\n".join(["import gc", *rows, ""]), line)
