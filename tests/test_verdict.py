"""The verdict: one or two sentences."""

from __future__ import annotations

from gpudoctor.diagnosis import Finding, Location, Replay, Run, Saving
from gpudoctor.verdict import verdict

RUN = Run("train.py", steps=30, step_ns=79_000_000)


def finding(line: int, ns: int, adds: int | None = None, **more: object) -> Finding:
    saving = Saving(ns, ns / 79_000_000, "simulated", adds_ns=adds, **more)  # type: ignore[arg-type]
    return Finding("GD1", "name", "The step waits.", "warning", "message", Location("train.py", line), saving=saving)


def replay(ns: int, low: int | None = None) -> Replay:
    saving = Saving(ns, ns / 79_000_000, "simulated", low_ns=ns if low is None else low, high_ns=ns)
    return Replay(6, 0.0002, 0.004, 0.003, together=saving)


def say(findings: list[Finding], replay: Replay | None = None) -> str:
    return verdict(RUN, findings, 40, "", replay)


def test_the_largest_saving_is_named_and_fixes_that_were_replayed_together_are_one_number() -> None:
    findings = [finding(17, 20_000_000, 20_000_000), finding(9, 15_000_000, 11_000_000), finding(3, 1_000_000, 0)]
    assert say(findings, replay(31_000_000)) == (
        "A step takes 79.0 ms. The largest single saving is at most 20.0 ms of it (25 %): at train.py:17, the step "
        "waits. All 3 fixes together save at most 31.0 ms (39 %)."
    )
    assert "Both fixes together save 25.0 to 31.0 ms (32 to 39 %)." in say(findings[:2], replay(31_000_000, 25_000_000))


def test_findings_that_could_not_be_replayed_are_not_counted_in() -> None:
    findings = [finding(17, 20_000_000, 20_000_000), finding(9, 15_000_000, 11_000_000), finding(3, 1_000_000)]
    assert "The 2 fixes that a replay can price together save at most 31.0 ms (39 %)." in say(
        findings, replay(31_000_000)
    )


def test_without_a_replay_of_two_the_largest_single_saving_is_named_and_nothing_is_added_up() -> None:
    assert say([finding(17, 20_000_000), finding(9, 15_000_000)]) == (
        "A step takes 79.0 ms. The largest single saving is at most 20.0 ms of it (25 %): at train.py:17, "
        "the step waits."
    )
    alone = finding(17, 20_000_000, 20_000_000, low_ns=10_000_000, high_ns=20_000_000)
    assert "The largest single saving is 10.0 to 20.0 ms of it (13 to 25 %)" in say([alone], replay(20_000_000))


def test_a_range_from_nothing_and_a_model_keep_their_words() -> None:
    assert "is at most 20.0 ms of it" in say([finding(17, 18_000_000, low_ns=0, high_ns=20_000_000)])
    assert "is about 20.0 ms of it" in say([finding(17, 20_000_000, basis="model: half")])
    model = finding(17, 15_000_000, basis="model: half", low_ns=10_000_000, high_ns=20_000_000)
    assert "is about 10.0 to 20.0 ms of it (13 to 25 %)" in say([model])


def test_what_few_steps_have_is_said_to_be_a_mean() -> None:
    saving = Saving(9_000_000, 0.75)
    finding = Finding("GD601", "loader-stall", "The step waits for the DataLoader", "warning", "m", saving=saving)
    text = verdict(Run("train.py", steps=50, step_ns=4_000_000), [finding], 1, "")
    assert "at most 9.00 ms a step on average, as few steps have it all (75 %)" in text
