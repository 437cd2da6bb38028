"""Attention that is written out becomes one call, and computes the same."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, edit, ids, keeps_its_promise

SDPA = {"kind": "sdpa"}
HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n"
NAME = "F.scaled_dot_product_attention"

# statements of a function of q, k, v, mask (1 takes part) and bias; the call that they must become
FORMS = {
    "default scale": ("s = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))\np = s.softmax(dim=-1)\nout = p @ v", ""),
    "power": ("s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5\np = s.softmax(-1)\nout = p @ v", ""),
    "no scale": ("s = q @ k.mT\np = torch.softmax(s, -1)\nout = torch.matmul(p, v)", ", scale=1.0"),
    "a dimension": ("s = q @ k.mT / math.sqrt(d)\np = F.softmax(s, dim=-1)\nout = p @ v", ", scale=1.0 / math.sqrt(d)"),
    "half a power": ("s = q @ k.mT / d ** 0.5\np = F.softmax(s, dim=-1)\nout = p @ v", ", scale=1.0 / d ** 0.5"),
    "a quotient": ("s = q @ k.mT / (d / 2)\np = F.softmax(s, dim=-1)\nout = p @ v", ", scale=1.0 / (d / 2)"),
    "einsum": (
        "s = torch.einsum('bhqd,bhkd->bhqk', q, k) * 0.5\np = s.softmax(-1)\n"
        "out = torch.einsum('bhqk, bhkd -> bhqd', p, v)",
        ", scale=0.5",
    ),
    "einsum with dots": ("s = torch.einsum('...id,...jd->...ij', q, k)\np = s.softmax(-1)\nout = p @ v", ", scale=1.0"),
    "in one line": ("p = (q @ k.transpose(-2, -1) * 0.25).softmax(dim=-1)\nout = p @ v", ", scale=0.25"),
    "step by step": (
        "s = torch.matmul(q, k.permute(0, 1, 3, 2))\ns = s / math.sqrt(d)\ns = s + bias\n"
        "s = F.softmax(s, dim=-1)\nout = s @ v",
        ", attn_mask=bias, scale=1.0 / math.sqrt(d)",
    ),
    "in place": (
        "s = q @ k.mT\ns *= 0.5\ns += bias\np = s.softmax(-1)\nout = p @ v",
        ", attn_mask=bias, scale=0.5",
    ),
    "mask of zeros": (
        's = q @ k.mT * 0.5\ns = s.masked_fill(mask == 0, float("-inf"))\np = s.softmax(-1)\nout = p @ v',
        ", attn_mask=mask != 0, scale=0.5",
    ),
    "inverted mask": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(~mask, -math.inf)\np = s.softmax(-1)\nout = p @ v",
        ", attn_mask=mask, scale=0.5",
    ),
    "hidden positions": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(hidden, -float('inf'))\np = s.softmax(-1)\nout = p @ v",
        ", attn_mask=~hidden, scale=0.5",
    ),
    "sliced mask": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(tril[:t, :t] == 0, float('-inf'))\np = s.softmax(-1)\nout = p @ v",
        ", attn_mask=tril[:t, :t] != 0, scale=0.5",
    ),
    "causal mask of floats": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(torch.tril(torch.ones(t, t)) == 0, float('-inf'))\n"
        "p = s.softmax(-1)\nout = p @ v",
        ", is_causal=True, scale=0.5",
    ),
    "causal positions that are hidden": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(torch.triu(torch.ones(t, t), diagonal=1).bool(), -math.inf)\n"
        "p = s.softmax(-1)\nout = p @ v",
        ", is_causal=True, scale=0.5",
    ),
    "a triangle one further": (
        "s = q @ k.mT * 0.5\ns = s.masked_fill(torch.tril(torch.ones(t, t), diagonal=1) == 0, -math.inf)\n"
        "p = s.softmax(-1)\nout = p @ v",
        ", attn_mask=torch.tril(torch.ones(t, t), diagonal=1) != 0, scale=0.5",
    ),
    "dropout that is off": (
        "s = q @ k.mT * 0.5\np = s.softmax(-1)\np = F.dropout(p, p=0.3, training=training)\nout = p @ v",
        ", dropout_p=0.3 if training else 0.0, scale=0.5",
    ),
    "dropout for inference": (
        "s = q @ k.mT * 0.5\np = F.dropout(s.softmax(-1), 0.3, False)\nout = p @ v",
        ", scale=0.5",
    ),
}


def inputs() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 8, generator=generator) for _ in range(3))
    tril = torch.tril(torch.ones(5, 5)).bool()
    mask = tril.expand(2, 1, 5, 5)
    bias = torch.randn(5, 5, generator=generator)
    more = {"mask": mask, "hidden": ~mask, "bias": bias, "tril": tril, "t": 5, "d": 8, "training": False}
    return {"q": q, "k": k, "v": v, "math": math, "torch": torch, "F": F, **more}


@pytest.mark.parametrize("name", FORMS)
def test_the_call_computes_the_same(name: str) -> None:
    text, more = FORMS[name]
    body = "".join(f"    {row}\n" for row in text.split("\n"))
    before = f"{HEAD}def f(q, k, v):\n{body}    return out\n"
    after = f"{HEAD}def f(q, k, v):\n    out = {NAME}(q, k, v{more})\n    return out\n"
    for line in range(5, 5 + text.count("\n") + 1):
        check(SDPA, Case(name, before, line, after))
    old, new = inputs(), inputs()
    exec(text, old)
    exec(f"out = {NAME}(q, k, v{more})", new)
    torch.testing.assert_close(new["out"], old["out"])


CLASS = (
    HEAD
    + """\
class Attention(torch.nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.scale = d ** -0.5
        self.drop = torch.nn.Dropout(p)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        # (batch, heads, time, time)
        att = (q @ k.transpose(-2, -1)) * self.scale  # scores
        att = att.softmax(dim=-1)
        # weights
        att = self.drop(att)
        x = (att @ v).transpose(1, 2).reshape(x.shape)
        return self.proj(x)
"""
)
START, END = CLASS.index("        att = (q"), CLASS.index(".transpose(1, 2)")
DONE = (
    CLASS[:START]
    + "        # weights\n"
    + f"        x = {NAME}(q, k, v, dropout_p=self.drop.p if self.training else 0.0, scale=self.scale)"
    + CLASS[END:]
)
PLAIN = "def f(q, k, v):\n    s = q @ k.mT * 0.5\n    p = s.softmax(-1)\n    return p @ v\n"
GIVEN = HEAD + PLAIN.replace("    s =", "    mask = {mask}\n    s =").replace(
    "    p =", "    s = s.masked_fill({hidden}, float('-inf'))\n    p ="
)


def masked(name: str, mask: str, hidden: str, argument: str) -> Case:
    """A mask that the function makes before the product, and what the call is given."""
    before = GIVEN.format(mask=mask, hidden=hidden)
    after = f"{HEAD}def f(q, k, v):\n    mask = {mask}\n    return {NAME}(q, k, v, {argument}, scale=0.5)\n"
    return Case(name, before, 7, after)


BUFFER = (
    HEAD
    + """\
class Attention(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("bias", torch.tril(torch.ones(n, n)).view(1, 1, n, n))

    def forward(self, q, k, v, T):
"""
)
SELF = (
    "        att = q @ k.mT * 0.5\n        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float('-inf'))\n"
    "        att = F.softmax(att, dim=-1)\n        return att @ v\n"
)
CASES = [
    Case("a causal buffer", BUFFER + SELF, 11, f"{BUFFER}        return {NAME}(q, k, v, is_causal=True, scale=0.5)\n"),
    Case(
        "a causal buffer over cached keys",
        BUFFER + "        k = torch.cat((self.kept, k), 2)\n" + SELF,
        12,
        f"{BUFFER}        k = torch.cat((self.kept, k), 2)\n"
        f"        return {NAME}(q, k, v, attn_mask=self.bias[:, :, :T, :T] != 0, scale=0.5)\n",
    ),
    masked("a causal mask of floats", "torch.tril(torch.ones(T, T))", "mask == 0", "is_causal=True"),
    masked("a causal mask of booleans", "torch.ones(T, T, dtype=torch.bool).tril()", "~mask", "is_causal=True"),
    masked("hidden positions", "torch.triu(torch.ones(T, T), 1) != 0", "mask", "attn_mask=~mask"),
    masked("hidden positions of a triangle", "torch.triu(torch.ones(T, T), 1).bool()", "mask", "is_causal=True"),
    masked("no square", "torch.tril(torch.ones(T, S))", "mask == 0", "attn_mask=mask != 0"),
    masked(
        "a triangle in the wrong place", "torch.tril(torch.ones(T, T))[:, None]", "mask == 0", "attn_mask=mask != 0"
    ),
    masked("another triangle", "torch.triu(torch.ones(T, T))", "mask == 0", "attn_mask=mask != 0"),
    Case("a module", CLASS, 14, DONE),
    Case("returned", HEAD + PLAIN, 6, f"{HEAD}def f(q, k, v):\n    return {NAME}(q, k, v, scale=0.5)\n"),
    Case(
        "only torch is imported",
        "import torch\n" + PLAIN,
        3,
        "import torch\ndef f(q, k, v):\n"
        "    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.5)\n",
    ),
    Case("torch is not imported", "import math\n" + PLAIN, 3),
    Case("the weights are returned too", HEAD + PLAIN.replace("return p @ v", "return p @ v, p"), 6),
    Case("the scores are used later", HEAD + PLAIN.replace("return p @ v", "o = p @ v\n    return o + s.sum()"), 6),
    Case(
        "the scores hide themselves",
        HEAD + PLAIN.replace("    p =", "    s = s.masked_fill(s == 0, -math.inf)\n    p ="),
        6,
    ),
    Case("a hook between", HEAD + PLAIN.replace("    p =", "    log(s)\n    p ="), 6),
    Case("another dimension", HEAD + PLAIN.replace("softmax(-1)", "softmax(1)"), 6),
    Case("another dtype", HEAD + PLAIN.replace("softmax(-1)", "softmax(-1, dtype=torch.float32)"), 6),
    Case("large negative numbers", HEAD + PLAIN.replace("    p =", "    s = s.masked_fill(m == 0, -1e9)\n    p ="), 6),
    Case("a learned scale", HEAD + PLAIN.replace("0.5", "self.temperature"), 6),
    Case(
        "part of a learned scale",
        HEAD + PLAIN.replace("0.5", "(tau / 2)").replace("    s =", "    tau = torch.ones(())\n    s ="),
        7,
    ),
    Case("the width of another tensor", HEAD + PLAIN.replace("* 0.5", "/ math.sqrt(v.size(-1))"), 6),
    Case("a scale that is passed in", HEAD + PLAIN.replace("0.5", "scale").replace("v)", "v, scale)"), 6),
    Case("dimensions of unknown place", HEAD + PLAIN.replace("k.mT", "k.transpose(1, 2)"), 6),
    Case("einsum of another layout", HEAD + PLAIN.replace("q @ k.mT", "torch.einsum('bqhd,bkhd->bhqk', q, k)"), 6),
    Case("einsum that is no product", HEAD + PLAIN.replace("q @ k.mT", "torch.einsum('bhqd,bhqd->bhqq', q, k)"), 6),
    Case("einsum of queries and values", HEAD + PLAIN.replace("p @ v", "torch.einsum('bhqk,bhdk->bhqd', p, v)"), 6),
    Case("keys turned before", HEAD + PLAIN.replace("k.mT", "k"), 6),
    Case("another module", CLASS.replace("torch.nn.Dropout(p)", "Gate(p)"), 14),
    Case(
        "a dropout that is set twice", CLASS.replace("    def forward", "        self.drop = x\n\n    def forward"), 15
    ),
    Case("a scale that changes", CLASS.replace("    def forward", "        self.scale *= w\n\n    def forward"), 15),
    Case("no softmax", HEAD + PLAIN.replace("s.softmax(-1)", "s.relu()"), 6),
    Case("calls for inputs", HEAD + PLAIN.replace("q @", "norm(q) @"), 6),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_only_forms_that_are_certain_are_replaced(case: Case) -> None:
    check(SDPA, case)


LINES = st.sampled_from(
    [
        "s = q @ k.mT",
        "s = s * 0.5",
        "s = s + m",
        "p = s.softmax(-1)",
        "s = s.softmax(-1)",
        "o = p @ v",
        "o = s @ v",
        "",
        "# c",
    ]
)


@given(st.lists(LINES, max_size=8), st.integers(1, 10))
def test_any_text_keeps_its_other_lines(rows: list[str], line: int) -> None:
    keeps_its_promise(SDPA, "\n".join(["import torch", *rows, ""]), line)


def test_an_edit_that_is_made_twice_finds_nothing_more() -> None:
    text = edit(SDPA, HEAD + PLAIN, 6)
    check(SDPA, Case("again", text, 5))
