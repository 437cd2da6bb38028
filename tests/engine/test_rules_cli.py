from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from gpudoctor.cli.explain import explain
from gpudoctor.cli.rules import app as rules_app
from gpudoctor.engine.rulefile import load_rule, load_rules
from gpudoctor.errors import RuleError, UsageError

from .rule_text import rule_text


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    monkeypatch.chdir(tmp_path)
    made = typer.Typer()
    made.add_typer(rules_app, name="rules")
    made.command("explain")(explain)
    return made


def run(app: typer.Typer, *arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_list_into_a_pipe_is_one_rule_a_line(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run(app, "rules", "list").splitlines()
    assert [line.split()[0] for line in lines] == [rule.id for rule in load_rules()]
    assert all(line.endswith(rule.title) for line, rule in zip(lines, load_rules(), strict=True))


@pytest.mark.parametrize("columns", [60, 100])
def test_list_honours_columns(app: typer.Typer, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = run(app, "rules", "list").splitlines()
    assert max(map(len, lines)) <= columns
    assert lines == [line.rstrip() for line in lines]
    assert all(any(line.startswith(rule.id) for line in lines) for rule in load_rules())


def test_explain_into_a_pipe_has_whole_links_and_no_padding(app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run(app, "explain", "GD101", "GD301").splitlines()
    assert lines == [line.rstrip() for line in lines]
    for rule in load_rules():
        if rule.id in ("GD101", "GD301"):
            assert all(line in lines for line in rule.sections["References"].splitlines())
    monkeypatch.setenv("COLUMNS", "60")
    narrow = run(app, "explain", "GD101").splitlines()
    assert max(map(len, narrow)) <= 60
    assert narrow == [line.rstrip() for line in narrow]


@pytest.mark.parametrize("group", [(), ("rules",)])
def test_the_list_of_commands_has_whole_sentences(group: tuple[str, ...]) -> None:
    from gpudoctor.cli import app as whole

    text = CliRunner().invoke(whole, [*group, "--help"], terminal_width=80).output
    commands = text.split("Commands:\n")[1].strip().splitlines()
    assert all(line.endswith(".") and not line.endswith("..") for line in commands)
    assert all(line.startswith("  ") and line[2:3] != " " for line in commands[1:])  # none wraps
    assert "docs" not in " ".join(line.split()[0] for line in commands)


def test_list_as_json_can_be_read_back(app: typer.Typer) -> None:
    rows = json.loads(run(app, "rules", "list", "--output-format", "json"))
    assert [row["id"] for row in rows] == [rule.id for rule in load_rules()]
    assert {"name", "title", "status", "requires", "thresholds"} <= rows[0].keys()


def test_explain_takes_an_id_or_a_name(app: typer.Typer) -> None:
    text = run(app, "explain", "gd101")
    assert text == run(app, "explain", "graph-break")
    assert "How to fix" in text
    assert "https://docs.pytorch.org" in text.replace("\n", "")


def test_explain_takes_several_rules(app: typer.Typer) -> None:
    text = run(app, "explain", "GD301", "GD101")
    assert text.index("GD301 host-sync") < text.index("GD101 graph-break")


def test_explain_of_an_unknown_rule_suggests_the_closest(app: typer.Typer) -> None:
    with pytest.raises(UsageError, match="did you mean 'graph-break'"):
        run(app, "explain", "graf-break")


def test_test_runs_rules_by_id_file_and_folder(app: typer.Typer, tmp_path: Path) -> None:
    assert "GD101 graph-break: ok" in run(app, "rules", "test", "GD101")
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "XY001-slow-step.md"
    path.write_text(rule_text(), encoding="utf-8")
    for target in (path, path.parent):
        assert "1 of 1 rules passed" in run(app, "rules", "test", str(target))


def test_test_fails_with_the_file_and_line_of_the_example(app: typer.Typer, tmp_path: Path) -> None:
    path = tmp_path / "bad.md"
    path.write_text(rule_text().replace("expect=1", "expect=3"), encoding="utf-8")
    result = CliRunner().invoke(app, ["rules", "test", str(path)])
    assert result.exit_code == 2
    line = next(n for n, text in enumerate(path.read_text(encoding="utf-8").split("\n"), 1) if "expect=3" in text)
    assert f"{path}:{line}: gives 1 findings, expected 3" in result.output


def test_rules_of_the_users_own_are_known_everywhere(app: typer.Typer, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "XY001.md").write_text(rule_text(), encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text('[tool.gpudoctor]\nrule-dirs = ["mine"]\n', encoding="utf-8")
    assert "XY001" in run(app, "rules", "list")
    assert "A step is slow" in run(app, "explain", "slow-step")


def test_new_writes_a_rule_that_passes_its_own_test(app: typer.Typer, tmp_path: Path) -> None:
    run(app, "rules", "new", "XY007", "slow-thing", "--dir", "mine")
    path = tmp_path / "mine" / "XY007-slow-thing.md"
    rule = load_rule(path)
    assert (rule.id, rule.name, rule.status) == ("XY007", "slow-thing", "preview")
    assert "1 of 1 rules passed" in run(app, "rules", "test", str(path))


def test_new_says_how_its_preview_rule_is_run(app: typer.Typer) -> None:
    said = run(app, "rules", "new", "XY007", "slow-thing")
    assert "XY007 is a preview rule" in said
    assert "--preview" in said


@pytest.mark.parametrize("arguments", [("XY007", "Slow"), ("7", "slow"), ("../XY007", "slow")])
def test_new_refuses_a_wrong_id_or_name_and_writes_nothing(
    app: typer.Typer, tmp_path: Path, arguments: tuple[str, str]
) -> None:
    with pytest.raises(RuleError):
        run(app, "rules", "new", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_new_overwrites_nothing_and_takes_no_id_twice(app: typer.Typer) -> None:
    run(app, "rules", "new", "XY007", "slow-thing")
    with pytest.raises(UsageError, match="exists already"):
        run(app, "rules", "new", "XY007", "slow-thing")
    with pytest.raises(UsageError, match="GD101"):
        run(app, "rules", "new", "GD101", "another")


def test_docs_writes_the_page_and_check_notices_drift(app: typer.Typer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gpudoctor rules docs"):
        run(app, "rules", "docs", "--check")
    run(app, "rules", "docs")
    run(app, "rules", "docs", "--check")
    page = tmp_path / "docs" / "rules.md"
    page.write_text(page.read_text(encoding="utf-8") + "x", encoding="utf-8")
    with pytest.raises(UsageError, match="does not match"):
        run(app, "rules", "docs", "--check")


def test_docs_leaves_alone_what_it_did_not_generate(app: typer.Typer, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "rules.md"
    page.parent.mkdir()
    page.write_text("# Rules of our house\n", encoding="utf-8")
    readme = tmp_path / "README.md"
    readme.write_text("# Ours\n", encoding="utf-8")
    for options in ((), ("--check",)):
        with pytest.raises(UsageError, match="not generated by this command"):
            run(app, "rules", "docs", *options)
    assert page.read_text(encoding="utf-8") == "# Rules of our house\n"
    page.unlink()
    assert run(app, "rules", "docs") == f"wrote {Path('docs/rules.md')}\n"
    assert readme.read_text(encoding="utf-8") == "# Ours\n"
    readme.write_text("<!-- rules -->\nold\n<!-- /rules -->\n", encoding="utf-8")
    assert run(app, "rules", "docs") == f"wrote {readme}\n"
    assert "graph-break" in readme.read_text(encoding="utf-8")


@pytest.mark.parametrize("arguments", [["--help"], ["rules", "list"], ["explain", "GD101"]])
def test_help_list_and_explain_import_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from gpudoctor.cli import app\n"
        f"try: app({arguments!r}, standalone_mode=False)\n"
        "finally:\n"
        "    heavy = {'pandas', 'duckdb', 'torch', 'pyarrow', 'libcst', 'numpy'} & set(sys.modules)\n"
        "    assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, stdout=subprocess.DEVNULL)
