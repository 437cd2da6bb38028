"""`gpudoctor report`: the HTML page of a recording, a trace, a snapshot or a diagnosis in JSON."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.options import Ignore, Preview, Select, TotalSteps, configuration
from gpudoctor.errors import InputError

HELP = """Write the HTML report of a recording, a Kineto trace, a compile log, an allocator snapshot, or of a diagnosis
that --output-format json printed (that one without the timeline). One file, no network; --no-source leaves out every
line of your code, and the diffs made of them."""


def report(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Recording folder, trace, compile log, snapshot, or diagnosis.json.")
    ] = Path(".gpudoctor/latest"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write it.",
            show_default="report.html in the recording; beside another file",
        ),
    ] = None,
    no_source: Annotated[bool, typer.Option("--no-source", help="Leave out source lines and diffs.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    select: Select = None,
    ignore: Ignore = None,
    preview: Preview = False,
    total_steps: TotalSteps = None,
) -> int:
    """See HELP."""
    from gpudoctor.cli.options import write_report
    from gpudoctor.cli.output import say, standard_output
    from gpudoctor.diagnose import diagnose
    from gpudoctor.diagnosis import from_json, is_diagnosis, without_source
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.ingest import open_path
    from gpudoctor.recording import is_recording

    if not path.exists():
        raise InputError(f"{path}: no such file or folder; record a run with `gpudoctor check train.py`")
    if is_diagnosis(path):
        made = from_json(path.read_bytes(), str(path))
    else:
        config = configuration(select, ignore, preview, None, total_steps)
        made = diagnose(open_path(path), load_rules(config.rule_dirs), config)
    place = output or (path.resolve() / "report.html" if is_recording(path) else Path(f"{path.name}.html"))
    write_report(without_source(made) if no_source else made, place)
    with standard_output() as stream:
        stream.write(f"{place}\n")
    if show and not webbrowser.open(place.resolve().as_uri()):
        say("gpudoctor: no browser can be started here; open the file above in one")
    return 0
