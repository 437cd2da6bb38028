"""What the memory tables and rules make of snapshots whose content is known, of odd ones and of hostile ones."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.errors import InputError
from gpudoctor.ingest import open_path
from gpudoctor.reporters import render
from tests.memory.gallery import full_device
from tests.memory.snapshots import (
    BACKWARD,
    BASE,
    FORWARD,
    MIB,
    STEP,
    Frame,
    Recorder,
    block,
    frame,
    segment,
    snapshot,
    write,
)


def judged(path: Path) -> Diagnosis:
    return diagnose(open_path(path), load_rules(()))


def training(tmp_path: Path) -> Path:
    """Three parameters from before, their gradients, activations that backward frees, state made by the optimizer."""
    recorder = Recorder()
    parameters = [block(BASE + number * 4 * MIB, 4 * MIB) for number in range(3)]
    saved = [BASE + (100 + number * 8) * MIB for number in range(4)]
    for address in saved:
        recorder.alloc(address, 8 * MIB)
    gradients = [BASE + (200 + number * 4) * MIB for number in range(3)]
    for address, given_back in zip(gradients, saved, strict=False):
        recorder.alloc(address, 4 * MIB, BACKWARD)
        recorder.free(given_back, 8 * MIB)
    recorder.free(saved[3], 8 * MIB)
    state = [BASE + (300 + number * 4) * MIB for number in range(3)]
    for address in state:
        recorder.alloc(address, 4 * MIB, STEP)
    recorder.alloc(BASE + 400 * MIB, 2 * MIB)
    recorder.free(BASE + 400 * MIB, 2 * MIB)
    live = [*parameters, *(block(address, 4 * MIB) for address in (*gradients, *state))]
    segments = [
        segment(each["address"], 20 * MIB, [each, block(each["address"] + 4 * MIB, 16 * MIB, "inactive")])
        for each in live
    ]
    return write(tmp_path / "snap.pickle", snapshot(segments, recorder.entries))


def test_categories_follow_from_who_asked_and_when_it_went(tmp_path: Path) -> None:
    rows = open_path(training(tmp_path)).rows("allocations")
    counts = {name: sum(row["category"] == name for row in rows) for name in {row["category"] for row in rows}}
    assert counts == {"parameters": 3, "gradients": 3, "activations": 4, "optimizer state": 3, "temporaries": 1}
    kept = next(row for row in rows if row["category"] == "activations")
    assert (kept["file"], kept["line"], kept["inferred"]) == ("/home/me/model.py", 7, True)


def test_the_peak_is_when_the_last_activation_was_made_and_adds_up(tmp_path: Path) -> None:
    profile = open_path(training(tmp_path))
    peak, rows = profile.rows("allocator")[0]["peak_bytes"], profile.rows("memory_peak")
    assert peak == (3 * 4 + 4 * 8 + 4) * MIB == sum(row["bytes"] for row in rows)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert max(row["allocated_bytes"] for row in profile.rows("memory_curve")) == peak


def failed_request(tmp_path: Path, request: int, free: int) -> Path:
    recorder = Recorder()
    recorder.alloc(BASE, 4 * MIB)
    recorder.add("oom", 0, request, FORWARD, device_free=free)
    segments = [
        segment(BASE + number * 20 * MIB, 20 * MIB, [
            block(BASE + number * 20 * MIB, 4 * MIB, frames=FORWARD),
            block(BASE + number * 20 * MIB + 4 * MIB, 16 * MIB, "inactive"),
        ])
        for number in range(10)
    ]  # fmt: skip
    return write(tmp_path / "oom.pickle", snapshot(segments, recorder.entries))


def test_a_request_that_would_fit_into_what_is_free_in_pieces_is_fragmentation(tmp_path: Path) -> None:
    made = judged(failed_request(tmp_path, 100 * MIB, 3 * MIB))
    first = made.findings[0]
    assert (first.rule, first.severity, str(first.where)) == ("GD501", "error", "/home/me/model.py:7")
    assert "A request for 100 MiB failed while 160 MiB of the reserved memory was free" in first.message
    full = next(finding for finding in made.findings if finding.rule == "GD503")
    assert full.explained_by == first.fingerprint


def test_a_request_that_is_larger_than_all_that_is_free_is_a_full_device(tmp_path: Path) -> None:
    made = judged(failed_request(tmp_path, 1000 * MIB, 3 * MIB))
    assert [(finding.rule, finding.severity) for finding in made.findings if finding.severity != "info"] == [
        ("GD503", "error")
    ]
    assert "GD501" in {passed.rule for passed in made.passed}


def test_what_was_released_and_a_stream_may_still_use_is_neither_live_nor_free(tmp_path: Path) -> None:
    blocks = [
        block(BASE, 4 * MIB),
        block(BASE + 4 * MIB, 6 * MIB, "active_awaiting_free"),
        block(BASE + 10 * MIB, 10 * MIB, "inactive"),
    ]
    (row,) = open_path(write(tmp_path / "s.pickle", snapshot([segment(BASE, 20 * MIB, blocks)]))).rows("segments")
    assert (row["live_bytes"], row["pending_bytes"], row["free_bytes"]) == (4 * MIB, 6 * MIB, 10 * MIB)


def test_several_devices_are_told_apart(tmp_path: Path) -> None:
    made = snapshot(
        [segment(BASE, 20 * MIB, [block(BASE, 20 * MIB)]), segment(BASE, 4 * MIB, [block(BASE, 4 * MIB)], device=3)]
    )
    one, other = Recorder(), Recorder()
    one.alloc(BASE, 20 * MIB)
    other.alloc(BASE, 4 * MIB)
    made["device_traces"] = [one.entries, [], [], other.entries]
    rows = open_path(write(tmp_path / "s.pickle", made)).rows("allocator")
    assert [(row["device"], row["peak_bytes"]) for row in rows] == [(0, 20 * MIB), (3, 4 * MIB)]


def whole(size: int, address: int = BASE, frames: Sequence[Frame] = ()) -> dict[str, Any]:
    """A segment that is one block in use."""
    return segment(address, size, [block(address, size, frames=frames)])


def odd() -> dict[str, object]:
    history = [{"addr": BASE, "real_size": 4 * MIB, "frames": FORWARD}]
    old = segment(BASE, 4 * MIB, []) | {"blocks": [{"size": 4 * MIB, "state": "active_allocated", "history": history}]}
    alone, twice = Recorder(), Recorder()
    alone.free(BASE + 8 * MIB, MIB)
    twice.alloc(BASE, MIB)
    twice.alloc(BASE, MIB)
    bare = {"action": "alloc", "addr": BASE, "size": 5, "stream": 0}
    high = (1 << 64) - 40 * MIB
    return {
        "nothing": snapshot([]),
        "only segments, as memory_snapshot() gives them": [whole(20 * MIB)],
        "torch 1.13": {"segments": [old], "device_traces": []},
        "releases without allocations": snapshot([], alone.entries),
        "an address that is given out twice": snapshot([whole(MIB)], twice.entries),
        "a segment without blocks": snapshot([segment(BASE, 20 * MIB, [])]),
        "no stacks": snapshot([whole(20 * MIB)], [bare]),
        "an address beyond 2^63": snapshot([whole(20 * MIB, high)]),
        "strange names": snapshot([whole(20 * MIB, BASE, [frame("/x/</script>\u202e.py", 1, "a" * 9000)])]),
        "half a snapshot": {"segments": []},
        "settings of another kind": snapshot([whole(MIB)]) | {"allocator_settings": [1], "external_annotations": 7},
    }


@pytest.mark.parametrize("name", odd())
def test_odd_snapshots_are_read_and_reported(tmp_path: Path, name: str) -> None:
    made = judged(write(tmp_path / "odd.pickle", odd()[name]))
    for shape in ("full", "json", "html"):
        assert render(shape, made)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pickle.dumps({"weights": [1, 2]}), "it has no segments"),
        (pickle.dumps([1, 2]), "segment 0 is no mapping"),
        (pickle.dumps({"segments": [{"blocks": [], "total_size": "much"}]}), "has no total_size"),
        (pickle.dumps({"segments": [{"blocks": [5], "total_size": 5}]}), "a block without state"),
        (pickle.dumps({"segments": [], "device_traces": [[{"action": "explode"}]]}), "the action 'explode'"),
        (
            pickle.dumps({"segments": [], "device_traces": [[{"action": "alloc", "addr": "here"}]]}),
            "a value that is none",
        ),
        (pickle.dumps({"segments": [], "device_traces": [7]}), "no list of lists"),
        (pickle.dumps(Path("x")), "wants `pathlib"),
        (pickle.dumps(snapshot([]))[:-9], "ends too soon or is damaged"),
    ],
)
def test_what_is_no_snapshot_gets_one_error_that_says_so(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "file.pickle"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a memory snapshot") as error:
        open_path(path)
    assert said in str(error.value) and str(path) in str(error.value) and "_dump_snapshot" in str(error.value)


def test_a_gzip_file_is_read_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(gzip.compress(pickle.dumps(snapshot([segment(BASE, 20 * MIB, [block(BASE, 20 * MIB)])]))))
    assert open_path(path).rows("allocator")[0]["reserved_bytes"] == 20 * MIB


def test_numbers_that_are_none_do_not_pass_as_numbers(tmp_path: Path) -> None:
    entry: dict[str, Any] = {"action": "alloc", "addr": 1, "size": None, "stream": 0, "time_us": 1}
    with pytest.raises(InputError, match="entry 0"):
        open_path(write(tmp_path / "s.pickle", snapshot([], [entry])))


def test_a_failed_request_is_tried_again_under_other_settings(tmp_path: Path) -> None:
    made = judged(full_device(tmp_path / "full.pickle"))
    assert made.memory is not None
    recorded, expandable = made.memory.replays[:2]
    assert (recorded.setting, recorded.ooms, expandable.setting, expandable.ooms) == (
        "",
        1,
        "expandable_segments:True",
        0,
    )
    assert recorded.peak_reserved_bytes == pytest.approx(made.memory.devices[0].reserved_bytes, rel=0.01)
    first = made.findings[0]
    assert first.rule == "GD501" and first.saving is not None and first.saving.memory_bytes
    assert first.saving.memory_bytes == recorded.peak_reserved_bytes - expandable.peak_reserved_bytes
    assert "none fails" in first.message


def test_settings_are_not_compared_where_the_history_does_not_give_what_is_reserved(tmp_path: Path) -> None:
    made = judged(failed_request(tmp_path, 100 * MIB, 3 * MIB))
    text = render("full", made)
    assert "Other allocator settings are not compared" in text and "expandable_segments:True  " not in text
    assert made.findings[0].saving is None
