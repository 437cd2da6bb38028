from __future__ import annotations

from pathlib import Path

from gpudoctor.recorder import status
from gpudoctor.recorder.place import Place

SECOND_NS = 1_000_000_000


def test_the_state_is_written_now_and_then_and_the_last_one_always(tmp_path: Path) -> None:
    place = Place(tmp_path)
    writer = status.Status(place, True, 60.0)
    writer.step(4_000_000)
    writer.put(status.WARMING_UP, 1, 0, 0)
    writer.put(status.WATCHING, 2, 10, 10)  # too soon
    assert status.read(tmp_path) == status.Progress(status.WARMING_UP, 1, 4_000_000, 0.0, 60.0)
    writer.put(status.WATCHING, 3, SECOND_NS, SECOND_NS)
    assert (status.read(tmp_path).phase, status.read(tmp_path).elapsed_s) == (status.WATCHING, 1.0)
    writer.put(status.STOPPING, 4, SECOND_NS, SECOND_NS + 1, last=True)
    assert status.read(tmp_path).phase == status.STOPPING


def test_nothing_is_written_when_nobody_looks(tmp_path: Path) -> None:
    place = Place(tmp_path)
    status.Status(place, False, None).put(status.WATCHING, 1, 0, 0)
    assert not place.claimed
    assert status.read(tmp_path) == status.Progress()


def test_a_damaged_file_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "rank0").mkdir()
    (tmp_path / "rank0" / status.FILE).write_text('{"phase": "wat')
    assert status.read(tmp_path) == status.Progress()
