"""Reports of a Diagnosis, one format a module: each is a function of the same frozen data.

full      console.py   what a person reads in the terminal
concise   concise.py   one line a finding
json      json.py      schema 1, everything
html      html.py      one self-contained page
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol, cast

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.errors import UsageError

_MODULES = {"full": "console", "concise": "concise", "json": "json", "html": "html"}

FORMATS: tuple[str, ...] = tuple(_MODULES)
"""Names of the formats, as the command line takes them."""


class Reporter(Protocol):
    """What a format's module offers."""

    def render(self, diagnosis: Diagnosis) -> str:
        """The whole report as text that ends in a newline."""


def reporter(name: str) -> Reporter:
    """The reporter of a format; its module is imported now, not before.

    Raises:
        UsageError: there is no such format.
    """
    if name not in _MODULES:
        raise UsageError(f"no report format {name!r}; the formats are {', '.join(FORMATS)}")
    return cast(Reporter, import_module(f"{__name__}.{_MODULES[name]}"))


def render(name: str, diagnosis: Diagnosis) -> str:
    """The diagnosis in one of `FORMATS`.

    Raises:
        UsageError: there is no such format.
    """
    return reporter(name).render(diagnosis)
