"""`with gpudoctor.record()` in a notebook that a real kernel runs: lines are those of cells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = {
    "setup": """import torch, torch.nn as nn, gpudoctor
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)""",
    "step": """def step():
    opt.zero_grad()
    loss = net(torch.randn(4, 8)).square().mean()
    loss.backward(); opt.step()
    return loss.item()""",
    "record": """with gpudoctor.record() as session:
    for i in range(20):
        step()
    print(session._repr_html_())
session.diagnosis""",
    "facts": """for f in session.diagnosis.findings:
    print(f.rule, f.where, "|", *[line.text for line in f.excerpt if line.culprit])
print(session.diagnosis.run.steps, session.report().name)""",
    "again": """with gpudoctor.record() as session:
    for i in range(20):
        step()
    print(session._repr_html_())
session.diagnosis""",
    "after": """print(session.diagnosis.run.steps, [str(f.where) for f in session.diagnosis.findings])""",
    "in the cell": """with gpudoctor.record() as session:
    for i in range(20):
        opt.zero_grad()
        net(torch.randn(4, 8)).square().mean().backward(); opt.step()
        if net.weight.sum() > 1e9:
            break
print([str(f.where) for f in session.diagnosis.findings])""",
    "compiled": """@torch.compile(backend="aot_eager")
def forward(x):
    y = net(x)
    print(end="")
    return y.relu()
with gpudoctor.record() as session:
    for i in range(16):
        opt.zero_grad(); forward(torch.randn(4, 8)).square().mean().backward(); opt.step()
print([(f.rule, str(f.where)) for f in session.diagnosis.findings])""",
    "fails": """with gpudoctor.record() as session:
    for i in range(20):
        step()
        if i == 15: raise KeyError("broken")""",
    "after it": """print(session.diagnosis.run.steps, session.diagnosis.run.stopped)
with gpudoctor.record() as session:
    for i in range(12): step()
print(session.diagnosis.run.steps)""",
    "magic": """%load_ext gpudoctor""",
    "magic cell": """%%gpudoctor seen
for i in range(20):
    step()""",
    "magic facts": """print(seen.diagnosis.run.steps, [str(f.where) for f in seen.diagnosis.findings])""",
}


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    folder = tmp_path_factory.mktemp("notebook")
    cells = [nbformat.v4.new_code_cell(code) for code in CELLS.values()]
    cells[list(CELLS).index("fails")].metadata["tags"] = ["raises-exception"]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        client.execute()
    yield {name: cell.outputs for name, cell in zip(CELLS, notebook.cells, strict=True)}


def printed(outputs: list[Any]) -> list[str]:
    return "".join(one["text"] for one in outputs if one.get("name") == "stdout").splitlines()


def errors(outputs: list[Any]) -> list[Any]:
    return [one for one in outputs if one.get("name") == "stderr" or one["output_type"] == "error"]


def test_a_finding_names_the_cell_and_its_line_and_shows_the_source(outputs: dict[str, list[Any]]) -> None:
    assert printed(outputs["facts"]) == ["GD301 cell 2 line 5 |     return loss.item()", "20 report.html"]


def test_the_diagnosis_is_shown_as_html(outputs: dict[str, list[Any]]) -> None:
    assert "still runs" in printed(outputs["record"])[0]
    (shown,) = [one["data"]["text/html"] for one in outputs["record"] if one["output_type"] == "execute_result"]
    assert "cell 2 line 5" in shown
    assert "A step takes" in shown
    assert "<script" not in shown
    assert len(shown) < 5000


def test_the_same_cell_runs_again(outputs: dict[str, list[Any]]) -> None:
    assert printed(outputs["after"]) == ["20 ['cell 2 line 5']"]


def test_the_loop_may_stand_in_the_cell_of_the_block(outputs: dict[str, list[Any]]) -> None:
    assert printed(outputs["in the cell"]) == ["['cell 7 line 5']"]


def test_a_graph_break_is_placed_in_its_cell(outputs: dict[str, list[Any]]) -> None:
    assert printed(outputs["compiled"]) == ["[('GD101', 'cell 8 line 4')]"]


def test_an_exception_passes_through_and_the_next_block_works(outputs: dict[str, list[Any]]) -> None:
    (error,) = errors(outputs["fails"])
    assert error["ename"] == "KeyError"
    assert printed(outputs["after it"]) == ["16 the block ended", "12"]


def test_the_cell_magic_observes_the_loop_of_its_cell(outputs: dict[str, list[Any]]) -> None:
    (shown,) = [one["data"]["text/html"] for one in outputs["magic cell"] if one["output_type"] == "execute_result"]
    assert "A step takes" in shown
    assert printed(outputs["magic facts"]) == ["20 ['cell 2 line 5']"]


def test_nothing_is_printed_beside(outputs: dict[str, list[Any]]) -> None:
    assert [errors(found) for name, found in outputs.items() if name != "fails"] == [[]] * (len(CELLS) - 1)
