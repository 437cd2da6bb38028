"""`gpudoctor rules list | test | new | docs`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoctor.cli.output import print_rich, standard_output, text_width

if TYPE_CHECKING:
    from gpudoctor.engine.rule import Rule

app = typer.Typer(help="List, test and write rules.", no_args_is_help=True)

_WIDTH = 80
"""Widest table on a terminal that does not say its width otherwise: it fits the narrowest in use."""


class Format(StrEnum):
    """How `rules list` prints."""

    table = "table"
    json = "json"


@app.command("list")
def list_rules(
    output_format: Annotated[Format, typer.Option("--output-format", help="How to print the rules.")] = Format.table,
) -> None:
    """List the rules, built-in and your own.

    Into a pipe it is one rule a line; COLUMNS sets another width.
    """
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
    width = text_width(_WIDTH)
    if width is None:
        wide = [max(len(cell) for cell in column) for column in zip(*map(_cells, rules), strict=True)]
        _print(
            ["  ".join(f"{cell:{w}}" for cell, w in zip(_cells(rule), wide, strict=True)).rstrip() for rule in rules]
        )
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("id", "name", "status", "finds"):
        table.add_column(title, no_wrap=title != "finds")
    for rule in rules:
        table.add_row(*_cells(rule))
    print_rich(table, width)


def _cells(rule: Rule) -> tuple[str, str, str, str]:
    return rule.id, rule.name, rule.status, rule.title


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


@app.command("docs", hidden=True)
def docs(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; fail when the page is out of date.")] = False,
    path: Annotated[Path, typer.Option("--path", help="The page.")] = Path("docs/rules.md"),
) -> None:
    """Write gpudoctor's own docs/rules.md, and the table between marks in the README beside its folder."""
    from gpudoctor.engine.docs import GENERATED, rules_page, with_families
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.errors import UsageError

    rules = load_rules()
    pages = {path: rules_page(rules)}
    old = {path: _text(path)} if path.exists() else {}
    if not old.get(path, GENERATED).startswith(GENERATED):
        raise UsageError(f"{path} was not generated by this command; it is left as it is. Give another --path")
    readme = path.resolve().parents[1] / "README.md"
    if readme.is_file():
        old[readme] = _text(readme)
        pages[readme] = with_families(old[readme], rules)
    for file, page in pages.items():
        if old.get(file) == page:
            continue
        if check:
            raise UsageError(f"{file} does not match the rule files; run `gpudoctor rules docs` and commit the page")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(page, encoding="utf-8")
        _print([f"wrote {file}"])


def _text(path: Path) -> str:
    from gpudoctor.errors import UsageError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{path} cannot be read as text") from None


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
