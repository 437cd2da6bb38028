"""Which of several recorded processes is diagnosed, and why a torch.compile call had no effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.ingest import compile_effects
from gpudoctor.ingest.recording import judged
from gpudoctor.recording import Recording


@pytest.mark.parametrize(
    ("steps", "name"), [([1, 25], "rank1"), ([25, 25], "rank0"), ([24, 25], "rank0"), ([None, "x"], "rank0")]
)
def test_the_first_process_that_stepped_as_often_as_any_is_judged(tmp_path: Path, steps: list[Any], name: str) -> None:
    for number, seen in enumerate(steps):
        folder = tmp_path / f"rank{number}"
        folder.mkdir()
        (folder / "begun.json").write_text("{}", encoding="utf-8")
        (folder / "run.json").write_text(json.dumps({"steps": seen}), encoding="utf-8")
    assert judged(Recording(tmp_path, {})).name == name


def test_a_generator_is_named_as_one_and_every_break_on_a_line_given_up_is_marked() -> None:
    call = {"file": "train.py", "line": 5, "target_file": "train.py", "target_function": "chunks", "target": "chunks"}
    seen = {"file": "train.py", "line": 9, "function": None, "method": None, "generator": True}
    (row,) = compile_effects.rows([call], {"watched": True, "eager": [seen]}, [], [])
    assert (row["no_effect"], row["why_line"]) == ("generator", 9)
    breaks: list[dict[str, Any]] = [{"file": "a.py", "line": 3, "skipped": n == 0} for n in range(2)]
    compile_effects.mark(breaks, [{"no_effect": "skipped", "why_file": "a.py", "why_line": 3}])
    assert [one["whole"] for one in breaks] == [True, True]
