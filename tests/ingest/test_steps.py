from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.ingest import steps
from gpudoctor.ingest.watch import Backward, Batch, Compilation, Mark, OptimizerStep, OwnWork, Span, WatchLog


def loop(count: int, step_ns: int = 1000) -> WatchLog:
    """A plain loop: batch, backward, optimizer; each step lasts `step_ns`."""
    log = WatchLog()
    for i in range(count):
        t = i * step_ns
        log.batches.append(Batch(t, t + 100, 0, 0, i, 8, None, None))
        log.backwards.append(Backward(t + 400, t + 700))
        log.optimizer_steps.append(OptimizerStep(t + 800, t + step_ns, 7, False))
    return log


def test_a_plain_loop_is_cut_at_the_optimizer_and_its_phases_are_measured() -> None:
    rows, batches = steps.tables(loop(5), [])
    assert [row["dur_ns"] for row in rows] == [1000] * 5
    last = rows[-1]
    assert (last["input_ns"], last["backward_ns"], last["optimizer_ns"], last["batches"]) == (100, 300, 200, 1)
    assert {row["source"] for row in rows} == {"optimizer"}
    assert [batch["step"] for batch in batches] == [0, 1, 2, 3, 4]


def test_the_first_two_steps_and_the_compile_phase_are_warm_up() -> None:
    log = loop(12)
    log.compilations = [Compilation(300, 390, "0/0", "dynamo"), Compilation(3300, 3390, "0/1", "dynamo")]
    rows, _ = steps.tables(log, [])
    assert [row["step"] for row in rows if row["warmup"]] == [0, 1, 2, 3]
    assert rows[3]["compile_ns"] == 90


def test_a_late_recompile_is_not_warm_up() -> None:
    log = loop(12)
    log.compilations = [Compilation(9300, 9390, "0/1", "dynamo")]
    rows, _ = steps.tables(log, [])
    assert [row["step"] for row in rows if row["warmup"]] == [0, 1]


def test_own_work_at_a_boundary_is_no_part_of_the_step_and_marks_it() -> None:
    log = loop(8)
    log.own_work = [OwnWork(3000, 3050, 0, "start"), OwnWork(5000, 5500, 0, "stop")]
    log.marks = [Mark(3050, 3, 0), Mark(4000, 4, 0)]
    rows, _ = steps.tables(log, [{"label": "detail", "taken": [3, 4]}])
    assert [row["observation"] for row in rows[3:6]] == ["detail", "detail", "disturbed"]
    assert [row["dur_ns"] for row in rows[3:6]] == [950, 1000, 500]


def test_an_abandoned_burst_leaves_a_disturbed_step() -> None:
    log = loop(6)
    log.own_work = [OwnWork(3000, 3050, 0, "start")]
    log.marks = [Mark(3050, 3, 0)]
    rows, _ = steps.tables(log, [])
    assert rows[3]["observation"] == "disturbed"


def test_a_profiled_window_that_is_not_exactly_one_step_times_nothing() -> None:
    log = loop(8)
    for step in log.backwards[2:5]:  # the recorder took backward calls for the ends of steps, 300 ns early
        log.own_work.append(OwnWork(step.end_ns, step.end_ns + 10, 0, "start"))
        log.marks.append(Mark(step.end_ns + 10, len(log.marks), 0))
    rows, _ = steps.tables(log, [{"label": "light", "taken": [0, 1, 2]}])
    assert [row["observation"] for row in rows[2:6]] == ["disturbed", "disturbed", "disturbed", "bare"]
    assert steps.profiled(rows, log) == {}


def test_profiled_steps_are_found_by_their_time_not_by_the_recorders_number() -> None:
    log = loop(8)
    log.own_work = [OwnWork(3000, 3050, 0, "start"), OwnWork(5000, 5500, 0, "stop")]
    log.marks = [Mark(3050, 13, 0), Mark(4000, 14, 0)]
    rows, _ = steps.tables(log, [{"label": "detail", "taken": [13, 14]}])
    assert {key: row["step"] for key, row in steps.profiled(rows, log).items()} == {(0, 13): 3, (0, 14): 4}


def test_a_closures_forward_and_backward_are_no_optimizer_time() -> None:
    log = WatchLog()
    for i in range(3):
        t = i * 1000
        log.backwards.append(Backward(t + 400, t + 700))
        log.optimizer_steps.append(OptimizerStep(t + 100, t + 1000, 7, False))
    rows, _ = steps.tables(log, [])
    assert (rows[1]["backward_ns"], rows[1]["optimizer_ns"]) == (300, 300)


def test_optimizers_stepped_in_backward_are_counted_once() -> None:
    log = WatchLog()
    for i in range(3):
        t = i * 1000
        log.backwards.append(Backward(t, t + 900))
        log.optimizer_steps += [OptimizerStep(t + 100 * k, t + 100 * k + 50, k, True) for k in range(1, 5)]
    rows, _ = steps.tables(log, [])
    assert (rows[1]["backward_ns"], rows[1]["optimizer_ns"]) == (700, 200)


def test_stated_steps_win_over_optimizers() -> None:
    log = loop(4)
    log.stated = [Span(0, 2000), Span(2000, 4000)]
    rows, _ = steps.tables(log, [])
    assert [row["dur_ns"] for row in rows] == [2000, 2000]
    assert rows[0]["source"] == "call"


def test_without_optimizers_backward_ends_a_step_and_without_backward_a_batch() -> None:
    log = loop(5)
    log.optimizer_steps = []
    assert steps.cut(log) == ([700, 1700, 2700, 3700, 4700], "backward")
    log.backwards = []
    assert steps.cut(log) == ([1000, 2000, 3000, 4000], "dataloader")


def test_optimizer_in_backward_counts_once_a_backward_call() -> None:
    log = WatchLog()
    for i in range(3):
        t = i * 1000
        log.backwards.append(Backward(t, t + 900))
        log.optimizer_steps += [OptimizerStep(t + 100 * k, t + 100 * k + 50, k, True) for k in range(1, 5)]
    ends, source = steps.cut(log)
    assert ends == [900, 1900, 2900]
    assert source == "optimizer"


def test_nothing_seen_gives_no_steps() -> None:
    assert steps.tables(WatchLog(), []) == ([], [])


SPANS = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 60)), max_size=12)


@given(SPANS, SPANS)
def test_cutting_holes_out_equals_a_count_by_nanosecond(raw: list[tuple[int, int]], cut: list[tuple[int, int]]) -> None:
    spans, holes = ([Span(a, a + d) for a, d in pairs] for pairs in (raw, cut))

    def inside(of: list[Span], t: int) -> bool:
        return any(span.start_ns <= t < span.end_ns for span in of)

    left = steps.without(steps.merge(spans), steps.merge(holes))
    assert [t for t in range(400) if inside(left, t)] == [
        t for t in range(400) if inside(spans, t) and not inside(holes, t)
    ]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 200)), max_size=30),
    st.integers(0, 500),
    st.integers(0, 700),
)
def test_covered_never_exceeds_the_window_and_equals_a_count_by_nanosecond(
    raw: list[tuple[int, int]], start: int, length: int
) -> None:
    spans = [Span(a, a + d) for a, d in raw]
    end = start + length
    expected = sum(any(span.start_ns <= t < span.end_ns for span in spans) for t in range(start, end))
    assert steps.covered(steps.merge(spans), start, end) == expected
