"""`torch.no_grad()` around code that does not train."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

EVALUATION = {"kind": "no_grad"}
STATEMENT = {"kind": "no_grad", "scope": "statement"}
HEAD = "import torch\n"

FUNCTION = """\
def evaluate(model, loader):
    model.eval()
    total, n = 0.0, 0
    for x, y in loader:
        total += loss_fn(model(x), y).item() * x.size(0)
        n += len(x)
    return total / n
"""
LOOP = """\
for epoch in range(3):
    for x, y in train:
        loss = f(model(x), y)
        loss.backward()
        opt.step()
    correct = 0
    # validate
    for x, y in val:
        x = x.cuda()
        out = model(x)
        correct += (out.argmax(1) == y).sum().item()
    print(correct)
"""
FUNCTIONS = [
    Case("a function of host values", HEAD + FUNCTION, 6, f"{HEAD}@torch.no_grad()\n{FUNCTION}"),
    Case(
        "below other decorators, in a class, with tabs",
        "import torch as t\nclass A:\n\t# c\n\t@timed  # d\n\tdef val(self):\n\t\tfor x in self.data:\n"
        "\t\t\tself.log('loss', self.net(x).mean().item())\n",
        7,
        "import torch as t\nclass A:\n\t# c\n\t@timed  # d\n\t@t.no_grad()\n\tdef val(self):\n\t\tfor x in self.data:\n"
        "\t\t\tself.log('loss', self.net(x).mean().item())\n",
    ),
    Case(
        "no_grad from torch",
        "from torch import no_grad\n" + FUNCTION,
        6,
        "from torch import no_grad\n@no_grad()\n" + FUNCTION,
    ),
    Case("already so", f"{HEAD}@torch.no_grad()\n{FUNCTION}", 6, f"{HEAD}@torch.no_grad()\n{FUNCTION}"),
    Case(
        "already in inference mode",
        "import torch\nwith torch.inference_mode():\n    y = model(x)\n",
        3,
        "import torch\nwith torch.inference_mode():\n    y = model(x)\n",
    ),
    Case(
        "a list of numbers",
        HEAD
        + "def f(m, xs):\n    a = []\n    for x in xs:\n        a.append(m(x).item())\n    return sum(a) / len(a)\n",
        5,
        HEAD
        + "@torch.no_grad()\ndef f(m, xs):\n    a = []\n    for x in xs:\n        a.append(m(x).item())\n"
        + "    return sum(a) / len(a)\n",
    ),
    Case(
        "a list of tensors",
        HEAD + "def f(m, xs):\n    a = []\n    for x in xs:\n        a.append(m(x))\n    return sum(a)\n",
        5,
    ),
    Case("a tensor is returned", HEAD + FUNCTION.replace(".item()", "").replace("evaluate", "losses"), 6),
    Case(
        "a tensor is returned in training mode",
        HEAD + FUNCTION.replace(".item()", "").replace("model.eval()", "pass"),
        6,
    ),
    Case(
        "a tensor is returned by what calls itself an evaluation",
        HEAD + FUNCTION.replace(".item()", ""),
        6,
        HEAD + "@torch.no_grad()\n" + FUNCTION.replace(".item()", ""),
    ),
    Case("a tensor is kept", HEAD + "def f(self, xs):\n    for x in xs:\n        self.last = self.m(x)\n", 4),
    Case(
        "a tensor is handed to another object",
        HEAD + "def f(m, xs, out):\n    for x in xs:\n        out.append(m(x))\n",
        4,
    ),
    Case(
        "it trains", HEAD + FUNCTION.replace("n += 1", "loss.backward()").replace("n += len(x)", "loss.backward()"), 6
    ),
    Case("another file's function", HEAD + "from lib import fit\n" + FUNCTION.replace("n += len(x)", "fit(y)"), 7),
    Case("another file's method", HEAD + FUNCTION.replace("n += len(x)", "self.train_batch(y)"), 6),
    Case("a trainer", HEAD + FUNCTION.replace("n += len(x)", "trainer.train()"), 6),
    Case(
        "back to training mode",
        HEAD + FUNCTION.replace("    return", "    model.train()\n    return"),
        6,
        HEAD + "@torch.no_grad()\n" + FUNCTION.replace("    return", "    model.train()\n    return"),
    ),
    Case("a step", HEAD + FUNCTION.replace("n += len(x)", "opt.step()"), 6),
    Case(
        "it trains elsewhere in the file",
        HEAD + "def fit(b): b.backward()\n" + FUNCTION.replace("n += len(x)", "fit(y)"),
        7,
    ),
    Case("it reads gradients", HEAD + FUNCTION.replace("n += len(x)", "n += x.grad.sum().item()"), 6),
    Case("a gradient by function", HEAD + FUNCTION.replace("n += len(x)", "torch.autograd.grad(y, x)"), 6),
    Case("a generator", HEAD + "def f(m, xs):\n    for x in xs:\n        yield m(x).item()\n", 4),
    Case("torch is not imported", FUNCTION, 5),
]
LOOPS = [
    Case(
        "a loop in a function that trains",
        HEAD + LOOP,
        11,
        HEAD
        + LOOP.replace(
            "    for x, y in val:\n        x = x.cuda()\n        out = model(x)\n        correct +",
            "    with torch.no_grad():\n        for x, y in val:\n            x = x.cuda()\n"
            "            out = model(x)\n"
            "            correct +",
        ),
    ),
    Case("the output is used behind the loop", HEAD + LOOP.replace("print(correct)", "show(out)"), 11),
    Case(
        "the output is used in the next round", HEAD + LOOP.replace("f(model(x), y)", "f(model(x), y) + out.sum()"), 11
    ),
    Case("the loop trains", HEAD + LOOP, 4),
    Case("a module's own line", HEAD + "y = model(x)\n", 2),
    Case("a loop's head", HEAD + "for x in model(y):\n    print(x)\n", 2),
]
STATEMENTS = [
    Case(
        "a teacher",
        HEAD + "def step(x):\n    # soft labels\n    target = teacher(x)  # c\n    loss = kl(student(x), target)\n",
        4,
        HEAD
        + "def step(x):\n    # soft labels\n    with torch.no_grad():\n        target = teacher(x)  # c\n"
        + "    loss = kl(student(x), target)\n",
    ),
    Case(
        "over several lines",
        HEAD + "target = teacher(\n    x,\n)\n",
        3,
        HEAD + "with torch.no_grad():\n    target = teacher(\n        x,\n    )\n",
    ),
    Case("the student on the same line", HEAD + "d = (out - teacher(x)).pow(2).mean()\n", 2),
    Case("the student in the same call", HEAD + "d = loss(out, teacher(x))\n", 2),
    Case("a function", HEAD + "import lib\nd = lib.loss(out, x)\n", 3),
    Case(
        "parts of the result",
        HEAD + "t = self.teacher(x.to(d), mask=m)[0].softmax(-1)\n",
        2,
        HEAD + "with torch.no_grad():\n    t = self.teacher(x.to(d), mask=m)[0].softmax(-1)\n",
    ),
    Case("a return", HEAD + "def f(x):\n    return teacher(x)\n", 3),
    Case("two on a line", HEAD + "a = 1; target = teacher(x)\n", 2),
    Case("a condition", HEAD + "if teacher(x):\n    pass\n", 2),
]


@pytest.mark.parametrize("case", [*FUNCTIONS, *LOOPS], ids=ids([*FUNCTIONS, *LOOPS]))
def test_evaluation_runs_without_gradients_where_that_is_certain(case: Case) -> None:
    check(EVALUATION, case)


@pytest.mark.parametrize("case", STATEMENTS, ids=ids(STATEMENTS))
def test_one_statement_runs_without_gradients(case: Case) -> None:
    check(STATEMENT, case)


LINES = st.sampled_from(
    [
        "def f(m):",
        "    for x in m:",
        "        y = m(x)",
        "        t += y.item()",
        "    return t",
        "",
        "# c",
        "y = m(x)",
        "\x0c",
    ]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 9), st.sampled_from([EVALUATION, STATEMENT]))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int, table: dict[str, str]) -> None:
    keeps_its_promise(table, "\n".join(["import torch", *rows, ""]), line)
