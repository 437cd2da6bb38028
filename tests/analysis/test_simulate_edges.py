"""Each kind of edge of the dependency graph holds when something before it is taken away, and only what it should."""

from __future__ import annotations

import numpy as np
import pytest

from gpudoctor.analysis.derive import derived
from gpudoctor.analysis.simulate.edges import RUN
from gpudoctor.analysis.simulate.edits import Edit, HostTime
from gpudoctor.analysis.simulate.order import ordered
from gpudoctor.analysis.simulate.path import opaque_share
from gpudoctor.analysis.simulate.replay import Player
from gpudoctor.analysis.simulate.targets import edit_of
from tests.analysis.tiny_traces import ENGINE, MAIN, OTHER, Tiny, end_us, step_us


def host_time(thread: int, start_us: float, end_us: float) -> HostTime:
    return HostTime(np.array([thread]), np.array([start_us * 1000]), np.array([end_us * 1000]))


def test_host_time_counts_where_the_gpu_waits_for_launches() -> None:
    tiny = Tiny()
    tiny.step(0, 200)
    tiny.launch(10, 20, 30)
    tiny.launch(100, 110, 120)  # 80 µs of Python in between
    graph = tiny.graph()
    assert step_us(graph) == [200]
    edit = Edit.nothing(graph)
    edit.host.append(host_time(MAIN, 20, 90))
    assert step_us(graph, edit) == [130]
    edit.scale[:] = 0.0
    assert step_us(graph, edit) == [130]  # kernels were not what it waited for


def test_on_a_gpu_that_is_behind_host_time_costs_nothing_and_kernels_count() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    for number in range(5):
        tiny.launch(10 + 15 * number, 20 + 101 * number, 120 + 101 * number)
    graph = tiny.graph()
    assert end_us(graph) == pytest.approx(524)
    edit = Edit.nothing(graph)
    edit.host.append(host_time(MAIN, 25, 90))
    assert end_us(graph, edit) == pytest.approx(524)
    edit.scale[2] = 0.5
    assert end_us(graph, edit) == pytest.approx(474)


def test_a_dropped_sync_exposes_the_next_one() -> None:
    tiny = Tiny()
    tiny.step(0, 400)
    tiny.launch(10, 20, 220)
    tiny.call(30, 225, "cudaStreamSynchronize", kind="sync")
    tiny.op(226, 300)
    tiny.call(310, 315, "cudaDeviceSynchronize", kind="sync")  # finds all done
    graph = tiny.graph()
    assert step_us(graph) == [400]
    edit = edit_of(tiny.profile(), graph, "drop", "runtime_calls", [1])
    assert edit is not None
    # the host is at the second call 195 µs earlier, and now waits there for the kernel
    assert step_us(graph, edit) == [pytest.approx(220 + 5 + 85, abs=6)]


def test_a_pageable_copy_ties_its_call_to_its_own_end() -> None:
    tiny = Tiny()
    tiny.step(0, 400)
    tiny.launch(10, 20, 120)
    call = tiny.call(30, 205, "cudaMemcpyAsync", kind="memcpy")
    tiny.kernel(121, 200, call, name="Memcpy HtoD", kind="memcpy", pageable=True, direction="h2d")
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.scale[0] = 0.5
    assert step_us(graph, edit) == [350]


def test_a_copy_on_a_stream_of_its_own_holds_no_kernel_but_a_device_wide_sync() -> None:
    def made(name: str) -> tuple[float, float]:
        tiny = Tiny()
        tiny.step(0, 900)
        call = tiny.call(10, 15, "cudaMemcpyAsync", kind="memcpy")
        tiny.kernel(20, 520, call, name="Memcpy HtoD", kind="memcpy", pageable=False, direction="h2d")
        tiny.launch(30, 521, 621)
        tiny.call(50, 625, name, kind="sync")
        graph = tiny.graph()
        edit = edit_of(tiny.profile(), graph, "overlap", "kernels", [0])
        assert edit is not None
        return step_us(graph)[0], step_us(graph, edit)[0]

    assert made("cudaStreamSynchronize") == (900, pytest.approx(900 - 625 + 145, abs=15))
    assert made("cudaDeviceSynchronize") == (900, pytest.approx(900 - 625 + 525, abs=15))


def test_the_loop_waits_for_the_autograd_thread() -> None:
    tiny = Tiny()
    tiny.step(0, 500)
    for number in range(8):
        tiny.op(10 + number, 10.5 + number)
    for number in range(5):
        at = 40 + 60 * number
        tiny.op(at, at + 50, "autograd::engine::evaluate_function: MulBackward0", ENGINE)
    tiny.op(360, 400)
    graph = tiny.graph()
    assert graph.events.main == MAIN
    assert graph.events.autograd == (ENGINE,)
    edit = Edit.nothing(graph)
    edit.host.append(host_time(ENGINE, 100, 150))
    assert step_us(graph, edit) == [450]


def test_an_event_holds_the_next_launch_of_the_other_stream() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    tiny.launch(10, 20, 420)
    tiny.call(20, 21, "cudaEventRecord", kind="event")
    tiny.call(22, 23, "cudaStreamWaitEvent", kind="event")
    tiny.launch(30, 421, 521, stream=20)
    tiny.launch(50, 60, 70, stream=30)
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.scale[0] = 0.5
    assert end_us(graph, edit) == pytest.approx(321)


def test_the_devices_own_record_says_which_stream_waits() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    tiny.launch(10, 20, 420)
    record = tiny.call(20, 21, "cudaEventRecord", kind="event")
    wait = tiny.call(22, 23, "cudaStreamWaitEvent", kind="event")
    tiny.launch(30, 40, 50, stream=30)  # not the one that waits
    tiny.launch(50, 421, 521, stream=20)
    tiny.rows["stream_waits"].append(
        {"correlation": wait, "stream": 20, "waits_for_stream": 7, "waits_for_record": record, "device": 0}
    )
    graph = tiny.graph()
    (pair,) = graph.begins.waited
    assert [int(graph.events.activities.stream[row]) for row in pair] == [20, 7]
    edit = Edit.nothing(graph)
    edit.scale[np.flatnonzero(graph.events.activities.stream == 7)] = 0.5
    assert end_us(graph, edit) == pytest.approx(321)


def test_a_full_queue_holds_the_host() -> None:
    tiny = Tiny()
    tiny.step(0, 9000)
    length, limit = 70.0, 500
    for number in range(560):
        begin = 12 + number * (length + 1)
        room = 12 + (number - limit) * (length + 1) + length if number >= limit else 0.0
        at = 6 + 4 * number if number < limit else max(6 + 4 * limit, room - 60 + 1)
        tiny.kernel(begin, begin + length, tiny.call(at, max(at + 3, room + 1)))
    graph = tiny.graph()
    assert graph.constants.queue_seen
    assert graph.constants.queue == pytest.approx(limit, abs=10)


def test_graph_launches_keep_the_order_of_their_stream() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    call = tiny.call(10, 30, "cudaGraphLaunch", kind="graph_launch")
    for number in range(10):
        tiny.kernel(40 + 11 * number, 50 + 11 * number, call)
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.scale[3] = 0.0
    assert end_us(graph) == pytest.approx(149)
    assert end_us(graph, edit) == pytest.approx(139)


def test_a_wait_that_nothing_explains_stays_and_is_counted() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    for number in range(30):
        tiny.launch(10 + 20 * number, 20 + 20 * number, 22 + 20 * number)
    tiny.launch(650, 1660, 1670)  # a millisecond late
    graph = tiny.graph()
    times = Player(graph).anchored()
    assert opaque_share(graph, times) == pytest.approx(0.58, abs=0.05)
    edit = Edit.nothing(graph)
    edit.scale[:] = 0.5
    assert end_us(graph, edit) == pytest.approx(1665)


def test_work_from_before_the_recording_is_inherited_and_a_stream_without_launches_is_unexplained() -> None:
    def share(launches: bool) -> float:
        tiny = Tiny()
        tiny.step(0, 100)
        for number in range(10):
            tiny.kernel(5 + 101 * number, 105 + 101 * number, None)
        if launches:
            tiny.launch(50, 1016, 1116)
        graph = tiny.graph()
        return opaque_share(graph, Player(graph).anchored())

    assert share(launches=True) < 0.02
    assert share(launches=False) > 0.8


def test_threads_that_do_not_train_do_not_hold_the_end() -> None:
    tiny = Tiny()
    tiny.step(0, 300)
    tiny.launch(10, 20, 30)
    tiny.launch(250, 260, 270)
    for number in range(20):
        tiny.call(5 + 40 * number, 6 + 40 * number, "cudaEventQuery", OTHER, kind="event")
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.host.append(host_time(MAIN, 20, 240))
    assert end_us(graph) == 300
    assert end_us(graph, edit) == 80


def test_stretches_of_profiled_steps_do_not_shift_each_other() -> None:
    tiny = Tiny()
    tiny.step(0, 100)
    tiny.launch(10, 20, 30)
    tiny.launch(80, 90, 95)
    tiny.step(100, 5000, "bare")
    tiny.step(5000, 5100)
    tiny.launch(5010, 5020, 5030)
    tiny.launch(5080, 5090, 5095)
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.host.append(host_time(MAIN, 20, 70))
    assert step_us(graph, edit) == [50, 100]
    assert end_us(graph, edit) == 5100


@pytest.mark.parametrize("late_ns", [0, 1, 900])
def test_a_wait_that_ends_with_its_step_up_to_a_rounding_is_part_of_it(late_ns: int) -> None:
    tiny = Tiny()
    tiny.step(0, 500)
    tiny.launch(10, 20, 495)
    tiny.call(30, 500, "cudaDeviceSynchronize", kind="sync")
    tiny.rows["runtime_calls"][-1]["dur_ns"] += late_ns
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.scale[0] = 0.0
    assert step_us(graph, edit) == [pytest.approx(38, abs=10)]


def test_begins_and_ends_at_one_moment_keep_the_order_of_the_program() -> None:
    """In whole microseconds an end and the next begin lie on one moment; the wait between them must not get lost."""
    tiny = Tiny()
    tiny.step(0, 300)
    tiny.launch(10, 17, 117)
    tiny.call(16, 120, "cudaStreamSynchronize", kind="sync")
    tiny.op(120, 120)
    tiny.call(120, 120, "cudaEventQuery", kind="event")
    tiny.op(120, 200)
    graph = tiny.graph()
    edit = Edit.nothing(graph)
    edit.scale[0] = 0.5
    assert step_us(graph) == [300]
    assert step_us(graph, edit) == [250]


def test_a_trace_without_operators_has_a_critical_path() -> None:
    tiny = Tiny()
    tiny.step(0, 200)
    tiny.kernel(20, 150, tiny.call(10, 15))
    tiny.call(20, 160, "cudaDeviceSynchronize", kind="sync")
    profile = tiny.profile()
    made = derived(profile).table("critical_path")
    assert made["dur_ns"].sum() == 200_000
    assert made.loc[made["kind"].eq("device"), "dur_ns"].tolist() == [130_000]


def fed_loop() -> Tiny:
    """Two steps that compute for 100 µs and then wait for a batch of a worker process, which comes every 500 µs."""
    tiny = Tiny()
    for number in range(2):
        begin = 500 * number
        tiny.step(begin, begin + 500)
        tiny.op(begin + 10, begin + 110)
        tiny.op(begin + 120, begin + 490, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__")
    return tiny


def test_a_faster_loop_waits_longer_for_a_worker_till_the_same_moment() -> None:
    graph = fed_loop().graph()
    edit = Edit.nothing(graph)
    edit.host += [host_time(MAIN, 10, 110), host_time(MAIN, 510, 610)]
    assert end_us(graph, edit) == 1000
    edit.host += [host_time(MAIN, 120, 490), host_time(MAIN, 620, 990)]
    assert end_us(graph, edit) == pytest.approx(60)


def test_a_worker_that_has_batches_ready_earlier_has_all_later_ones_earlier() -> None:
    graph = fed_loop().graph()
    edit = Edit.nothing(graph)
    for start in (120, 620):
        edit.host.append(HostTime(np.array([MAIN]), np.array([start * 1e3]), np.array([(start + 370) * 1e3]), 0.5))
    assert end_us(graph, edit) == pytest.approx(1000 - 370)


def test_copies_in_one_direction_share_an_engine_and_serve_the_next_step() -> None:
    tiny = Tiny()
    for number in range(3):
        begin = 1000 * number
        tiny.step(begin, begin + 1000)
        call = tiny.call(begin + 10, begin + 15, "cudaMemcpyAsync", kind="memcpy")
        known = {"name": "Memcpy HtoD", "kind": "memcpy", "pageable": False, "direction": "h2d"}
        tiny.kernel(begin + 20, begin + 520, call, **known)
        tiny.launch(begin + 30, begin + 521, begin + 621)
        tiny.call(begin + 50, begin + 625, "cudaStreamSynchronize", kind="sync")
        tiny.op(begin + 640, begin + 990)
    graph = tiny.graph()
    edit = edit_of(tiny.profile(), graph, "overlap", "kernels", [0, 2, 4])
    assert edit is not None
    # the first batch is there; from then on a step takes as long as the copy for the next one
    assert step_us(graph, edit) == [pytest.approx(520, abs=10)] * 3


def test_nodes_are_numbered_along_their_edges_and_circles_lose_none_that_must_stay() -> None:
    random = np.random.default_rng(1)
    for _ in range(200):
        nodes, edges = int(random.integers(2, 40)), int(random.integers(1, 100))
        source, target = random.integers(0, nodes, edges), random.integers(1, nodes, edges)
        true_order = np.concatenate(([0], 1 + random.permutation(nodes - 1)))
        firm = (true_order[source] < true_order[target]) & (random.random(edges) < 0.5)
        key = random.integers(0, int(random.choice([1, 5, 1000])), nodes).astype(np.float64)
        place, kept = ordered(key, source, target, firm)
        assert sorted(place) == list(range(nodes))
        assert kept[firm].all()
        assert (place[source] < place[target])[kept].all()


@pytest.mark.parametrize("launched_us", [11, 90_000])
def test_one_launch_at_a_wrong_time_leaves_thousands_behind_it_in_order(launched_us: float) -> None:
    tiny = Tiny()
    tiny.step(0, 60_000)
    wrong = tiny.call(launched_us, launched_us + 5)
    tiny.kernel(14, 15, wrong)
    for number in range(4000):
        tiny.kernel(20 + 10 * number, 28 + 10 * number, tiny.call(16 + 10 * number, 17 + 10 * number))
    graph = tiny.graph()
    assert (graph.edges.kind == RUN).sum() == 4001
    assert (graph.edges.source < graph.edges.target).all()
    edit = Edit.nothing(graph)
    edit.scale[:] = 0.0
    assert end_us(graph, edit) <= end_us(graph)


def test_waits_that_go_round_in_a_circle_are_dropped_and_durations_are_not() -> None:
    """A copy that ended before its call began, as a wrong clock or a wrong correlation id has it."""
    tiny = Tiny()
    tiny.step(0, 300)
    tiny.launch(50, 20, 20)
    call = tiny.call(20, 20, "cudaMemcpy", kind="memcpy")
    tiny.kernel(20, 20, call, name="Memcpy HtoD", kind="memcpy", pageable=True, direction="h2d")
    tiny.call(20, 20, "cudaDeviceSynchronize", kind="sync")
    tiny.launch(20, 20, 20)
    graph = tiny.graph()
    assert (graph.edges.kind == RUN).sum() == 3
    assert step_us(graph) == [300]
