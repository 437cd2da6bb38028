"""`gpudoctor query`: SQL over the tables of a recording, trace or compile log. Needs neither torch nor a GPU."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from gpudoctor.cli.output import say, standard_output

if TYPE_CHECKING:
    from gpudoctor.query import Answer

HELP = """Ask a recording, a trace or a compile log with SQL: one SELECT over its tables, in a DuckDB
that can read nothing else.

Without SQL it lists the tables; --schema TABLE lists a table's columns.  gpudoctor query .gpudoctor/latest
"select file, line, sum(self_ns) from ops group by all order by 3 desc limit 10" """


MAX_CELL = 80
"""Characters of a cell in a plain table."""


class Format(StrEnum):
    """How the answer is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def query(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Recording folder, trace (.json, .json.gz), compile log.")
    ],
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="One SELECT.", show_default=False)] = None,
    schema: Annotated[
        str | None, typer.Option("--schema", metavar="TABLE", help="List this table's columns.", show_default=False)
    ] = None,
    output_format: Annotated[
        Format, typer.Option("--output-format", help="table, json (a list of objects) or csv (with a header).")
    ] = Format.TABLE,
) -> int:
    """See HELP."""
    from gpudoctor import query as queries
    from gpudoctor.errors import UsageError
    from gpudoctor.ingest import open_path

    if sql is not None and schema is not None:
        raise UsageError("give SQL or --schema, not both")
    if schema is not None:
        declared = queries.known_table(schema)
    profile = open_path(path)
    if schema is not None:
        rows = [{"column": c.name, "type": c.kind, "meaning": c.doc} for c in declared.columns]
        answer = queries.Answer(list(rows[0]), [list(row.values()) for row in rows], {})
        if not profile.measured(declared.name):
            answer.unmeasured[declared.name] = "; ".join(filter(None, profile.why_not(declared.name)))
    elif sql is None:
        rows = queries.overview(profile)
        if output_format is Format.TABLE:  # the reasons are long; --schema and the other formats have them
            rows = [
                {
                    "table": row["table"],
                    "rows": "not measured" if row["not_measured"] else row["rows"],
                    "a row": row["row"],
                }
                for row in rows
            ]
        answer = queries.Answer(list(rows[0]), [list(row.values()) for row in rows], {})
    else:
        answer = queries.ask(profile, sql)
    for name, why in answer.unmeasured.items():
        say(f"gpudoctor: {name} was not measured: {why}")
    with standard_output() as stream:
        _write(answer, output_format, stream)
    return 0


def _write(answer: Answer, shape: Format, stream: TextIO) -> None:
    if shape is Format.JSON:
        for number, record in enumerate(answer.records):
            stream.write("[\n  " if not number else ",\n  ")
            stream.write(json.dumps(record, ensure_ascii=True))
        stream.write("\n]\n" if answer.rows else "[]\n")
    elif shape is Format.CSV:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows([[_text(value, "") for value in row] for row in answer.rows])
    elif stream.isatty():
        _rich_table(answer, stream)
    else:
        _plain_table(answer, stream)


def _rich_table(answer: Answer, stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, markup=False, highlight=False, emoji=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(answer.columns):
        table.add_column(Text(_cell(name)), justify="right" if _numeric(answer.rows, number) else "left")
    for row in answer.rows:
        table.add_row(*(Text(_cell(value), style="dim" if value is None else "") for value in row))
    console.print(table)


def _plain_table(answer: Answer, stream: TextIO) -> None:
    from rich.cells import cell_len

    from gpudoctor.reporters.terminal import encodable

    lines = [list(map(_cell, answer.columns)), *([_short(_cell(value)) for value in row] for row in answer.rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    right = [_numeric(answer.rows, number) for number in range(len(answer.columns))]
    for line in lines:
        padded = [
            " " * (width - cell_len(cell)) + cell if numeric else cell + " " * (width - cell_len(cell))
            for cell, width, numeric in zip(line, widths, right, strict=True)
        ]
        stream.write(encodable("  ".join(padded).rstrip() + "\n", stream.encoding or sys.getdefaultencoding()))


def _short(cell: str) -> str:
    """Names of kernels run to a thousand characters; JSON and CSV have them whole."""
    return cell if len(cell) <= MAX_CELL else cell[: MAX_CELL - 1] + "…"


def _numeric(rows: Sequence[Sequence[Any]], column: int) -> bool:
    """Whether a column holds numbers only: they stand at its right edge."""
    kinds = {type(row[column]) for row in rows if row[column] != "not measured"} - {type(None)}
    return bool(kinds) and kinds <= {int, float}


def _cell(value: Any) -> str:
    """A value on one line, nothing hidden in it."""
    from gpudoctor.reporters.wording import one_line

    return one_line(_text(value, "null"))


def _text(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else str(value)
