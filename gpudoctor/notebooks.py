"""Cells of a notebook as source files: what to call them, and their text. Nothing here imports IPython."""

from __future__ import annotations

import linecache
import sys
from typing import Any

PREFIX = "cell "
"""How the name of a cell begins where the name of a file is expected; its number follows, as in `In [3]`."""


def cell_name(filename: str) -> str | None:
    """`cell 3` for the file name that IPython gave to the code of cell 3; None for everything else."""
    numbers = getattr(getattr(_shell(), "compile", None), "_filename_map", None)
    number = numbers.get(filename) if isinstance(numbers, dict) else None
    return f"{PREFIX}{number}" if isinstance(number, int) else None


def cell_text(filename: str) -> str:
    """The code of a cell as it ran: magics are replaced by what they call."""
    return "".join(linecache.getlines(filename))


def _shell() -> Any:
    interactive = sys.modules.get("IPython")
    return interactive.get_ipython() if interactive is not None and hasattr(interactive, "get_ipython") else None
