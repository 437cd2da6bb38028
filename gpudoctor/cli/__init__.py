"""The command line: one thin module a command. `main()` is the only place that maps errors to exit codes."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import gpudoctor
from gpudoctor.cli import analyze, check, env
from gpudoctor.cli.explain import explain
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
app.command("check", help=check.HELP, epilog=check.EXIT_CODES)(check.check)
app.command("analyze", help=analyze.HELP)(analyze.analyze)
app.command("explain")(explain)
app.command("env", help=env.HELP)(env.env)
app.add_typer(rules_app, name="rules")


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
    _open_closed_streams()
    try:
        code = app(standalone_mode=False)
    except GpuDoctorError as error:
        _say(str(error))
        code = error.exit_code
    except KeyboardInterrupt:
        _say("interrupted")
        code = 130
    except BrokenPipeError:  # the reader of our output has gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.CLEAN
    except Exception as error:
        code = _unexpected(error)
    sys.exit(int(code or 0))


def _open_closed_streams() -> None:
    """Puts the null device where a standard stream is closed, or the next file opened would take its place."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def _unexpected(error: Exception) -> int:
    """Usage errors of the command line parser show themselves; everything else is an error of ours."""
    show = getattr(error, "show", None)
    if callable(show):
        show()
        return int(getattr(error, "exit_code", ExitCode.ERROR))
    if type(error).__name__ == "Abort":
        _say("interrupted")
        return 130
    if os.environ.get("GPUDOCTOR_DEBUG"):
        raise error
    _say(f"internal error: {error!r}; run again with `gpudoctor --debug …` and report the traceback")
    return ExitCode.ERROR


def _say(text: str) -> None:
    sys.stderr.write(f"gpudoctor: {text}\n")
