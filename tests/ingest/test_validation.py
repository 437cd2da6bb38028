from __future__ import annotations

from gpudoctor.ingest import steps
from gpudoctor.ingest.validation import passes
from gpudoctor.ingest.watch import Backward, Batch, EpochEnd, OptimizerStep, WatchLog


def log(events: str) -> WatchLog:
    """One letter is 100 ns: t and v batches of two loaders, T and V their ends, B backward, o the optimizer."""
    made, epochs, positions = WatchLog(), {"t": 0, "v": 0}, {"t": 0, "v": 0}
    for at, event in enumerate(events):
        begun, end, name = at * 100, at * 100 + 50, event.lower()
        loader = "tv".find(name)
        if event in "tv":
            made.batches.append(Batch(begun, end, loader, epochs[name], positions[name], 8, None, None))
            positions[name] += 1
        elif event in "TV":
            made.epoch_ends.append(EpochEnd(begun, end, loader, epochs[name]))
            epochs[name] += 1
        elif event == "B":
            made.backwards.append(Backward(begun, end))
        elif event == "o":
            made.optimizer_steps.append(OptimizerStep(begun, end, 7, False))
    return made


def found(events: str) -> list[tuple[int, int]]:
    watched = log(events)
    return [(one.start_ns // 100, one.end_ns // 100) for one in passes(watched, watched.batches)]


def test_a_pass_without_backward_is_validation_until_training_goes_on() -> None:
    assert found("tBotBoT vvvV..tBotBo") == [(8, 14)]


def test_a_pass_that_was_broken_off_is_validation_too() -> None:
    assert found("tBotBo vv..tBo") == [(7, 11)]


def test_a_second_loader_that_gives_a_batch_to_each_step_is_none() -> None:
    assert found("tvBotvBotvBo") == []


def test_batches_that_are_kept_and_trained_on_afterwards_are_none() -> None:
    assert found("tttT BoBoBo") == []


def test_a_run_that_never_trains_has_no_validation() -> None:
    assert found("vvvV vvvV") == []


def test_validation_between_steps_is_no_part_of_them() -> None:
    rows, batches = steps.tables(log("tBotBovvvV.tBotBo"), [])
    assert [row["dur_ns"] for row in rows] == [250, 300, 250, 300]
    assert [row["validation_ns"] for row in rows] == [0, 0, 500, 0]
    assert [row["batches"] for row in rows] == [1, 1, 1, 1]
    assert [batch["step"] for batch in batches if batch["validation"]] == [None] * 3
    assert {row["observation"] for row in rows} == {"bare"}


def test_validation_inside_a_step_leaves_it_out_of_the_times() -> None:
    rows, _ = steps.tables(log("tBo tvvvVBo tBo"), [])
    assert [row["observation"] for row in rows] == ["bare", "disturbed", "bare"]
    assert rows[1]["validation_ns"] == 350
    assert rows[1]["input_ns"] == 50
