"""Snapshots with values that torch does not write end in one error or in a plain reading, and soon."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import to_json
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.errors import InputError
from gpudoctor.ingest.snapshot.load import load

START = 0x7F0000000000
FRAMES = [{"filename": "/home/me/train.py", "line": 3, "name": "step"}]


def doubled(times: int = 60) -> list[Any]:
    """A list that names itself twice at each of so many levels: written out, it would not end."""
    made: list[Any] = ["x"]
    for _ in range(times):
        made = [made, made]
    return made


def entry(action: str = "alloc", **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": START, "size": 512, "stream": 0, "time_us": 1, "frames": FRAMES} | more


def written(path: Path, *, segment: Any = (), block: Any = (), event: Any = (), **more: Any) -> Path:
    used = {"address": START, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": FRAMES}
    free = {"address": START + 512, "size": (2 << 20) - 512, "state": "inactive", "frames": []}
    whole = {"device": 0, "address": START, "total_size": 2 << 20, "stream": 0, "segment_type": "small"}
    content = {
        "segments": [whole | {"blocks": [used | dict(block), free]} | dict(segment)],
        "device_traces": [[entry("segment_alloc", size=2 << 20), entry(), entry("oom") | dict(event)]],
    }
    path.write_bytes(pickle.dumps(content | more))
    return path


@pytest.mark.parametrize(
    "wrong",
    [
        {"segment": {"address": "x"}},
        {"segment": {"address": 1 << 70}},
        {"segment": {"total_size": 1 << 63}},
        {"segment": {"total_size": -5}},
        {"segment": {"device": "a"}},
        {"segment": {"device": 1 << 70}},
        {"segment": {"stream": None}},
        {"block": {"size": 1 << 62}},
        {"block": {"size": -512}},
        {"event": {"action": doubled()}},
        {"event": {"action": "alloc", "size": -(1 << 63)}},
        {"event": {"addr": None}},
    ],
)
def test_a_value_that_is_none_is_one_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not a memory snapshot"):
        load(written(tmp_path / "s.pickle", **wrong))


@pytest.mark.parametrize(
    "odd",
    [
        {"segment": {"segment_pool_id": 3}},
        {"segment": {"segment_type": doubled()}},
        {"block": {"state": doubled(), "frames": [{"filename": doubled(), "name": "a\ud800", "line": 1 << 80}]}},
        {"block": {"frames": None, "history": {"x": 1}}},
        {"event": {"size": 1 << 62, "time_us": -(1 << 63), "device_free": 0}},
        {"event": {"time_us": None}},
        {"event": {"stream": (1 << 63) + 5}},
        {"allocator_settings": {"max_split_size": doubled(), "roundup_power2_divisions": {"a": 1, "1": "x"}, 3: 4}},
        {"external_annotations": [{"name": doubled(), "time_us": 3}]},
    ],
)
def test_what_is_odd_and_not_needed_does_not_stop_the_reading(tmp_path: Path, odd: dict[str, Any]) -> None:
    profile = load(written(tmp_path / "s.pickle", **odd))
    assert profile.tables["segments"]["total_bytes"].tolist() == [2 << 20]


def test_odd_texts_and_settings_can_be_written_as_a_diagnosis(tmp_path: Path) -> None:
    odd = {"frames": [{"filename": "a\ud800.py", "name": doubled(), "line": -3}]}
    path = written(tmp_path / "s.pickle", block=odd, event=odd, allocator_settings={"max_split_size": doubled()})
    assert to_json(diagnose(load(path), load_rules())).encode()


def test_a_deep_tuple_as_a_key_is_refused_before_it_is_hashed(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle"
    for setting in (b"s", b""):
        inner = b")" + b"\x85" * 200_000 + b"K\x01"
        path.write_bytes(b"\x80\x04" + (b"}" + inner + setting + b"." if setting else b"(" + inner + b"d."))
        with pytest.raises(InputError, match="a tuple as a key"):
            load(path)


def test_a_damaged_gzip_file_is_one_error(tmp_path: Path) -> None:
    path = tmp_path / "s.pickle.gz"
    data = bytearray(gzip.compress(written(tmp_path / "plain").read_bytes()))
    data[12:40] = b"\xff" * 28
    path.write_bytes(data)
    with pytest.raises(InputError, match="cannot be read"):
        load(path)


def test_entries_that_the_memo_does_not_have_are_not_searched_for_in_all_of_it(tmp_path: Path) -> None:
    entries = b"}\x8c\x06action\x8c\x05allocs" * 20_000
    path = tmp_path / "s.pickle"
    path.write_bytes(b"\x80\x04(" + b"N\x94" * 20_000 + b"l0}\x8c\x08segments](" + entries + b"es.")
    with pytest.raises(InputError, match="no mapping with blocks"):
        load(path)
