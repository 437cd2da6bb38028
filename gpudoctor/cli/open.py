"""`gpudoctor open`: a recording's report in the browser, or a trace in the Perfetto UI."""

from __future__ import annotations

import re
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.output import say, standard_output
from gpudoctor.errors import InputError, UsageError

HELP = """Open a recording's report in the browser; with --perfetto, open its profiler trace (or any trace file) in
https://ui.perfetto.dev, which gets it from this machine: nothing is uploaded."""

_TRACE = re.compile(r"trace\.(\d+)\.(\w+)\.json(\.gz)?")


def open_path(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Recording folder; with --perfetto also a trace.")
    ] = Path(".gpudoctor/latest"),
    perfetto: Annotated[bool, typer.Option("--perfetto", help="Open the trace in the Perfetto UI.")] = False,
    burst: Annotated[
        str, typer.Option("--burst", help="Which of a recording's traces: detail, light, or a number.")
    ] = "detail",
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="Which rank's.", show_default="the first")] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the address only.")
    ] = True,
) -> int:
    """See HELP."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; record a run with `gpudoctor check train.py`")
    if not perfetto:
        _show(_report(path).resolve().as_uri(), browser)
        return 0
    from gpudoctor import perfetto as ui

    server = ui.OneFile(_trace(path, burst, rank), ui.PORT)
    say(f"gpudoctor: waiting for the browser to fetch {server.file}; Ctrl-C ends it")
    _show(server.link, browser)
    server.serve_once()
    return 0


def _show(address: str, browser: bool) -> None:
    with standard_output() as stream:
        stream.write(f"{address}\n")
    if browser and not webbrowser.open(address):
        say("gpudoctor: no browser can be started here; open the address above in one")


def _report(path: Path) -> Path:
    from gpudoctor.recording import is_recording

    if path.is_file() and path.suffix == ".html":
        return path
    if not is_recording(path):
        raise UsageError(
            f"{path}: no recording, so no report lies beside it; write one with "
            f"`gpudoctor analyze {path} -o report.html`, or look at a trace with --perfetto"
        )
    report = path / "report.html"
    if not report.is_file():
        raise UsageError(f"{path} has no report yet; `gpudoctor analyze {path}` writes it")
    return report


def _trace(path: Path, burst: str, rank: int | None) -> Path:
    """The trace file that is meant."""
    from gpudoctor.recording import is_recording, open_recording

    if path.is_file():
        return path
    if not is_recording(path):
        raise InputError(f"{path}: a folder without recording.json; name a recording or a trace file")
    ranks = {folder.name: folder for folder in open_recording(path).ranks}
    if rank is not None and f"rank{rank}" not in ranks:
        raise UsageError(f"{path} has no rank {rank}; it has {', '.join(ranks) or 'none'}")
    folder = ranks[f"rank{rank}"] if rank is not None else next(iter(ranks.values()), None)
    found = {}
    for file in folder.iterdir() if folder else ():
        if match := _TRACE.fullmatch(file.name):
            found[int(match[1])] = (match[2], file)
    if not found:
        raise InputError(f"{path}: no profiler trace in it; let the run reach a profiled step (more steps)")
    chosen = [file for number, (label, file) in sorted(found.items()) if burst in (label, str(number))]
    if not chosen:
        has = ", ".join(f"{number} ({label})" for number, (label, _) in sorted(found.items()))
        raise UsageError(f"{path} has no trace {burst!r}; it has {has}: choose with --burst")
    return chosen[0]
