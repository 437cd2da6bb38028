"""The command line: one thin module a command. `main()` is the only place that maps errors to exit codes."""

from __future__ import annotations

import errno
import os
import sys
from typing import Annotated

import typer

import gpudoctor
from gpudoctor.cli import analyze, check, compare, env, fix, query, report, review
from gpudoctor.cli import open as open_command
from gpudoctor.cli.explain import explain
from gpudoctor.cli.output import discard, open_closed_streams, say
from gpudoctor.cli.rules import app as rules_app
from gpudoctor.errors import ExitCode, GpuDoctorError

app = typer.Typer(
    name="gpudoctor",
    help="Tells why a PyTorch training step is slow, proves it from that very run, and says what each fix is worth.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(
    "check", short_help="Run a training script and say what is slow in it.", help=check.HELP, epilog=check.EXIT_CODES
)(check.check)
app.command("analyze", short_help="Diagnose a recording or a trace again.", help=analyze.HELP)(analyze.analyze)
app.command("compare", short_help="Say what changed between two recordings.", help=compare.HELP)(compare.compare)
app.command(
    "review",
    short_help="Compare a change with its base before it is merged.",
    help=review.HELP,
    epilog=review.EXIT_CODES,
)(review.review)
app.command("fix", short_help="Show the certain fixes as a diff, or apply them.", help=fix.HELP)(fix.fix)
app.command("query", short_help="Ask a recording or a trace with SQL.", help=query.HELP)(query.query)
app.command("open", short_help="Open a report, or a trace in Perfetto.", help=open_command.HELP)(open_command.open_path)
app.command("report", short_help="Write the HTML report of what was recorded.", help=report.HELP)(report.report)
app.command("explain", short_help="Explain rules: cause, cost and fix.")(explain)
app.command("env", short_help="Show versions, GPUs and what can be measured.", help=env.HELP)(env.env)
app.add_typer(rules_app, name="rules")


_NO_ROOM = frozenset((errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)))
"""Errors of writing that are the machine's, not ours."""


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpudoctor {gpudoctor.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an internal error.")] = False,
) -> None:
    if debug:
        os.environ["GPUDOCTOR_DEBUG"] = "1"


def main() -> None:
    """Runs the command line and exits with the code that the command, or the error, calls for."""
    open_closed_streams()
    try:
        code = app(standalone_mode=False)
    except GpuDoctorError as error:
        _say(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        code = 130
    except BrokenPipeError:
        code = _reader_gone()
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        code = _reader_gone()  # typer and rich make an exit with 1 of it, which is our code for findings
    except OSError as error:
        code = _no_room(error) if error.errno in _NO_ROOM and error.filename is None else _unexpected(error)
    except Exception as error:
        code = _unexpected(error)
    sys.exit(int(code or 0))


def _reader_gone() -> int:
    """Nothing is left to say. Commands whose exit code says more write with `standard_output()`."""
    discard(sys.__stdout__)
    return ExitCode.CLEAN


def _no_room(error: OSError) -> int:
    discard(sys.__stdout__)
    _say(f"nothing more can be written ({error.strerror}); make room, or write elsewhere")
    return ExitCode.ERROR


def _unexpected(error: Exception) -> int:
    """Usage errors of the command line parser show themselves; everything else is an error of ours."""
    show = getattr(error, "show", None)
    if callable(show):
        try:
            show()
        except OSError:
            discard(sys.stderr)
        return int(getattr(error, "exit_code", ExitCode.ERROR))
    if type(error).__name__ == "Abort":
        _say("interrupted")
        return 130
    if os.environ.get("GPUDOCTOR_DEBUG"):
        raise error
    _say(f"internal error: {error!r}; run again with `gpudoctor --debug …` and report the traceback")
    return ExitCode.ERROR


def _say(text: str) -> None:
    say(f"gpudoctor: {text}")
