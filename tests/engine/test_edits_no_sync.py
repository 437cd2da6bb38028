"""Gradients are reduced once an optimizer step, not once a micro-batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

NO_SYNC = {"kind": "no_sync"}
HEAD = """\
import os

import torch
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(net)
"""
RANGE = """\
for step in range(10):
    # micro-batches
    for i in range(ACCUM):
        x = next(data)

        loss = f(model(x)) / ACCUM  # mean
        loss.backward()
    opt.step()
"""
IN_RANGE = """\
for step in range(10):
    # micro-batches
    for i in range(ACCUM):
        with model.no_sync() if i < ACCUM - 1 else contextlib.nullcontext():
            x = next(data)

            loss = f(model(x)) / ACCUM  # mean
            loss.backward()
    opt.step()
"""
FEW = """\
for i, (x, y) in enumerate(loader):
    x = x.cuda()
    # forward
    loss = f(model(x), y) / k
    loss.backward()
    if (i + 1) % k == 0:
        opt.step()
        opt.zero_grad()
        sched.step()
"""
EVERY_FEW = """\
for i, (x, y) in enumerate(loader):
    x = x.cuda()
    # forward
    with contextlib.nullcontext() if (i + 1) % k == 0 else model.no_sync():
        loss = f(model(x), y) / k
        loss.backward()
    if (i + 1) % k == 0:
        opt.step()
        opt.zero_grad()
        sched.step()
"""
WITH_IMPORT = HEAD.replace("import os", "import contextlib\nimport os")
IN_FUNCTION = "def train(model, loader, k):\n" + "".join(f"    {row}\n" for row in FEW.splitlines())
MAIN = "\ndef main():\n    model = DDP(net)\n    train(model, data, 4)\n"
CASES = [
    Case("a range", HEAD + RANGE, 13, WITH_IMPORT + IN_RANGE),
    Case("every few batches", HEAD + FEW, 11, WITH_IMPORT + EVERY_FEW),
    Case(
        "nullcontext from contextlib",
        "from contextlib import nullcontext\n" + HEAD + RANGE,
        14,
        "from contextlib import nullcontext\n" + HEAD + IN_RANGE.replace("contextlib.nullcontext", "nullcontext"),
    ),
    Case(
        "an attribute",
        HEAD.replace("model =", "self.ddp =") + RANGE.replace("model(", "self.ddp("),
        13,
        WITH_IMPORT.replace("model =", "self.ddp =")
        + IN_RANGE.replace("model(", "self.ddp(").replace("model.", "self.ddp."),
    ),
    Case(
        "passed to a function",
        HEAD.replace("model = DDP(net)\n", "") + IN_FUNCTION + MAIN,
        10,
        WITH_IMPORT.replace("model = DDP(net)\n", "")
        + "def train(model, loader, k):\n"
        + "".join(f"    {row}\n" for row in EVERY_FEW.splitlines())
        + MAIN,
    ),
    Case(
        "another model is passed",
        HEAD.replace("model = DDP(net)\n", "") + IN_FUNCTION + MAIN.replace("train(model", "train(net"),
        10,
    ),
    Case("no wrapped model", HEAD.replace("DDP(net)", "net") + RANGE, 13),
    Case("another model is called", HEAD + RANGE.replace("model(x)", "net(x)"), 13),
    Case("no_sync is used already", WITH_IMPORT + IN_RANGE, 15),
    Case("two backward calls", HEAD + RANGE.replace("loss.backward()", "loss.backward(); aux.backward()"), 13),
    Case("a round may be left out", HEAD + RANGE.replace("        x =", "        if bad(): continue\n        x ="), 14),
    Case("a computed number of rounds", HEAD + RANGE.replace("range(ACCUM)", "range(len(chunks))"), 13),
    Case("the number changes", HEAD + RANGE.replace("x = next(data)", "x = next(data); ACCUM = 3"), 13),
    Case("a start", HEAD + RANGE.replace("range(ACCUM)", "range(1, ACCUM)"), 13),
    Case("the step is elsewhere", HEAD + RANGE.replace("    opt.step()", "    pass") + "opt.step()\n", 13),
    Case("steps in two places", HEAD + FEW + "opt.step()\n", 11),
    Case("a condition of the loss", HEAD + FEW.replace("(i + 1) % k == 0", "loss < 1"), 11),
    Case("a condition with a call", HEAD + FEW.replace("(i + 1) % k == 0", "due(i)"), 11),
    Case("each batch steps", HEAD + "for x in data:\n    f(model(x)).backward()\n    opt.step()\n", 8),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_only_plain_accumulation_is_put_under_no_sync(case: Case) -> None:
    check(NO_SYNC, case)


LINES = st.sampled_from(
    [
        "for i in range(k):",
        "    y = model(x)",
        "    y.backward()",
        "    if i % 2 == 0:",
        "        opt.step()",
        "opt.step()",
        "",
        "# c",
    ]
)


@given(st.lists(LINES, max_size=8), st.integers(6, 14))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int) -> None:
    keeps_its_promise(NO_SYNC, "\n".join([HEAD, *rows, ""]), line)
