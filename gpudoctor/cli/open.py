"""`gpudoctor open`: a recording's report in the browser, or a trace in the Perfetto UI."""

from __future__ import annotations

import re
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoctor.cli.output import say, standard_output
from gpudoctor.errors import InputError, UsageError

if TYPE_CHECKING:
    from gpudoctor.profile import Profile

HELP = """Open a recording's report in the browser; with --perfetto, open its profiler trace (or any trace file) in
https://ui.perfetto.dev, which gets it from this machine: nothing is uploaded. With --critical-path, write a copy of the
trace in which the critical path of the median step is drawn, beside the trace or into the recording, and print its
place; both together open that copy."""

_TRACE = re.compile(r"trace\.(\d+)\.(\w+)\.json(\.gz)?")


def open_path(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Recording folder; with --perfetto also a trace.")
    ] = Path(".gpudoctor/latest"),
    perfetto: Annotated[bool, typer.Option("--perfetto", help="Open the trace in the Perfetto UI.")] = False,
    burst: Annotated[
        str, typer.Option("--burst", help="Which of a recording's traces: detail, light, or a number.")
    ] = "detail",
    critical_path: Annotated[
        bool, typer.Option("--critical-path", help="Draw the critical path into a copy of the trace.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write that copy (.gz: compressed)."),
    ] = None,
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="Which rank's.", show_default="the first")] = None,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open a browser, or print the address only.")
    ] = True,
) -> int:
    """See HELP."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; record a run with `gpudoctor check train.py`")
    if output is not None and not critical_path:
        raise UsageError("-o names the copy that --critical-path writes; add that option")
    drawn = _drawn(path, output, rank) if critical_path else None
    if drawn is not None:
        with standard_output() as stream:
            stream.write(f"{drawn}\n")
        if not perfetto:
            return 0
    if not perfetto:
        _show(_report(path).resolve().as_uri(), browser)
        return 0
    from gpudoctor import perfetto as ui

    server = ui.OneFile(drawn or _trace(path, burst, rank), ui.PORT)
    say(f"gpudoctor: waiting for the browser to fetch {server.file}; Ctrl-C ends it")
    _show(server.link, browser)
    server.serve_once()
    return 0


def _show(address: str, browser: bool) -> None:
    with standard_output() as stream:
        stream.write(f"{address}\n")
    if browser and not webbrowser.open(address):
        say("gpudoctor: no browser can be started here; open the address above in one")


def _drawn(path: Path, output: Path | None, rank: int | None) -> Path:
    """Writes the trace with its critical path drawn in; says where."""
    from gpudoctor import path_overlay
    from gpudoctor.ingest import open_path

    profile = open_path(path)
    if profile.table("critical_path").empty:
        why, how = profile.why_not("critical_path")
        if "trace" in profile.facts:  # the general reason is that traces lack what only a recording has
            why = "no profiled step with work on a device was found in it"
        raise InputError(f"{path}: no critical path: {why}; {how}")
    trace, offset_ns = _trace_and_clock(path, profile, rank)
    out = output or (path if path.is_dir() else path.parent) / path_overlay.default_name(trace)
    if cut := path_overlay.write(trace, out, path_overlay.events(profile, offset_ns)):
        say(f"gpudoctor: {trace}: {cut}; the copy ends there as well")
    return out


def _trace_and_clock(path: Path, profile: Profile, rank: int | None) -> tuple[Path, int]:
    """The trace that the critical path's step is in, and what is added to its times to get the profile's."""
    from gpudoctor.ingest import burst_clock
    from gpudoctor.ingest.recording import judged
    from gpudoctor.recording import open_recording

    if path.is_file():
        return path, -int(profile.facts["trace"]["zero_ns"])
    folder = judged(open_recording(path))
    if rank is not None and folder.name != f"rank{rank}":
        raise UsageError(f"{path}: {folder.name} was judged, and rank {rank} has no critical path; leave --rank out")
    return burst_clock.of_step(folder, int(profile.table("critical_path")["step"].iloc[0]))


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
