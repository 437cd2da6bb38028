"""How a table of the Profile is declared: names, kinds and meaning of its columns, and how to get it."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.columns import Kind

_DTYPES: dict[Kind, str] = {"int": "Int64", "float": "Float64", "str": "string", "bool": "boolean"}


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, kind and meaning (the unit is part of the name)."""

    name: str
    kind: Kind
    doc: str

    @property
    def dtype(self) -> str:
        """The pandas extension dtype; nullable, so that one null does not turn nanoseconds into floats."""
        return _DTYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the Profile: its columns and what a row is."""

    name: str
    row: str
    columns: tuple[Column, ...]
    how: str
    """How to get the table when it was not measured: a sentence for the user."""

    @property
    def names(self) -> list[str]:
        """The column names in order."""
        return [column.name for column in self.columns]


def table(name: str, row: str, how: str, *columns: tuple[str, Kind, str]) -> Table:
    """Declares a table: its name, what a row is, how to get it, and each column as name, kind and meaning."""
    return Table(name, row, tuple(Column(*column) for column in columns), how)


CHECK = "record the run with `gpudoctor check train.py`"
DETAIL = "let the run reach a profiled step: more steps, or fewer compiles in them"
COMPILE = "run `gpudoctor check` on a torch (2.7 or newer) that writes the structured compile log"
WHAT_IF = (
    "only a script that compiles nothing is tried, after gpudoctor has stopped it (`--steps N` stops it sooner); "
    "--what-if=inductor counts kernels as well"
)
GPU = "run `gpudoctor check` on a machine with a GPU, or `gpudoctor analyze` on a trace recorded with one"
