"""A collection may begin in the middle of the recorder's own work: it must not change or write anything there."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.recorder import gc_watch
from gpudoctor.recorder.patches import Patches
from gpudoctor.recorder.place import Place
from gpudoctor.recorder.tally import Tally
from gpudoctor.recorder.watch import FILE, Watch
from gpudoctor.userfiles import UserFiles

ROOT = Path(__file__).resolve().parents[2]


class Recorder:
    """The parts of a recorder that time collections."""

    def __init__(self, folder: Path) -> None:
        place = Place(folder)
        place.claim()
        self.folder, self.patches = place.folder, Patches()
        self.files, self.watch = UserFiles(str(ROOT)), Watch(place)
        self.tally = Tally(self.watch)
        gc_watch.watch(self.patches, self.tally, self.files, lambda: True, self.watch.now)

    def rows(self) -> list[Any]:
        """What was written, after all that is kept."""
        self.tally.flush()
        self.watch.close()
        return [json.loads(line) for line in (self.folder / FILE).read_text().splitlines()]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = Recorder(tmp_path)
    yield made
    made.patches.undo()


def test_a_collection_has_the_line_of_the_script_that_it_begins_in(recorder: Recorder) -> None:
    recorder.files.remember(__file__)
    gc.collect()
    (row,) = (row for row in recorder.rows() if row[0] == "X")
    assert row[4] == "tests/recorder/test_gc_watch.py"
    assert row[6:8] == ["test_a_collection_has_the_line_of_the_script_that_it_begins_in", True]
    assert row[9] == 2


def test_a_young_collection_by_hand_is_one_too(recorder: Recorder) -> None:
    gc.collect(1)
    assert [row[9] for row in recorder.rows() if row[0] == "X"] == [1]


def test_collections_that_begin_by_themselves_are_added_up_by_place(recorder: Recorder) -> None:
    recorder.files.remember(__file__)
    kept = _many_objects()
    rows = recorder.rows()
    about = [row[1] for row in rows if row[0] == "N" and str(row[1]["function"]).startswith("_many")]
    assert kept
    assert {(one["generation"], one["explicit"]) for one in about} >= {(0, False)}
    assert not [row for row in rows if row[0] == "X"]


def _many_objects() -> list[dict[str, list[int]]]:
    return [{"value": [number]} for number in range(20_000)]


def test_a_collection_meets_no_file_while_the_files_are_gone_through(recorder: Recorder) -> None:
    recorder.files.remember(__file__)
    before = dict(recorder.files.known)
    for _ in recorder.files.known:  # "dictionary changed size during iteration", if it did
        gc.collect()
    assert recorder.files.known == before


class Late(dict[str, int]):
    """Collects while it is written."""

    def items(self) -> Any:
        gc.collect()
        return super().items()


def test_a_collection_while_rows_are_written_waits_for_nothing_and_loses_nothing(recorder: Recorder) -> None:
    for number in range(3):
        recorder.watch.add("Z", Late(number=number))
        recorder.watch.flush()
    rows = recorder.rows()
    assert [row[1]["number"] for row in rows if row[0] == "Z"] == [0, 1, 2]
    assert sum(row[0] == "X" and row[3:4] == ["gc.collect"] for row in rows) >= 3


def test_a_row_added_while_rows_are_written_comes_with_the_next(recorder: Recorder) -> None:
    class Finalised:
        def __del__(self) -> None:
            recorder.watch.add("Y")
            recorder.watch.flush()

    class Row(dict[str, int]):
        def items(self) -> Any:
            Finalised()
            return super().items()

    recorder.watch.add("X", Row(number=1))
    recorder.watch.flush()
    assert [row[0] for row in recorder.rows() if row[0] in "XY"] == ["X", "Y"]
