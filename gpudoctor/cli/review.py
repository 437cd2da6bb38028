"""`gpudoctor review`: both revisions of a script side by side, before a change is merged."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.compare import ComparisonFormat, ComparisonOutput, GateTime, Page
from gpudoctor.cli.options import Ignore, Preview, Select, configuration
from gpudoctor.errors import UsageError

HELP = """Run a script as it was at --base and as it is now, each in a git worktree, and say what got worse.

Counters decide: graphs, breaks, recompiles, operators, copies and syncs of a step have no noise, so that one run of
each is enough, on any machine. Time only advises; with --gate-time and six pairs or more it decides too. Your working
tree, index, branches and list of worktrees are not touched; uncommitted changes belong to the head.

The script's arguments follow `--`:  gpudoctor review --base main train.py -- --epochs 1"""
EXIT_CODES = (
    "Exit codes: 0 same or better; 1 worse, or a budget broken; 2 usage or internal error; 3 the script failed; "
    "4 inconclusive."
)
LEAST_PAIRS = 6
"""Five pairs have 32 sign patterns: no result of theirs is below p = 0.06."""


def review(
    base: Annotated[str, typer.Option("--base", metavar="REV", help="Revision to compare with, e.g. origin/main.")],
    target: Annotated[
        list[str] | None,
        typer.Argument(metavar="SCRIPT [-- ARGS]", help="Script that both revisions have.", show_default=False),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="REV", help="Revision to judge.", show_default="the working tree as it is"),
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", metavar="MODULE", help="Run a module, as `python -m` does.", show_default=False)
    ] = None,
    pairs: Annotated[int, typer.Option("--pairs", min=1, help="Runs of each revision, in turns.")] = 1,
    steps: Annotated[int | None, typer.Option("--steps", min=1, help="Steps of a run.", show_default="30")] = None,
    link: Annotated[
        list[str] | None,
        typer.Option("--link", metavar="PATH", help="Ignored data to link into both worktrees. Repeatable."),
    ] = None,
    gate_time: GateTime = False,
    output_format: ComparisonOutput = ComparisonFormat.FULL,
    html: Page = None,
    select: Select = None,
    ignore: Ignore = None,
    preview: Preview = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
) -> int:
    """See HELP."""
    if gate_time and pairs < LEAST_PAIRS:
        raise UsageError(f"--gate-time needs --pairs {LEAST_PAIRS} or more: fewer cannot show a difference (p < 0.05)")
    from gpudoctor.cli.comparing import exit_code, publish
    from gpudoctor.cli.output import say
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.engine.run import check_config
    from gpudoctor.recorder.launch import Interrupted
    from gpudoctor.review.repository import find
    from gpudoctor.review.runs import STEPS
    from gpudoctor.review.whole import Request
    from gpudoctor.review.whole import review as judge

    config = configuration(select, ignore, preview, None)
    rules = load_rules(config.rule_dirs)
    check_config(rules, config)
    repository = find(Path.cwd())
    request = Request(
        repository.revision(base),
        repository.revision(head) if head is not None else repository.working_tree(),
        tuple(target or ()),
        module,
        tuple(link or ()),
        pairs,
        steps or STEPS,
        gate_time,
    )
    try:
        made = judge(
            repository, request, rules, config, (lambda _: None) if quiet else lambda t: say(f"gpudoctor: {t}")
        )
    except Interrupted as interrupted:
        say("gpudoctor: interrupted; nothing is left behind")
        return 128 + interrupted.number
    page = html or (made.folder / "comparison.html" if made.folder else None)
    publish(made.comparison, output_format, page)
    return exit_code(made.comparison, time_counts=gate_time)
