from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpudoctor.engine import sandbox as sandbox_module
from gpudoctor.engine.sandbox import RuleLimitError, Sandbox
from gpudoctor.errors import RuleError
from gpudoctor.profile import Profile, frame

BIG = 2**62 + 1


def sandbox(rows: Sequence[dict[str, Any]] = ({"step": 0, "dur_ns": 5},), **limits: Any) -> Sandbox:
    return Sandbox(Profile({"steps": frame("steps", rows)}), **limits)


def query(
    sql: str, tables: tuple[str, ...] = ("steps",), parameters: dict[str, Any] | None = None, **limits: Any
) -> Any:
    return sandbox(**limits).query(sql, tables, parameters or {}, "XY001 (rule.md)")


def test_large_integers_stay_exact_beside_nulls() -> None:
    rows = sandbox([{"dur_ns": BIG}, {"dur_ns": None}]).query("SELECT dur_ns FROM steps", ("steps",), {}, "x")
    assert rows == [{"dur_ns": BIG}, {"dur_ns": None}]
    assert type(rows[0]["dur_ns"]) is int


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=5))
@settings(max_examples=20, deadline=None)
def test_every_integer_survives_the_round_trip(values: list[int | None]) -> None:
    rows = sandbox([{"dur_ns": value} for value in values]).query("SELECT dur_ns FROM steps", ("steps",), {}, "x")
    assert [row["dur_ns"] for row in rows] == values


def test_values_come_back_as_plain_python() -> None:
    sql = (
        "SELECT sum(dur_ns) AS i, avg(dur_ns) AS f, 1.5::DECIMAL(4, 2) AS d, true AS b, 'é' AS s, NULL AS n, "
        "[{'file': 'a', 'line': 1}, NULL] AS l, 1 / 0 AS z FROM steps"
    )
    row = query(sql)[0]
    assert row == {
        "i": 5,
        "f": 5.0,
        "d": 1.5,
        "b": True,
        "s": "é",
        "n": None,
        "l": [{"file": "a", "line": 1}, None],
        "z": None,
    }
    assert [type(row[name]) for name in "ifdbs"] == [int, float, float, bool, str]


def test_division_by_zero_is_null() -> None:
    assert query(
        "SELECT 7 // (dur_ns - 5) AS whole, 7 % (dur_ns - 5) AS rest, 7 / (dur_ns - 5) AS share FROM steps"
    ) == [{"whole": None, "rest": None, "share": None}]


def test_a_table_that_was_not_measured_is_empty_with_its_columns() -> None:
    assert query("SELECT count(*) AS n, sum(dur_ns) AS s FROM kernels", ("kernels",)) == [{"n": 0, "s": None}]


def test_only_the_parameters_that_the_query_names_are_passed() -> None:
    assert query("SELECT $a + 1 AS x", parameters={"a": 1, "b": 2}) == [{"x": 2}]
    with pytest.raises(RuleError, match=r"\$c"):
        query("SELECT $c AS x")


REFUSED = {
    "a file by name": "SELECT * FROM '/etc/passwd'",
    "a csv by name": "SELECT * FROM 'data.csv'",
    "a quoted file": 'SELECT * FROM "data.parquet"',
    "a file behind a CTE of that name": 'WITH "f.csv" AS (SELECT 1) SELECT * FROM "f.csv"',
    "read_csv": "SELECT * FROM read_csv('/etc/passwd')",
    "read_text in capitals": "SELECT * FROM READ_TEXT('/etc/passwd')",
    "read_blob": "SELECT * FROM read_blob('/etc/passwd')",
    "sniff_csv": "FROM sniff_csv('/etc/passwd')",
    "parquet": "FROM parquet_scan('x.parquet')",
    "glob": "SELECT * FROM glob('*')",
    "a function in a subquery": "SELECT (SELECT count(*) FROM read_text('/etc/passwd')) AS n",
    "a function behind a comment": "SELECT * FROM /* x */ \"read_csv\"/**/('a')",
    "copy to": "COPY steps TO 'out.csv'",
    "copy from": "COPY steps FROM 'in.csv'",
    "export": "EXPORT DATABASE 'folder'",
    "import": "IMPORT DATABASE 'folder'",
    "attach": "ATTACH 'x.db'",
    "detach": "DETACH x",
    "use": "USE memory",
    "install": "INSTALL httpfs",
    "load": "LOAD httpfs",
    "update extensions": "UPDATE EXTENSIONS",
    "set": "SET threads = 4",
    "reset": "RESET threads",
    "set variable": "SET VARIABLE x = 1",
    "pragma": "PRAGMA database_list",
    "pragma function": "SELECT * FROM pragma_version()",
    "call": "CALL pragma_version()",
    "create": "CREATE TABLE t (a INT)",
    "create as": "CREATE TABLE t AS SELECT 1",
    "macro": "CREATE MACRO f(x) AS x",
    "insert": "INSERT INTO steps SELECT * FROM steps",
    "update": "UPDATE steps SET step = 1",
    "delete": "DELETE FROM steps",
    "delete in a CTE": "WITH gone AS (DELETE FROM steps RETURNING *) SELECT * FROM gone",
    "drop": "DROP VIEW steps",
    "alter": "ALTER TABLE steps ADD COLUMN x INT",
    "prepare": "PREPARE p AS SELECT 1",
    "execute": "EXECUTE p",
    "explain": "EXPLAIN SELECT 1",
    "describe": "DESCRIBE steps",
    "describe inside": "SELECT * FROM (DESCRIBE steps)",
    "summarize": "SUMMARIZE steps",
    "show": "SHOW ALL TABLES",
    "checkpoint": "CHECKPOINT",
    "vacuum": "VACUUM",
    "transaction": "BEGIN",
    "two statements": "SELECT 1; SELECT 2",
    "a second statement behind a comment": "SELECT 1; /* */ DROP VIEW steps",
    "no statement": "-- nothing",
    "no SQL": "SELEC 1",
    "query": "SELECT * FROM query('SELECT 1')",
    "query_table": "SELECT * FROM query_table('steps')",
    "execute serialized": "SELECT * FROM json_execute_serialized_sql('{}')",
    "settings": "SELECT * FROM duckdb_settings()",
    "catalog": "SELECT * FROM information_schema.tables",
    "catalog quoted": 'SELECT * FROM "pg_catalog"."pg_tables"',
    "schema": "SELECT * FROM main.steps",
    "another table": "SELECT * FROM ops",
    "a Python variable": "SELECT * FROM BIG",
    "getenv": "SELECT getenv('HOME') AS x",
    "version": "SELECT version() AS x",
    "current_setting": "SELECT current_setting('threads') AS x",
    "current_user": "SELECT current_user AS x",
    "current_date": "SELECT current_date AS x",
    "current_timestamp in capitals": "SELECT CURRENT_TIMESTAMP AS x",
    "localtime": "SELECT localtime AS x",
    "now": "SELECT now() AS x",
    "today": "SELECT today() AS x",
    "random": "SELECT random() AS x",
    "random quoted": 'SELECT "RaNdOm"() AS x',
    "random as a method": "SELECT step.random() AS x FROM steps",
    "random with a schema": "SELECT system.main.random() AS x",
    "random in ORDER BY": "SELECT step FROM steps ORDER BY random()",
    "random in a lambda": "SELECT list_transform([1], lambda x: random()) AS x",
    "random in a window": "SELECT row_number() OVER (ORDER BY random()) AS x FROM steps",
    "random in LIMIT": "SELECT step FROM steps LIMIT (SELECT random()::INT)",
    "setseed": "SELECT setseed(0.5) AS x",
    "uuid": "SELECT uuid() AS x",
    "gen_random_uuid": "SELECT gen_random_uuid() AS x",
    "nextval": "SELECT nextval('s') AS x",
    "sample": "SELECT * FROM steps TABLESAMPLE 50%",
    "using sample": "SELECT * FROM steps USING SAMPLE 1",
    "reservoir": "SELECT reservoir_quantile(step, 0.5) AS x FROM steps",
    "sleep": "SELECT sleep_ms(1000) AS x",
    "write_log": "SELECT write_log('x') AS x",
    "getvariable": "SELECT getvariable('x') AS x",
    "repeat": "SELECT repeat('x', 1000000000) AS x",
    "a list of a billion": "SELECT range(1000000000) AS x",
    "printf": "SELECT printf('%1000000000d', 1) AS x",
    "lpad": "SELECT lpad('x', 1000000000, 'x') AS x",
    "long SQL": "SELECT 1 AS x --" + "x" * 9000,
    "doubling": "SELECT " + " || ".join(["step::VARCHAR"] * 40) + " AS x FROM steps",
    "positional parameter": "SELECT ? AS x",
    "same name twice": "SELECT step, step FROM steps",
    "a date": "SELECT DATE '2020-01-01' AS x",
    "pivot": "PIVOT steps ON step USING sum(dur_ns)",
}


@pytest.mark.parametrize("sql", REFUSED.values(), ids=REFUSED.keys())
def test_what_a_rule_must_not_do_is_refused_with_the_rule_and_the_reason(sql: str) -> None:
    with pytest.raises(RuleError) as error:
        query(sql)
    assert str(error.value).startswith("XY001 (rule.md): ")
    assert len(str(error.value)) > len("XY001 (rule.md): ") + 10


def test_nothing_is_written_and_nothing_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.csv").write_text("a\n1\n", encoding="utf-8")
    for sql in REFUSED.values():
        with pytest.raises(RuleError):
            query(sql)
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('f.csv')",
        "SELECT * FROM 'f.csv'",
        "SET threads = 2",
        "ATTACH 'x.db'",
        "SELECT * FROM frame_",
    ],
)
def test_the_settings_hold_even_where_the_guard_is_out_of_the_way(
    sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.csv").write_text("a\n1\n", encoding="utf-8")
    frame_ = frame("steps", [])  # a variable that replacement scans would find
    assert frame_.empty
    monkeypatch.setattr(sandbox_module, "check_sql", lambda *_: frozenset())
    with pytest.raises(RuleError, match="fails"):
        query(sql)


def test_a_query_that_loops_for_ever_is_stopped() -> None:
    endless = "WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT max(n) AS n FROM x"
    with pytest.raises(RuleLimitError, match=r"stopped after 0\.2 s"):
        query(endless, timeout_s=0.2)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(i) AS x FROM range(2000000000) AS r(i)",
        "SELECT string_agg(i::VARCHAR, ',') AS x FROM range(2000000000) AS r(i)",
        "SELECT count(*) AS n FROM range(100000000) AS a(i), range(100000000) AS b(i) GROUP BY a.i, b.i",
        "WITH RECURSIVE x AS (SELECT 'a' AS n UNION ALL SELECT n || n FROM x) SELECT max(length(n)) AS n FROM x",
    ],
)
def test_a_query_that_eats_memory_is_stopped(sql: str) -> None:
    with pytest.raises(RuleLimitError):
        query(sql)


def test_the_address_space_is_as_before_after_a_query() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    query("SELECT 1 AS x")
    with pytest.raises(RuleError):
        query("SELECT 1 / 'a' AS x")
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_too_many_rows_are_refused() -> None:
    assert len(query("SELECT i FROM range(3) AS r(i)", max_rows=3)) == 3
    with pytest.raises(RuleLimitError, match="more than 3 rows"):
        query("SELECT i FROM range(1000000000) AS r(i)", max_rows=3)


@pytest.mark.parametrize(
    "sql",
    [
        "FROM steps SELECT step AS x",
        "WITH a AS (SELECT step FROM steps) SELECT max(step) AS x FROM a JOIN a AS b USING (step)",
        "SELECT step AS x, lag(dur_ns) OVER (ORDER BY step) AS y FROM steps QUALIFY row_number() OVER () = 1",
        "SELECT u.i AS x FROM steps, unnest([1, 2]) AS u(i)",
        "SELECT list_filter([1, 2], lambda x: x > 1) AS x, [y + 1 for y in [1]] AS z",
        "SELECT 'now() random() read_csv' AS x -- COPY steps TO 'x'",
        "SELECT CASE WHEN step IS NULL THEN 1 ELSE 2 END AS x FROM steps UNION ALL SELECT 3 LIMIT 5",
        "SELECT quantile_cont(dur_ns, 0.5) AS x, median(dur_ns) FILTER (WHERE step > 0) AS y FROM steps;",
        "SELECT json_extract('[[1]]', '$[0]')::VARCHAR AS x, regexp_matches('a', 'A', 'i') AS y",
    ],
)
def test_ordinary_queries_run(sql: str) -> None:
    assert query(sql)


RATIO = "SELECT unprofiled_ratio(dur_ns, observation, warmup) AS x FROM steps"


@pytest.mark.parametrize(
    ("steps", "ratio"),
    [
        (
            [("bare", 6, False), ("bare", 8, False), ("bare", 90, True), ("detail", 12, False), ("detail", 16, False)],
            0.5,
        ),
        ([("bare", 9, False), ("detail", 6, False)], 1),
        ([("detail", 6, False)], 1),
        ([("bare", 9, False)], 1),
    ],
    ids=["slowed by the profiler", "never more than one", "no unprofiled step", "no detailed step"],
)
def test_host_time_of_detail_steps_is_scaled_to_the_unprofiled_step(
    steps: list[tuple[str, int, bool]], ratio: float
) -> None:
    rows = [
        {"step": number, "observation": observation, "dur_ns": dur_ns, "warmup": warmup}
        for number, (observation, dur_ns, warmup) in enumerate(steps)
    ]
    assert sandbox(rows).query(RATIO, ("steps",), {}, "x") == [{"x": ratio}]
