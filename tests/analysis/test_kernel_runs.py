from __future__ import annotations

from gpudoctor.profile import frame
from tests.analysis.timelines import US, Timeline


def stretch(line: Timeline, begin: int, count: int, thread: int = 1) -> None:
    """Kernels of 3 µs, one every 20 µs, each 6 µs after its call began."""
    for number in range(count):
        at = begin + 20 * number
        line.launch(at, at + 6, at + 9, thread)


def runs(line: Timeline) -> list[tuple[int, int, int, int]]:
    """(begin, duration, kernels, time in kernels) in microseconds."""
    rows = line.derive()["kernel_runs"]
    times = [(rows[name] / US).astype(int).tolist() for name in ("start_ns", "dur_ns", "kernel_ns")]
    return list(zip(times[0], times[1], rows["kernels"].tolist(), times[2], strict=True))


def test_short_kernels_that_the_device_waits_for_are_one_run() -> None:
    line = Timeline(1000)
    stretch(line, 100, 5)
    assert runs(line) == [(106, 83, 5, 15)]


def test_a_long_kernel_and_a_pause_end_a_run() -> None:
    line = Timeline(2000)
    stretch(line, 100, 3)
    line.launch(160, 166, 400)
    stretch(line, 450, 2)
    stretch(line, 800, 2)
    assert [run[2] for run in runs(line)] == [3, 2, 2]


def test_kernels_that_were_queued_are_no_run() -> None:
    line = Timeline(1000)
    for number in range(5):
        line.launch(5 * number, 500 + 4 * number, 503 + 4 * number)
    assert runs(line) == []


def test_a_busy_second_stream_and_graph_replays_are_no_run() -> None:
    line = Timeline(1000)
    stretch(line, 100, 3)
    line.kernel(90, 200, stream=8)
    graph = line.call("cudaGraphLaunch", 300, 305)
    line.kernel(310, 312, graph, graph=True)
    line.kernel(313, 315, graph, graph=True)
    assert runs(line) == []


def test_a_wait_of_the_host_splits_a_run() -> None:
    line = Timeline(1000)
    stretch(line, 100, 3)
    line.op("enumerate(DataLoader)#x.__next__", 152, 158)
    stretch(line, 160, 3)
    assert [run[2] for run in runs(line)] == [3, 3]


def test_a_run_is_at_the_line_that_most_of_its_kernels_come_from() -> None:
    line = Timeline(1000)
    for number, where in enumerate((7, 9, 9)):
        op = line.op("aten::add", 100 + 20 * number, 110 + 20 * number, file="train.py", line=where, function="f")
        call = line.call("cudaLaunchKernel", 100 + 20 * number, 104 + 20 * number, op=op)
        line.kernel(106 + 20 * number, 109 + 20 * number, call, op=op, file="train.py", line=where)
    (row,) = line.derive()["kernel_runs"].to_dict("records")
    assert (row["file"], row["line"], row["function"]) == ("train.py", 9, "f")


def test_the_queue_of_a_host_that_is_late_and_of_one_that_is_ahead() -> None:
    late = Timeline(1000)
    stretch(late, 100, 4)
    (row,) = late.derive()["launch_queue"].to_dict("records")
    assert (row["launches"], row["median_queue_ns"], row["starved_share"], row["host_ns"]) == (4, 6 * US, 1.0, 16 * US)
    ahead = Timeline(1000)
    for number in range(4):
        ahead.launch(10 * number, 20 + 200 * number, 220 + 200 * number)
    (row,) = ahead.derive()["launch_queue"].to_dict("records")
    assert (row["launches"], row["starved_share"]) == (4, 0.5)


def test_a_graph_replay_is_one_launch() -> None:
    line = Timeline(1000)
    graph = line.call("cudaGraphLaunch", 100, 140)
    for number in range(3):
        line.kernel(150 + 10 * number, 155 + 10 * number, graph, graph=True)
    assert line.derive()["launch_queue"]["launches"].tolist() == [1]


def test_costs_of_operators_are_summed_by_inputs_and_place() -> None:
    line = Timeline(1000)
    for number, shapes in enumerate(("[[2]]", "[[2]]", "[[3]]", None)):
        op = line.op("aten::add", 10 * number, 10 * number + 5, shapes=shapes)
        line.ops[op]["self_ns"] = 5 * US
        line.kernel(500 + 10 * number, 504 + 10 * number, op=op)
    rows = line.derive()["op_costs"].sort_values("shapes")
    assert rows["calls"].tolist() == [2, 1, 1]
    assert rows["device_ns"].tolist() == [8 * US, 4 * US, 4 * US]
    assert rows["self_ns"].tolist() == [10 * US, 5 * US, 5 * US]
    assert rows["flops"].isna().all()


def test_without_a_device_nothing_is_said_of_kernels() -> None:
    line = Timeline(100)
    line.op("aten::add", 0, 5)
    rows = line.derive()["op_costs"]
    assert rows["calls"].tolist() == [1]
    assert rows["device_ns"].isna().all()
    assert list(rows.columns) == list(frame("op_costs", []).columns)
