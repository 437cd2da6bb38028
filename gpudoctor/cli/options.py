"""Options that several commands share, and what they do with a finished Diagnosis."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gpudoctor.config import Config
    from gpudoctor.diagnosis import Diagnosis


class OutputFormat(StrEnum):
    """Formats of the report on standard output."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"


class FailOn(StrEnum):
    """Lowest severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NEVER = "never"


Format = Annotated[OutputFormat, typer.Option("--output-format", help="What to print on standard output.")]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", help="Where to write the HTML report.", show_default=False)
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", metavar="RULE", help="Only these rules: ids, names, beginnings of ids. Repeatable."),
]
Ignore = Annotated[list[str] | None, typer.Option("--ignore", metavar="RULE", help="Not these rules. Repeatable.")]
Preview = Annotated[bool, typer.Option("--preview", help="Run preview rules as well.")]
Fail = Annotated[
    FailOn | None, typer.Option("--fail-on", help="Exit with 1 from this severity on.", show_default="never")
]

TotalSteps = Annotated[
    int | None,
    typer.Option(
        "--total-steps",
        min=1,
        help="Steps of the whole training: compile time is spread over them.",
        show_default="the steps seen",
    ),
]


def configuration(
    select: list[str] | None,
    ignore: list[str] | None,
    preview: bool,
    fail_on: FailOn | None,
    total_steps: int | None = None,
) -> Config:
    """`[tool.gpudoctor]` of the working folder, with the command line's options on top."""
    from gpudoctor.config import load_config

    config = load_config(Path.cwd())
    changes: dict[str, object] = {}
    if select:
        changes["select"] = _split(select)
    if ignore:
        changes["ignore"] = _split(ignore)
    if preview:
        changes["preview"] = True
    if total_steps is not None:
        changes["total_steps"] = total_steps
    if fail_on is not None:
        changes["fail_on"] = fail_on.value
    return replace(config, **changes)  # type: ignore[arg-type]


def _split(words: list[str]) -> tuple[str, ...]:
    return tuple(part for word in words for part in word.replace(",", " ").split())


def publish(diagnosis: Diagnosis, shape: OutputFormat, report: Path | None) -> None:
    """Prints a diagnosis, writes the HTML report, and names its place last.

    The path goes to standard error when standard output is JSON.

    Raises:
        UsageError: the report cannot be written there, or standard output takes nothing.
    """
    from gpudoctor import reporters
    from gpudoctor.cli.output import say, standard_output
    from gpudoctor.reporters.wording import inconclusive

    if report is not None:
        write_report(diagnosis, report)
    with standard_output() as stream:
        if shape is OutputFormat.FULL:
            from gpudoctor.reporters import console

            console.print_report(diagnosis, stream)
        else:
            stream.write(reporters.render(shape.value, diagnosis))
        if report is not None and shape is not OutputFormat.JSON:
            stream.write(f"{_shown(report)}\n")
    if report is not None and shape is OutputFormat.JSON:
        say(_shown(report))
    if shape is OutputFormat.CONCISE and (why := inconclusive(diagnosis)):  # no line to read, and the exit code is 4
        say(f"gpudoctor: {why}")


def write_report(diagnosis: Diagnosis, report: Path) -> None:
    """Writes the HTML report.

    Raises:
        UsageError: it cannot be written there.
    """
    from gpudoctor import reporters
    from gpudoctor.cli.output import write_whole

    write_whole(report, reporters.render("html", diagnosis), "the report")


def _shown(path: Path) -> str:
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def exit_code(diagnosis: Diagnosis, config: Config, script_failed: bool = False) -> int:
    """The exit code a diagnosis calls for: 3 before 4 before 1 before 0."""
    from gpudoctor.diagnosis import SEVERITIES
    from gpudoctor.errors import ExitCode

    if script_failed:
        return ExitCode.SCRIPT_FAILED
    if diagnosis.inconclusive:
        return ExitCode.INCONCLUSIVE
    if config.fail_on != "never":
        limit = SEVERITIES.index(config.fail_on)
        if any(SEVERITIES.index(finding.severity) <= limit for finding in diagnosis.live):
            return ExitCode.FINDINGS
    return ExitCode.CLEAN
