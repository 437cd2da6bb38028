"""`gpudoctor check`: record a script, diagnose it, print, write the report."""

from __future__ import annotations

import math
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.options import Fail, Format, Ignore, Output, OutputFormat, Preview, Select, TotalSteps, configuration
from gpudoctor.errors import UsageError

HELP = """Run a training script under observation and say what is slow in it.

The script runs unmodified, as under `python`; its standard output goes to standard error. Its own arguments follow
`--`:  gpudoctor check train.py -- --lr 0.1"""
EXIT_CODES = (
    "Exit codes: 0 done; 1 findings at or above --fail-on; 2 usage or internal error; 3 the script failed; "
    "4 inconclusive (no training step was seen)."
)
DEFAULT_BUDGET_S = 60.0


class WhatIf(StrEnum):
    """What is done with the model of a script that compiles nothing, once the script is stopped."""

    EXPLAIN = "explain"
    INDUCTOR = "inductor"
    NONE = "none"


class Stop(StrEnum):
    """How the script is stopped when enough was seen."""

    EXIT = "exit"
    RAISE = "raise"


def check(
    target: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCRIPT [-- ARGS]", help="Script to run, or any command after `--`.", show_default=False
        ),
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m` does.", show_default=False)
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", min=0.001, help="Seconds of steps to watch before stopping the script.", show_default="60"
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option("--steps", min=1, help="Stop the script after this many steps.", show_default=False)
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option("--warmup", min=0, help="Steps that are never profiled.", show_default="until the loop settles"),
    ] = None,
    run_to_end: Annotated[bool, typer.Option("--run-to-end", help="Never stop the script.")] = False,
    stop: Annotated[
        Stop,
        typer.Option("--stop", help="How to stop it: at once, or by SystemExit, so that `finally` blocks run."),
    ] = Stop.EXIT,
    what_if: Annotated[
        WhatIf,
        typer.Option(
            "--what-if",
            help="When the script compiles nothing and was stopped: trace its model as torch.compile would (explain), "
            "have Inductor compile it as well (inductor; a minute on a CPU), or neither (none).",
        ),
    ] = WhatIf.EXPLAIN,
    no_what_if: Annotated[bool, typer.Option("--no-what-if", help="The same as --what-if none.")] = False,
    what_if_limit: Annotated[
        float | None,
        typer.Option(
            "--what-if-limit",
            min=1,
            help="Seconds that may take.",
            show_default="30; 300 with inductor",
        ),
    ] = None,
    output_format: Format = OutputFormat.FULL,
    output: Output = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: Fail = None,
    preview: Preview = False,
    total_steps: TotalSteps = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on the terminal.")] = False,
) -> int:
    """See HELP."""
    from gpudoctor.cli.progress import display
    from gpudoctor.recorder.launch import launched_rank, record
    from gpudoctor.recorder.launch import target as parse_target
    from gpudoctor.recorder.options import Options

    # everything that can be wrong on our side is looked at before the script is started
    if budget is not None and not math.isfinite(budget):
        raise UsageError(f"--budget is {budget}; give seconds, or --run-to-end for no bound")
    if what_if_limit is not None and not math.isfinite(what_if_limit):
        raise UsageError(f"--what-if-limit is {what_if_limit}; give seconds, or --no-what-if for none")
    what = parse_target(target or [], module)
    config = configuration(select, ignore, preview, fail_on, total_steps)
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.engine.run import check_config

    rules = load_rules(config.rule_dirs)
    check_config(rules, config)
    with display(quiet) as line:
        options = Options(
            root=str(Path.cwd()),
            budget_s=budget or config.budget_s or DEFAULT_BUDGET_S,
            max_steps=steps,
            run_to_end=run_to_end,
            stop=stop.value,
            warmup=warmup,
            progress=line is not None,
            what_if="none" if no_what_if else what_if.value,
            what_if_limit_s=what_if_limit,
        )
        recording = record(what, options, line.follow) if line is not None else record(what, options)
        status = recording.manifest["script_exit"]
        if launched_rank() > 0:  # torchrun started one of us a rank: rank 0 speaks for all
            return int(status if status >= 0 else 128 - status)
        if line is not None:
            line.show("diagnosing")
        from gpudoctor.cli.options import exit_code, publish
        from gpudoctor.diagnose import diagnose
        from gpudoctor.diagnosis import to_json
        from gpudoctor.ingest.recording import load

        diagnosis = diagnose(load(recording), rules, config)
    (recording.path / "diagnosis.json").write_text(to_json(diagnosis), encoding="utf-8")
    failed = status != 0
    if failed:
        ended = f"was killed by signal {-status}" if status < 0 else f"failed with exit code {status}"
        sys.stderr.write(f"gpudoctor: {what.shown} {ended}; what was seen until then follows\n")
    publish(diagnosis, output_format, output or Path(recording.path) / "report.html")
    return exit_code(diagnosis, config, script_failed=failed)
