"""Lines of light steps: taken from the detail steps where that is certain, null elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpudoctor import columns
from gpudoctor import profile as schema
from gpudoctor.ingest import light_lines, open_path
from tests.synthetic import BFLOAT16, LONG, Tensor, Torch, recording

Call = tuple[str, int | None] | tuple[str, int | None, str]


def step(observation: str, *calls: Call) -> tuple[str, tuple[Call, ...]]:
    """A step's calls: operator, line in a detail step, module."""
    return observation, calls


def filled(*steps: tuple[str, tuple[Call, ...]]) -> list[pd.DataFrame]:
    """The rows of `ops`, step by step; each operator launched a kernel, and the kernels have the same lines."""
    rows: list[dict[str, Any]] = []
    for number, (observation, calls) in enumerate(steps):
        outer: int | None = None
        for at, (name, line, *module) in enumerate(calls):
            known = line is not None
            row: dict[str, Any] = {"op": len(rows), "name": name.strip(), "start_ns": at, "step": number, "thread": 1}
            inside = name.startswith(" ")
            outer = outer if inside else len(rows)
            row |= {"parent": outer if inside else None, "depth": int(inside), "observation": observation}
            row |= {"file": "t.py" if known else None, "line": line, "precision": "call" if known else None}
            row |= {"function": "f" if known else None, "module": None, "owner": "user" if known else None}
            row |= {"module_path": module[0] if module else None, "caller_file": None, "caller_function": None}
            rows.append(row)
    given = columns.of_rows(rows)
    for name in ("file", *light_lines.DETAILS):
        if not isinstance(given[name], columns.Coded):  # nothing but nulls
            given[name] = columns.coded(np.full(len(rows), -1), [])
    kernels = {"kernel": given["op"], "op": given["op"], "file": given["file"], "line": given["line"]}
    light_lines.fill(tables := {"ops": given, "kernels": kernels})
    ops, launched = (schema.from_columns(name, tables[name]) for name in ("ops", "kernels"))
    assert launched["line"].equals(ops["line"])
    return [part.reset_index(drop=True) for _, part in ops.groupby("step")]


def lines(rows: pd.DataFrame) -> list[int | None]:
    return [None if pd.isna(line) else int(line) for line in rows["line"]]


def unknown(*calls: Call) -> tuple[Call, ...]:
    return tuple((name, None) for name, *_ in calls)


BLOCK: tuple[Call, ...] = tuple((f"aten::op{number}", 10 + number) for number in range(12))
"""Twelve different operators, a line each."""


def test_equal_steps_are_matched_by_position_even_where_operators_repeat() -> None:
    calls: tuple[Call, ...] = (("aten::mul", 3), ("aten::mul", 4), ("aten::mul", 3), ("aten::item", 9))
    detail, light = filled(step("detail", *calls), step("light", *unknown(*calls)))
    assert lines(light) == lines(detail) == [3, 4, 3, 9]
    assert light[["file", "function", "precision", "owner"]].drop_duplicates().to_numpy().tolist() == [
        ["t.py", "f", "call", "user"]
    ]


def test_what_only_a_detail_step_records_moves_nothing() -> None:
    detail = step("detail", ("aten::mul", 3), ("Tensor.cpu", 5), (" aten::to", 5), ("aten::mul", 6))
    assert lines(filled(detail, step("light", ("aten::mul", None), ("aten::to", None), ("aten::mul", None)))[1]) == [
        3,
        5,
        6,
    ]


def test_nesting_counts() -> None:
    detail = step("detail", ("aten::linear", 3), (" aten::mm", 3), ("aten::mm", 4))
    light = step("light", ("aten::linear", None), ("aten::mm", None), (" aten::mm", None))
    assert lines(filled(detail, light)[1]) == [None, None, None]


def test_a_step_that_does_more_has_the_lines_of_what_it_does_too() -> None:
    more = (*BLOCK, ("aten::log", None), *((name, line) for name, line, *_ in BLOCK[::-1]))
    light = filled(step("detail", *BLOCK, *BLOCK[::-1]), step("light", *unknown(*more)))[1]
    known = [line for _, line, *_ in BLOCK]
    near = len(known) - 5
    assert lines(light)[:near] == known[:near]
    assert lines(light)[-near:] == known[::-1][-near:]
    assert lines(light)[len(known)] is None


def test_more_repetitions_than_a_detail_step_has_are_nobodys() -> None:
    reads: tuple[Call, ...] = (("aten::item", 7),) * 30
    light = filled(step("detail", *BLOCK, *reads), step("light", *unknown(*BLOCK, *reads, *reads)))[1]
    found = lines(light)
    assert found[:7] == [line for _, line, *_ in BLOCK][:7]
    assert found[30:50] == [None] * 20


def test_what_detail_steps_disagree_about_stays_null() -> None:
    one = step("detail", ("aten::a", 1), ("aten::item", 5), ("aten::b", 2))
    other = step("detail", ("aten::a", 1), ("aten::item", 8), ("aten::b", 2))
    light = step("light", ("aten::a", None), ("aten::item", None), ("aten::b", None))
    assert lines(filled(one, other, light)[2]) == [1, None, 2]


def test_a_line_that_several_modules_run_is_known_without_the_module() -> None:
    layers: tuple[Call, ...] = (("aten::mm", 5, "layers.0"), ("aten::mm", 5, "layers.1"))
    same = filled(step("detail", *layers), step("light", *unknown(*layers)))[1]
    assert same["module_path"].tolist() == ["layers.0", "layers.1"]
    swapped = filled(step("detail", *layers), step("detail", *layers[::-1]), step("light", *unknown(*layers)))[2]
    assert lines(swapped) == [5, 5]
    assert swapped["module_path"].isna().all()


@pytest.mark.parametrize("observation", ["light", "detail"])
def test_a_recording_of_one_kind_of_step_stays_as_it_is(observation: str) -> None:
    assert lines(filled(step(observation, ("aten::a", 1), ("aten::b", None)))[0]) == [1, None]


def train(torch: Torch) -> None:
    """Reads its loss in every fourth step, and a tensor of another size in every fifth."""
    weights = [Tensor((512, 512), BFLOAT16, parameter=True) for _ in range(6)]
    optimizer = torch.AdamW(weights, style="fused")
    for number, (x, _) in enumerate(torch.DataLoader([((64, 512), BFLOAT16), ((64,), LONG)])):
        x = torch.cuda(x, non_blocking=True)
        for weight in weights:
            x = torch.linear(x, weight)
        if number % 5 == 1:
            x = torch.pointwise("relu", x)
        loss = torch.reduce("mean", x)
        optimizer.zero_grad()
        torch.backward(loss)
        if number % 4 == 0:
            torch.item(loss)
        torch.pointwise("mul", loss)
        torch.item(loss)
        optimizer.step()


def test_lines_of_a_recording_are_true_wherever_they_are_known(tmp_path: Path) -> None:
    run = recording(train, tmp_path / "run")
    calls = open_path(tmp_path / "run").tables["runtime_calls"]
    light = calls[calls["step"].isin([step.number for step in run.steps if step.label == "light"])]
    truth = {call.correlation: call.place for call in run.calls if call.place is not None}
    said = [(int(c), None if pd.isna(n) else int(n)) for c, n in zip(light["correlation"], light["line"], strict=True)]
    known = [(line, truth[correlation].line) for correlation, line in said if correlation in truth and line is not None]
    assert [line for line, _ in known] == [line for _, line in known]
    assert len(known) >= 0.9 * sum(correlation in truth for correlation, _ in said)
