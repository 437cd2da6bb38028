"""SQL over a Profile: exact values, one clear line for every mistake, and no silence about what was not measured."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from gpudoctor import ingest
from gpudoctor import profile as schema
from gpudoctor.cli import app
from gpudoctor.errors import UsageError
from gpudoctor.profile import TABLES, Profile
from gpudoctor.query import ask, overview

BIG = 2**53 + 1
"""An integer that no float64 holds."""


def profile() -> Profile:
    steps = [{"step": 0, "dur_ns": BIG}, {"step": 1, "dur_ns": None}, {"step": 2, "dur_ns": 7, "warmup": True}]
    ops = [
        {"op": 0, "name": 'a "quoted", name', "self_ns": 5},
        {"op": 1, "name": "[red]two\nlines\x1b[31m", "self_ns": 6},
    ]
    tables = {
        "steps": schema.frame("steps", steps),
        "ops": schema.frame("ops", ops),
        "kernels": schema.empty("kernels"),
    }
    return Profile(tables, why_missing={"batches": "no DataLoader was used"})


def test_integers_are_exact_and_nulls_stay_nulls() -> None:
    answer = ask(profile(), "select step, dur_ns, warmup from steps order by step")
    assert answer.records == [
        {"step": 0, "dur_ns": BIG, "warmup": None},
        {"step": 1, "dur_ns": None, "warmup": None},
        {"step": 2, "dur_ns": 7, "warmup": True},
    ]
    frame = answer.frame()
    assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "Int64", "boolean"]
    assert frame["dur_ns"][0] == BIG
    assert frame["dur_ns"].isna().tolist() == [False, True, False]


def test_the_api_gives_a_frame_whose_columns_are_there_without_rows() -> None:
    frame = profile().sql("select name, self_ns * 1.5 as cost from ops where self_ns > 100")
    assert isinstance(frame, pd.DataFrame)
    assert (list(frame.columns), len(frame)) == (["name", "cost"], 0)
    assert profile().sql("select sum(self_ns) as s, avg(self_ns) as a from ops").to_dict("records") == [
        {"s": 11, "a": 5.5}
    ]


def test_a_common_table_expression_may_have_any_name_and_tables_any_case() -> None:
    assert ask(profile(), "with batches as (select 1 as x) select x from batches").unmeasured == {}
    assert ask(profile(), "SELECT count(*) AS n FROM Ops o JOIN STEPS s ON o.op = s.step").rows == [[2]]


def test_a_table_that_was_not_measured_is_named_with_its_reason_and_an_empty_one_is_not() -> None:
    answer = ask(profile(), "select (select count(*) from batches) as b, (select count(*) from kernels) as k")
    assert answer.rows == [[0, 0]]
    assert list(answer.unmeasured) == ["batches"]
    assert answer.unmeasured["batches"].startswith("no DataLoader was used; ")


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("select * from kernel", "no table 'kernel'; did you mean 'kernels'?"),
        ("select * from xyzzy", "no table 'xyzzy'; the tables are steps, ops"),
        ("select durns from steps", "no column 'durns' in steps; did you mean 'dur_ns'?"),
        ("select s.xyzzy from steps s", "no column 'xyzzy' in steps; the columns are step, start_ns"),
        ("selec step from steps", "cannot be parsed"),
        ("", "0 statements"),
        ("select 1 as a; select 2 as b", "2 statements; one SELECT"),
        ("delete from steps", "DELETE statement; one SELECT"),
        ("select * from read_csv('x.csv')", "read_csv"),
        ("select * from 'x.parquet'", "no table 'x.parquet'"),
        ("select now() as t", "now()"),
        ("select step from steps where step > $limit", "$limit"),
        ("select step, step from steps", "two columns of the same name"),
        ("select name + 1 as x from ops", "fails"),
        ("select count(*) as n from range(100000000000) a, range(100000) b", "was stopped after"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_change(sql: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpudoctor.query.TIMEOUT_S", 0.3)
    with pytest.raises(UsageError) as caught:
        ask(profile(), sql)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "rule" not in str(caught.value)


def test_the_overview_lists_every_table_measured_or_not() -> None:
    rows = {row["table"]: row for row in overview(profile())}
    assert list(rows) == list(TABLES)
    assert (rows["steps"]["rows"], rows["kernels"]["rows"], rows["batches"]["rows"]) == (3, 0, None)
    assert rows["steps"]["not_measured"] is None
    assert rows["batches"]["not_measured"].startswith("no DataLoader was used")


# -- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `gpudoctor query` on `profile()`: (stdout, stderr)."""
    monkeypatch.setattr(ingest, "open_path", lambda path: profile())

    def run(*words: str) -> tuple[str, str]:
        result = CliRunner().invoke(app, ["query", "anything", *words], catch_exceptions=False, standalone_mode=False)
        assert result.return_value == 0
        return result.stdout, result.stderr

    return run


def test_json_is_a_list_of_objects(command: Any) -> None:
    out, err = command("select step, dur_ns from steps order by step", "--output-format", "json")
    assert json.loads(out) == [{"step": 0, "dur_ns": BIG}, {"step": 1, "dur_ns": None}, {"step": 2, "dur_ns": 7}]
    assert err == ""
    assert json.loads(command("select step from steps where step > 9", "--output-format", "json")[0]) == []


def test_csv_has_a_header_and_quotes_what_needs_it(command: Any) -> None:
    out, _ = command("select name, self_ns, null as x from ops order by op", "--output-format", "csv")
    assert list(csv.reader(io.StringIO(out))) == [
        ["name", "self_ns", "x"],
        ['a "quoted", name', "5", ""],
        ["[red]two\nlines\x1b[31m", "6", ""],
    ]
    assert command("select name from ops where op > 9", "--output-format", "csv")[0] == "name\n"


def test_a_table_without_a_terminal_is_plain_aligned_text_that_hides_nothing(command: Any) -> None:
    out, _ = command("select name, self_ns, null as x from ops order by op")
    assert out.splitlines() == [
        "name                    self_ns  x",
        'a "quoted", name              5  null',
        "[red]two lines\\x1b[31m        6  null",
    ]


def test_without_sql_the_tables_are_listed_and_schema_lists_columns(command: Any) -> None:
    out, _ = command()
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(lines) == {"table", *TABLES}
    assert lines["steps"].split(None, 2)[1:] == ["3", "one training step"]
    assert "not measured" in lines["batches"]
    out, err = command("--schema", "BATCHES")
    assert [line.split()[0] for line in out.splitlines()] == ["column", *TABLES["batches"].names]
    assert err.startswith("gpudoctor: batches was not measured: no DataLoader was used; ")
    columns = json.loads(command("--schema", "steps", "--output-format", "json")[0])
    assert columns[0] == {"column": "step", "type": "int", "meaning": TABLES["steps"].columns[0].doc}


def test_what_was_not_measured_is_said_on_standard_error(command: Any) -> None:
    out, err = command("select count(*) as n from batches", "--output-format", "json")
    assert json.loads(out) == [{"n": 0}]
    assert err.startswith("gpudoctor: batches was not measured: no DataLoader was used; ")


def test_a_trace_can_be_asked(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1.5, "dur": 2.25}
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": [event]}))
    frame = ingest.open_path(tmp_path / "t.json").sql("select name, dur_ns from ops")
    assert frame.to_dict("records") == [{"name": "aten::mm", "dur_ns": 2250}]
