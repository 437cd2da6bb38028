from __future__ import annotations

from typing import Any

from gpudoctor.analysis.profiler_cost import event_cost_ns, predicted_step_ns


def step(number: int, dur_ns: int, observation: str = "bare", warmup: bool = False) -> dict[str, Any]:
    return {"step": number, "dur_ns": dur_ns, "observation": observation, "warmup": warmup, "compile_ns": 0}


def test_the_cost_is_fitted_on_the_neighbours_of_each_burst() -> None:
    # the machine is half as fast at first: both bursts still say 100 ns an event
    slow, fast = [step(n, 20_000) for n in range(12)], [step(n, 10_000) for n in range(13, 24)]
    steps = [*slow[:6], step(6, 21_000, "light"), *slow[7:12], step(12, 10_000), *fast[:5]]
    steps += [step(18, 11_000, "light"), *fast[6:]]
    assert event_cost_ns(steps, {6: 10, 18: 10}, 7) == 100


def test_warm_up_disturbed_and_compiling_steps_are_no_neighbours() -> None:
    steps = [step(0, 90_000, warmup=True), step(1, 11_000, "light"), step(2, 70_000, "disturbed")]
    assert event_cost_ns(steps, {1: 10}, 7) == 7
    assert event_cost_ns([*steps, step(3, 10_000)], {1: 10}, 7) == 100


def test_the_prediction_takes_the_cost_off_and_is_never_negative() -> None:
    steps = [step(0, 10_000), step(1, 11_000, "light"), step(2, 11_400, "light")]
    assert predicted_step_ns(steps, {1: 10, 2: 10}, 100.0) == 10_200
    assert predicted_step_ns(steps, {1: 10, 2: 10}, 1e9) == 0
    assert predicted_step_ns(steps, {1: 10, 2: 10}, None) is None
    assert predicted_step_ns([step(0, 10_000)], {}, 100.0) is None


def test_a_faster_light_step_costs_nothing_not_less() -> None:
    assert event_cost_ns([step(0, 10_000), step(1, 9_000, "light")], {1: 10}, 7) == 0
