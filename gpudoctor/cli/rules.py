"""`gpudoctor rules list | test | new | docs`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoctor.cli.output import standard_output

if TYPE_CHECKING:
    from gpudoctor.engine.rule import Rule

app = typer.Typer(help="List, test and write rules.", no_args_is_help=True)

_WIDTH = 80
"""Widest table: it fits the narrowest terminal in use."""


class Format(StrEnum):
    """How `rules list` prints."""

    table = "table"
    json = "json"


@app.command("list")
def list_rules(
    output_format: Annotated[Format, typer.Option("--output-format", help="How to print the rules.")] = Format.table,
) -> None:
    """List the rules, built-in and your own."""
    rules = _known_rules()
    if output_format is Format.json:
        import json

        rows = [
            {
                "id": rule.id,
                "name": rule.name,
                "title": rule.title,
                "status": rule.status,
                "since": rule.since,
                "horizon": rule.horizon,
                "requires": list(rule.requires),
                "thresholds": {name: threshold.value for name, threshold in rule.thresholds.items()},
                "path": str(rule.path),
            }
            for rule in rules
        ]
        typer.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("id", "name", "finds", "status"):
        table.add_column(title, no_wrap=title != "finds")
    for rule in rules:
        table.add_row(rule.id, rule.name, rule.title, rule.status)
    console = Console()
    console.print(table, width=min(_WIDTH, console.width))


@app.command("test")
def test_rules(
    targets: Annotated[
        list[str] | None, typer.Argument(help="Ids, names, rule files or folders; all rules if none.")
    ] = None,
) -> None:
    """Run the examples that rule files carry."""
    from gpudoctor.engine.selftest import check_rule
    from gpudoctor.errors import ExitCode

    rules = _known_rules() if not targets else tuple(rule for target in targets for rule in _targeted(target))
    failed = 0
    for rule in rules:
        failures = check_rule(rule)
        failed += bool(failures)
        lines = [f"{rule.id} {rule.name}: {'failed' if failures else f'ok, {len(rule.examples)} examples'}"]
        lines += [
            f"  {failure.file}{f':{failure.line}' if failure.line else ''}: {failure.reason}" for failure in failures
        ]
        _print(lines)
    _print([f"{len(rules) - failed} of {len(rules)} rules passed"])
    if failed:
        raise typer.Exit(ExitCode.ERROR)


@app.command("new")
def new(
    rule_id: Annotated[str, typer.Argument(metavar="ID", help="Capital letters and a number, e.g. XY001.")],
    name: Annotated[str, typer.Argument(help="Kebab-case, e.g. slow-validation.")],
    folder: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to write it; the first of `rule-dirs` if not given, else rules/."),
    ] = None,
) -> None:
    """Write a commented rule file to start from."""
    from gpudoctor.config import load_config
    from gpudoctor.engine.rulefile import parse_rule
    from gpudoctor.engine.template import new_rule
    from gpudoctor.errors import UsageError

    configured = load_config(Path.cwd()).rule_dirs
    folder = folder or (configured[0] if configured else Path("rules"))
    path = folder / f"{rule_id}-{name}.md"
    text = new_rule(rule_id, name)
    parse_rule(text, path)  # a wrong id or name is refused before anything is written
    for rule in _known_rules():
        if rule_id == rule.id or name == rule.name:
            raise UsageError(f"{rule.id} {rule.name} exists already ({rule.path}); choose another id and name")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already; remove it first, or choose another name") from None
    typer.echo(path)
    if folder.resolve() not in {known.resolve() for known in configured}:
        typer.echo(f'add rule-dirs = ["{folder.as_posix()}"] to [tool.gpudoctor] in pyproject.toml to use it', err=True)
    typer.echo(
        f"{rule_id} is a preview rule: it runs with --preview, or with preview = true in [tool.gpudoctor], until its "
        'status is "stable"',
        err=True,
    )


@app.command("docs")
def docs(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail when the page is out of date.")] = False,
    path: Annotated[Path, typer.Option("--path", help="The page.")] = Path("docs/rules.md"),
) -> None:
    """Write docs/rules.md, and the table in the README beside its folder, from the built-in rule files."""
    from gpudoctor.engine.docs import rules_page, with_families
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.errors import UsageError

    rules = load_rules()
    pages = {path: rules_page(rules)}
    readme = path.resolve().parents[1] / "README.md"
    if readme.is_file():
        pages[readme] = with_families(readme.read_text(encoding="utf-8"), rules)
    for file, page in pages.items():
        if not check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(page, encoding="utf-8")
        elif not file.is_file() or file.read_text(encoding="utf-8") != page:
            raise UsageError(f"{file} does not match the rule files; run `gpudoctor rules docs` and commit the page")


def _print(lines: list[str]) -> None:
    with standard_output() as stream:  # the exit code says what failed, whether somebody reads on or not
        stream.writelines(f"{line}\n" for line in lines)


def _known_rules() -> tuple[Rule, ...]:
    from gpudoctor.config import load_config
    from gpudoctor.engine.rulefile import load_rules

    return load_rules(load_config(Path.cwd()).rule_dirs)


def _targeted(target: str) -> tuple[Rule, ...]:
    from gpudoctor.engine.rulefile import find_rule, load_rule

    path = Path(target)
    if path.is_dir():
        return tuple(load_rule(file) for file in sorted(path.glob("*.md")) if file.name.lower() != "readme.md")
    return (load_rule(path),) if path.suffix == ".md" else (find_rule(_known_rules(), target),)
