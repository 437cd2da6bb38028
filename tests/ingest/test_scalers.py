from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpudoctor.ingest import scalers, watch

SCALER = {"scaler": 0, "init_scale": 8.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}
STEPS: list[dict[str, Any]] = [{"step": n, "start_ns": 100 * n, "dur_ns": 100} for n in range(9)]


def log_of(*rows: list[Any], folder: Path) -> watch.WatchLog:
    path = folder / "watch.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return watch.read(path)


def outcomes(text: str, folder: Path, scaler: dict[str, Any] = SCALER) -> list[dict[str, Any]]:
    """Steps of one scaler: s is a skipped one."""
    rows = [["V", 100 * n + 50, 100 * n + 50, 0, letter == "s"] for n, letter in enumerate(text)]
    return scalers.steps(log_of(["A", scaler], *rows, folder=folder), STEPS)


def test_the_scale_halves_behind_a_skip_and_grows_behind_enough_steps_without(tmp_path: Path) -> None:
    rows = outcomes("s.ss....", tmp_path)
    assert [row["scale"] for row in rows] == [8, 4, 4, 2, 1, 1, 1, 2]
    assert [row["number"] for row in rows if row["grew"]] == [6]
    assert [row["step"] for row in rows] == list(range(8))


def test_a_scaler_whose_every_step_seems_skipped_drives_a_compiled_optimizer(tmp_path: Path) -> None:
    assert outcomes("ssss", tmp_path) == []


def test_a_scaler_that_was_made_earlier_has_no_scale(tmp_path: Path) -> None:
    rows = outcomes(".s.", tmp_path, {"scaler": 0, "init_scale": None})
    assert [(row["skipped"], row.get("scale")) for row in rows] == [(False, None), (True, None), (False, None)]


def test_backward_calls_know_whether_autocast_was_on(tmp_path: Path) -> None:
    site = {"file": "t.py", "line": 4, "function": "f", "autocast": "bfloat16"}
    log = log_of(["B", 110, 150, 1, False, False], ["B", 210, 260, 1, False, False, site], folder=tmp_path)
    plain, under = scalers.backward_calls(log, STEPS)
    assert (plain["step"], plain["dur_ns"], plain.get("autocast")) == (1, 40, None)
    assert (under["step"], under["line"], under["autocast"]) == (2, 4, "bfloat16")
    assert scalers.backward_calls(log, [])[0]["step"] is None
