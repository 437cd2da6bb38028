from __future__ import annotations

import ast

import pytest

from gpudoctor.analysis import carried


def names(body: str, head: str = "for t in range(n):") -> tuple[str, ...]:
    (loop,) = ast.parse(f"{head}\n" + "\n".join(f"    {line}" for line in body.splitlines())).body
    assert isinstance(loop, ast.For | ast.While)
    return carried.names(loop)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("h = cell(x[:, t], h)\nout.append(h)", ("h",)),
        ("h, c = cell(x[:, t], (h, c))", ("c", "h")),
        ("self.h = self.cell(x[:, t], self.h)", ("self.h",)),
        ("lg = m(tok, h)\ntok = lg.argmax(1)", ("tok",)),
        ("out[:, t] = f(out[:, t - 1])", ("out",)),
        ("outs.append(f(outs[-1]))", ("outs",)),
        ("toks = torch.cat([toks, f(toks)[-1:]])", ("toks",)),
        ("acc = acc + state\nstate = state * d + x[t]", ("state",)),
        ("h *= a[t]\nh += b[t]", ("h",)),
        ("if t:\n    y = f(last)\nlast = x[t]", ("last",)),
        ("hs[0] = f(x[t], hs[0])", ("hs",)),
    ],
)
def test_a_recurrence_names_what_it_carries(body: str, expected: tuple[str, ...]) -> None:
    assert names(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "y = x[:, t]\nout.append(y * 2)\ntotal += y.sum()",
        "total = total + f(x[t])\ncount = count + 1",
        "out[:, t] = f(out[:, t]) + x[:, t]",
        "out = torch.cat([out, f(x[t])])",
        "best = torch.maximum(best, x[:, t])",
        "if a:\n    z = x[t]\nelse:\n    z = x[0]\nw = z * 2",
        "with no_grad():\n    z = x[t]\nw = z * 2",
        "grid[i] += x[t]",
        "t = t + 1\ny = x[t]",
        "f = lambda y: y + 1\nout.append(f(x[t]))",
        "for k in range(3):\n    y = g(x[t], k)\n    out.append(y)",
    ],
)
def test_sums_pieces_and_names_made_anew_are_no_recurrence(body: str) -> None:
    assert names(body) == ()


def test_a_while_loop_that_feeds_itself() -> None:
    assert names("x = f(x)", "while busy:") == ("x",)
