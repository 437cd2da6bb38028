"""What each line of the user's code adds to a count."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from gpudoctor.diagnosis import CountAt
from gpudoctor.engine.source import enclosing_function, normalised_line

MOST_LINES = 400
"""Lines kept of one counter, those that add most: more than a step's code has, as a bound on what is written."""
MOST_TEXT = 200
"""Characters kept of a statement: enough to tell lines apart."""


class Places:
    """Names the lines of one run's sources.

    Args:
        sources: text of the user's files by path.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._known: dict[tuple[str, int], tuple[str | None, str]] = {}

    def lines(
        self, rows: pd.DataFrame, weight: str | None = None, columns: tuple[str, str] = ("file", "line")
    ) -> tuple[CountAt, ...]:
        """What each line adds, most first.

        Args:
            rows: what is counted, with the columns of file and line; rows without them add to no line.
            weight: column that is summed up; None counts rows.
            columns: the columns of file and line.
        """
        known = rows[rows[columns[0]].notna() & rows[columns[1]].notna()]
        if known.empty:
            return ()
        groups = known.groupby([known[columns[0]].astype(str), known[columns[1]].astype(int)])
        counts = groups.size() if weight is None else groups[weight].sum()
        index = zip(*(counts.index.get_level_values(level) for level in (0, 1)), strict=True)
        made = [
            self._at(str(file), int(line), round(float(count)))
            for (file, line), count in zip(index, counts.tolist(), strict=True)
        ]
        return tuple(sorted((at for at in made if at.count), key=lambda at: (-at.count, at.file, at.line))[:MOST_LINES])

    def _at(self, file: str, line: int, count: int) -> CountAt:
        if (file, line) not in self._known:
            text = self._sources.get(file, "")
            self._known[file, line] = (enclosing_function(text, line), normalised_line(text, line)[:MOST_TEXT])
        function, statement = self._known[file, line]
        return CountAt(file, line, count, function, statement)
