"""The cell magic `%%gpudoctor`: runs a cell under observation and shows what is slow in its loop."""

from __future__ import annotations

from typing import Any

USAGE = "usage: %%gpudoctor [NAME], alone in the first line of a cell; NAME is bound to the session"


def register(shell: Any) -> None:
    """Adds the magic to an IPython shell."""

    def gpudoctor(line: str, cell: str) -> Any:
        """Runs the cell in `gpudoctor.record()`; the diagnosis is its value."""
        return observed(shell, line.strip(), cell)

    shell.register_magic_function(gpudoctor, "cell", "gpudoctor")


def observed(shell: Any, name: str, cell: str) -> Any:
    """Runs a cell in the user's namespace, and gives its diagnosis.

    An exception of the cell is shown once, by the shell; then there is no diagnosis to show, and the session has what
    was seen until then.

    Raises:
        UsageError: the line is no name.
    """
    import gpudoctor
    from gpudoctor.errors import UsageError

    if name and not name.isidentifier():
        raise UsageError(USAGE)
    with gpudoctor.record() as session:
        result = shell.run_cell(cell)
    if name:
        shell.user_ns[name] = session
    return session.diagnosis if result.success else None
