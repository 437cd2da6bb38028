"""`gpudoctor analyze`: diagnose what was recorded before. Needs neither torch nor a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.options import Fail, Format, Ignore, Output, OutputFormat, Preview, Select, configuration

HELP = """Diagnose a recording (a folder that `gpudoctor check` made, e.g. .gpudoctor/latest) or a Kineto trace.

torch is neither needed nor imported."""


def analyze(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Recording folder, or trace (.json, .json.gz).")],
    output_format: Format = OutputFormat.FULL,
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: Fail = None,
    preview: Preview = False,
) -> int:
    """See HELP."""
    from gpudoctor.cli.options import exit_code, publish
    from gpudoctor.diagnose import diagnose
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.ingest import open_path
    from gpudoctor.recording import is_recording

    config = configuration(select, ignore, preview, fail_on)
    rules = load_rules(config.rule_dirs)
    diagnosis = diagnose(open_path(path), rules, config)
    report = output
    if report is None and is_recording(path):
        report = path.resolve() / "report.html"
    publish(diagnosis, output_format, report)
    return exit_code(diagnosis, config)
