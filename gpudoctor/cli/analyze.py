"""`gpudoctor analyze`: diagnose what was recorded before. Needs neither torch nor a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoctor.cli.options import Fail, Format, Ignore, Output, OutputFormat, Preview, Select, TotalSteps, configuration
from gpudoctor.errors import UsageError

if TYPE_CHECKING:
    from gpudoctor.config import Config
    from gpudoctor.ingest.ranks import Input

HELP = """Diagnose a recording (a folder that `gpudoctor check` made, e.g. .gpudoctor/latest), Kineto traces or
compile logs that TORCH_TRACE wrote (plain or gzip, whatever their names), or a folder of them, one a rank; or a memory
snapshot that torch.cuda.memory._dump_snapshot wrote, alone or beside one of them (--memory).

Of several, each is diagnosed by itself: the slowest rank in full, the others in a line each. torch is neither needed
nor imported."""


def analyze(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH…]",
            help="Recording folder, traces (.json, .json.gz), compile logs, or their folder.",
            show_default=False,
        ),
    ] = None,
    output_format: Format = OutputFormat.FULL,
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: Fail = None,
    preview: Preview = False,
    total_steps: TotalSteps = None,
    memory: Annotated[
        Path | None,
        typer.Option("--memory", help="Allocator snapshot (.pickle) of the same run.", show_default=False),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes that read several traces at once.")] = 1,
) -> int:
    """See HELP."""
    from gpudoctor.ingest.ranks import find

    config = configuration(select, ignore, preview, fail_on, total_steps)
    if not paths:
        if memory is None:
            raise UsageError("nothing to analyze: name a recording, traces, compile logs, or --memory SNAPSHOT.pickle")
        return _one(memory, config, output_format, output, memory)
    inputs = find(paths)
    if len(inputs) == 1:
        return _one(inputs[0].path, config, output_format, output, memory)
    if memory is not None:
        raise UsageError("--memory goes with one recording or trace: a snapshot is that of one process")
    return _several(inputs, config, output_format, output, jobs)


def _one(path: Path, config: Config, shape: OutputFormat, report: Path | None, memory: Path | None = None) -> int:
    from gpudoctor.cli.options import exit_code, publish
    from gpudoctor.diagnose import diagnose
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.ingest import open_path
    from gpudoctor.ingest.snapshot.load import beside, load
    from gpudoctor.recording import is_recording

    rules = load_rules(config.rule_dirs)
    profile = load(path) if path is memory else open_path(path)  # what --memory names alone is a snapshot or nothing
    diagnosis = diagnose(profile if memory is None or memory is path else beside(profile, memory), rules, config)
    if report is None and is_recording(path):
        report = path.resolve() / "report.html"
    publish(diagnosis, shape, report)
    return exit_code(diagnosis, config)


def _several(inputs: list[Input], config: Config, shape: OutputFormat, report: Path | None, jobs: int) -> int:
    """As `_one`; what was meant as a trace and cannot be read makes the exit code 2, or a broken rank would pass."""
    from gpudoctor.cli.options import exit_code, publish, write_report
    from gpudoctor.cli.output import say, standard_output
    from gpudoctor.errors import ExitCode
    from gpudoctor.ranks import diagnose_all, to_json

    ranks = diagnose_all(inputs, config, jobs)
    for one in ranks.left_out:
        say(f"gpudoctor: left out: {one.reason}")
    if shape is OutputFormat.FULL:
        publish(ranks.shown.diagnosis, shape, report)
    elif report is not None:
        write_report(ranks.shown.diagnosis, report)
    from gpudoctor.reporters import ranks as reporter
    from gpudoctor.reporters.wording import inconclusive

    with standard_output() as stream:
        if shape is OutputFormat.FULL:
            stream.write("\n")
            reporter.print_table(ranks, stream)
        else:
            stream.write(to_json(ranks) if shape is OutputFormat.JSON else reporter.render_concise(ranks))
    for rank in ranks.ranks if shape is OutputFormat.CONCISE else ():
        if why := inconclusive(rank.diagnosis):
            say(f"gpudoctor: rank {rank.rank}: {why}")
    codes = {exit_code(rank.diagnosis, config) for rank in ranks.ranks}
    if any(one.certain for one in ranks.left_out):
        codes.add(ExitCode.ERROR)
    return next(
        code for code in (ExitCode.ERROR, ExitCode.INCONCLUSIVE, ExitCode.FINDINGS, ExitCode.CLEAN) if code in codes
    )
