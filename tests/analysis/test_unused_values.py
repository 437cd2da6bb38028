"""Statements whose value nothing reads and whose nodes backward never reached."""

from __future__ import annotations

from typing import Any

import pytest

from gpudoctor import profile as schema
from gpudoctor.analysis import unused_values


def op(number: int, line: int, **more: Any) -> dict[str, Any]:
    """A forward operator of the user's that makes autograd node `number`."""
    row = {"op": number, "name": "aten::mul", "start_ns": 100 * number, "dur_ns": 40, "step": 3, "thread": 1}
    row |= {"phase": "forward", "observation": "detail", "sequence": number, "file": "t.py", "line": line}
    return row | {"precision": "call", "parent": None, "forward_op": None, "module_path": None, "region": None} | more


def backward(of: int) -> dict[str, Any]:
    return op(100 + of, 1, phase="backward", sequence=of, forward_op=of, name="MulBackward0")


def found(source: str, *reached: int, ops: tuple[dict[str, Any], ...] = ()) -> list[tuple[int, str]]:
    """Unused statements of a source, each line of which ran one operator; `reached` are the lines backward came to."""
    count = source.count("\n") + 1
    rows = list(ops) or [op(line, line) for line in range(1, count + 1)]
    rows += [op(count + 1, 0), *(backward(line) for line in reached)]
    made = unused_values.rows(schema.frame("ops", rows), {"t.py": source})
    return list(zip(made["line"].tolist(), made["names"].tolist(), strict=True))


def test_a_loss_that_is_never_added() -> None:
    assert found("out = net * x\nloss = out * 2\naux = out * 3\nloss.backward()", 1, 2) == [(3, "aux")]


def test_what_only_unused_values_read_is_unused_as_well() -> None:
    assert found("a = x * 1\nb = a * 2\nc = b * 3\nloss = x * 4\nloss.backward()", 4) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    "use",
    [
        "print(aux)",
        "log['aux'] = aux",
        "text = f'{aux:.2f}'",
        "def f(): return aux",
        "total = locals()",
        "seen.append(aux)",
        "if aux: pass",
    ],
)
def test_a_value_that_something_reads_is_used(use: str) -> None:
    assert found(f"loss = x * 2\naux = x * 3\nloss.backward()\n{use}", 1, 4) == []


def test_a_returned_value_is_used() -> None:
    assert found("def f(x):\n    aux = x * 2\n    return aux", 3) == []


def test_the_same_name_in_another_function_is_another() -> None:
    assert found("def f(x):\n    aux = x * 2\n    return x\ndef g(aux):\n    return aux", 3) == [(2, "aux")]


@pytest.mark.parametrize(
    "statement",
    ["_ = x * 2", "log[0] = x * 2", "self.last = x * 2", "x * 2", "a, b = x * 2; print(b)", "global a; a = x"],
)
def test_what_may_be_wanted_is_not_judged(statement: str) -> None:
    assert found(f"{statement}\nloss = x * 1", 2) == []


def test_what_backward_reached_is_used() -> None:
    assert found("aux = x * 2", 1) == []


def test_a_module_that_the_statement_calls_counts_with_its_operators() -> None:
    source = "def forward(self, x):\n    recon = self.decoder(x)\n    return x"
    inside = (
        op(1, 30, file="other.py", module_path="net.decoder", dur_ns=500),
        op(2, 31, file="other.py", module_path="net.decoder.out", dur_ns=300),
    )
    made = unused_values.rows(schema.frame("ops", [*inside, op(3, 3)]), {"t.py": source})
    assert made[["line", "names", "dur_ns", "nodes"]].values.tolist() == [[2, "recon", 800, 2]]
    assert found(source, 2, ops=inside) == []


def test_running_statistics_are_wanted() -> None:
    assert found("aux = bn(x)\nloss = x * 1", 2, ops=(op(1, 1, name="aten::batch_norm"), op(2, 2))) == []


def test_no_operators_no_rows() -> None:
    assert len(unused_values.rows(schema.frame("ops", []), {})) == 0
