"""The machine of random programs keeps the order that hardware keeps, and the replay of its traces knows what helps."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.synthetic.random_device import QUEUE, Activity
from tests.synthetic.random_host import Timeline
from tests.synthetic.random_programs import REMEDIES, Happened, item_at_end, random_program, run
from tests.synthetic.random_recipe import BOTTLENECKS
from tests.synthetic.random_savings import predictions
from tests.synthetic.random_trace import ids, profile, write

SEEDS = range(31)
SHOWN = (0, 1, 5, 6, 7, 25)
"""Seeds whose traces are read: a graph, small kernels, reductions, a full queue, pageable copies, compute waiting."""


@pytest.fixture(scope="module")
def happened() -> list[Happened]:
    return [run(random_program(seed)) for seed in SEEDS]


def _by_stream(timeline: Timeline) -> dict[int, list[Activity]]:
    streams: defaultdict[int, list[Activity]] = defaultdict(list)
    for activity in timeline.activities:
        streams[activity.work.stream].append(activity)
    return streams


def test_a_seed_gives_the_same_program_and_the_same_trace(tmp_path: Path) -> None:
    texts = [write(run(random_program(3)), tmp_path / name).read_bytes() for name in ("one.json", "two.json")]
    assert texts[0] == texts[1]


def test_every_bottleneck_and_every_remedy_occurs(happened: list[Happened]) -> None:
    assert {one.program.recipe.bottleneck for one in happened} == set(BOTTLENECKS)
    assert {remedy for one in happened for remedy in one.program.remedies} == set(REMEDIES)


def test_work_of_a_stream_runs_in_order_and_after_its_launch(happened: list[Happened]) -> None:
    for one in happened:
        calls = one.timeline.calls
        for activities in _by_stream(one.timeline).values():
            assert all(before.end_ns <= after.start_ns for before, after in pairwise(activities))
        assert all(made.start_ns > calls[made.correlation - 1].start_ns for made in one.timeline.activities)


def test_one_activity_at_a_time_has_what_it_needs_for_itself(happened: list[Happened]) -> None:
    for one in happened:
        taken: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for made in one.timeline.activities:
            if made.work.needs is not None:
                taken[made.work.needs].append((made.start_ns, made.end_ns))
        for spans in taken.values():
            spans.sort()
            assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_no_more_launches_are_outstanding_than_the_queue_holds(happened: list[Happened]) -> None:
    most = []
    for one in happened:
        submitted = [
            (one.timeline.calls[made.correlation - 1].end_ns, 1) for made in one.timeline.activities if made.closes
        ]
        done = [(made.end_ns, -1) for made in one.timeline.activities if made.closes]
        outstanding = reached = 0
        for _, change in sorted(submitted + done):
            outstanding += change
            reached = max(reached, outstanding)
        most.append(reached)
    assert max(most) == QUEUE, "no program fills the queue"


def test_a_synchronisation_returns_after_what_it_waits_for(happened: list[Happened]) -> None:
    for one in happened:
        launched: list[Activity] = []
        by_call: defaultdict[int, list[Activity]] = defaultdict(list)
        for made in one.timeline.activities:
            by_call[made.correlation].append(made)
        for call in one.timeline.calls:
            launched += by_call[call.correlation]
            waits, stream = call.call.waits, call.call.stream
            if waits in ("device", "stream", "copy"):
                behind = [made.end_ns for made in launched if waits == "device" or made.work.stream == stream]
                assert call.end_ns > max(behind, default=0)


def test_streams_and_host_wait_for_the_event_that_they_were_told_to_wait_for(happened: list[Happened]) -> None:
    for one in happened:
        last: dict[int, Activity] = {}
        recorded: dict[str, Activity | None] = {}
        awaited: defaultdict[int, list[Activity]] = defaultdict(list)
        works = {made.work.key: made for made in one.timeline.activities}
        for made in one.timeline.calls:
            call = made.call
            for work in call.works:
                assert all(works[work.key].start_ns >= other.end_ns for other in awaited[work.stream])
                last[work.stream] = works[work.key]
            if call.api == "cudaEventRecord":
                recorded[call.mark] = last.get(call.stream)
            elif (source := recorded.get(call.mark)) is not None:
                if call.api == "cudaStreamWaitEvent":
                    awaited[call.stream].append(source)
                assert call.waits != "mark" or made.end_ns > source.end_ns


def test_what_stays_keeps_its_noise() -> None:
    program = random_program(7)
    before = {made.work.key: made.work for made in run(program).timeline.activities}
    for remedy in program.remedies:
        edit = run(program).touched(remedy)
        after = [made.work for made in run(program, remedy).timeline.activities]
        same = sum(before[work.key] is work for work in after)
        assert len(after) == len(before) - len(edit.activities)
        assert same == len(after) - len(edit.durations_ns.keys() | edit.streams.keys())


def test_a_remedy_makes_no_run_longer() -> None:
    """Queues move by microseconds when something goes, so a run can get longer by what two launches take."""
    for seed in SEEDS:
        program = random_program(seed)
        before = run(program).total_ns
        for remedy in program.remedies:
            assert run(program, remedy).total_ns <= before * 1.001 + 20_000, (seed, remedy)


@pytest.mark.parametrize("seed", SHOWN)
@pytest.mark.parametrize("whole_us", [False, True])
def test_a_trace_is_read_without_a_note_and_has_what_a_remedy_touches(seed: int, whole_us: bool) -> None:
    one = run(random_program(seed))
    seen = profile(one, whole_us)
    notes = [note for note in seen.facts["notes"] if not note.startswith(("times are those", "the host runs ahead"))]
    assert not notes
    assert len(seen.table("kernels")) == len(one.timeline.activities)
    assert len(seen.table("runtime_calls")) == len(one.timeline.calls)
    assert seen.table("steps")["dur_ns"].tolist() == pytest.approx(one.step_ns, abs=1000)
    for remedy in one.program.remedies:
        edit = ids(one.touched(remedy), one, seen)
        assert edit.operators | edit.ranges <= set(seen.table("ops")["op"])
        assert edit.calls | edit.free | edit.released | edit.moved <= set(seen.table("runtime_calls")["call"])
        assert edit.activities | set(edit.durations_ns) | set(edit.streams) <= set(seen.table("kernels")["kernel"])


def test_ids_lead_to_the_same_activities() -> None:
    one = run(random_program(0))
    seen = profile(one)
    edit = one.touched("drop_kernels")
    names = seen.table("kernels").set_index("kernel")["name"]
    ops = seen.table("ops").set_index("op")["name"]
    found = ids(edit, one, seen)
    assert {names[kernel] for kernel in found.activities} == {
        one.timeline.activities[number].work.name for number in edit.activities
    }
    assert {ops[op] for op in found.operators} == {"aten::layer_norm"}


def test_an_item_at_the_end_of_a_gpu_bound_step_costs_only_the_bubble_behind_it() -> None:
    program = item_at_end(gpu_bound=True)
    before, after = run(program), run(program, "drop_sync")
    waited = sum(call.end_ns - call.start_ns for call in before.timeline.calls if call.call.waits)
    assert waited > 0.5 * before.total_ns
    assert 0 < before.total_ns - after.total_ns < 0.01 * before.total_ns


def test_an_item_at_the_end_of_a_launch_bound_step_costs_what_the_host_spends_on_it() -> None:
    program = item_at_end(gpu_bound=False)
    before, after = run(program), run(program, "drop_sync")
    items = [made for made in before.timeline.operators if made.operator.role == "item"]
    spent = sum(made.end_ns - made.start_ns for made in items)
    assert before.total_ns - after.total_ns == pytest.approx(spent, rel=0.35)


def test_the_replay_of_a_trace_knows_what_a_remedy_saves() -> None:
    errors = np.abs([each.points for seed in range(40) for each in predictions(seed)])
    assert np.median(errors) <= 0.1
    assert np.quantile(errors, 0.95) <= 2
