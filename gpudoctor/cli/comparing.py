"""What `compare` and `review` do with a finished Comparison."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.cli.compare import ComparisonFormat
from gpudoctor.cli.output import standard_output, write_whole
from gpudoctor.compare import Comparison
from gpudoctor.diagnosis import run_failed
from gpudoctor.errors import ExitCode
from gpudoctor.reporters import comparison as reporters


def publish(comparison: Comparison, shape: ComparisonFormat, page: Path | None) -> None:
    """Prints a comparison, writes the page, and names its place last.

    Raises:
        UsageError: the page cannot be written there.
    """
    if page is not None:
        write_whole(page, reporters.render("html", comparison), "the page")
    with standard_output() as stream:
        if shape is ComparisonFormat.FULL:
            reporters.console.print_report(comparison, stream)
        else:
            stream.write(reporters.render(shape.value, comparison))
        if page is not None and shape is ComparisonFormat.FULL:
            stream.write(f"{page}\n")


def exit_code(comparison: Comparison, time_counts: bool) -> int:
    """The exit code a comparison calls for: 3 before 4 before 1 before 0.

    Args:
        comparison: what was compared.
        time_counts: times that cannot be compared make it inconclusive.
    """
    if any(run_failed(side.run) for side in (comparison.base, comparison.head)):
        return ExitCode.SCRIPT_FAILED
    if comparison.verdict == "inconclusive" or (time_counts and comparison.time_refused):
        return ExitCode.INCONCLUSIVE
    return ExitCode.FINDINGS if comparison.verdict == "worse" else ExitCode.CLEAN
