"""`gpudoctor compare`: what changed between two recordings or diagnoses."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.options import Ignore, Preview, Select, configuration

HELP = """Compare two recordings (or traces, or diagnoses in JSON): counters, findings and step time. Each of the two
may be a folder that holds several recordings of one revision; a verdict on time needs four runs of each.

Counters decide, time advises (--gate-time lets it decide): counts of operators, graphs or copies have no noise. Of
other hardware, torch or batches the times are not compared.

Exit codes: 0 same or better; 1 worse; 2 usage or internal error; 3 a script failed; 4 inconclusive, or times that
cannot be compared."""


class ComparisonFormat(StrEnum):
    """Formats of a comparison on standard output."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    MARKDOWN = "markdown"


GateTime = Annotated[bool, typer.Option("--gate-time", help="A slower step is worse, and not only said.")]
Page = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write the comparison as a page.")]
ComparisonOutput = Annotated[
    ComparisonFormat, typer.Option("--output-format", help="What to print on standard output.")
]


def compare(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Recording, trace or diagnosis.json of before.")],
    head: Annotated[Path, typer.Argument(metavar="HEAD", help="The same of after.")],
    output_format: ComparisonOutput = ComparisonFormat.FULL,
    html: Page = None,
    gate_time: GateTime = False,
    select: Select = None,
    ignore: Ignore = None,
    preview: Preview = False,
) -> int:
    """See HELP."""
    from gpudoctor.cli.comparing import exit_code, publish
    from gpudoctor.compare import compare as judge
    from gpudoctor.compare.inputs import read
    from gpudoctor.engine.rulefile import load_rules

    config = configuration(select, ignore, preview, None)
    rules = load_rules(config.rule_dirs)
    before, after = read(base, rules, config), read(head, rules, config)
    made = judge(
        before.diagnoses,
        after.diagnoses,
        (str(base), str(head)),
        gate_time=gate_time,
        tolerance=config.tolerance,
        sources=(before.sources, after.sources) if before.sources and after.sources else None,
    )
    publish(made, output_format, html)
    return exit_code(made, time_counts=True)
