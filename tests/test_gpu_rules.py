"""Rules that need a GPU, on recordings of the synthetic machine: found in the problem, and the twin has no warning."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.ingest import open_path
from tests.synthetic import Program, bare, recording, trace
from tests.synthetic.programs import pairs


@cache
def diagnosed(program: Any, watched: bool) -> Diagnosis:
    place = Path(mkdtemp()) / "run"
    if watched:
        recording(program, place)
    else:
        trace(program, place)
    return diagnose(open_path(place), load_rules(), Config(preview=True))


WATCHED = pytest.mark.parametrize("watched", [True, False], ids=["recording", "trace"])


@WATCHED
@pytest.mark.parametrize("rule", pairs.PAIRS)
def test_the_problem_is_found(rule: str, watched: bool) -> None:
    diagnosis = diagnosed(pairs.PAIRS[rule][0], watched)
    if rule in pairs.RECORDED_ONLY and not watched:
        assert rule in {missing.rule for missing in diagnosis.not_measured}
    else:
        assert rule in {finding.rule for finding in diagnosis.findings}


@WATCHED
@pytest.mark.parametrize("rule", pairs.PAIRS)
def test_the_twin_has_no_warning(rule: str, watched: bool) -> None:
    found = diagnosed(pairs.PAIRS[rule][1], watched).findings
    assert not [f.rule for f in found if f.rule == rule or f.severity != "info"]


@WATCHED
@pytest.mark.parametrize("name", pairs.VARIANTS)
def test_a_neighbour_has_its_findings_and_no_other_warning(name: str, watched: bool) -> None:
    program, wanted = pairs.VARIANTS[name]
    found = diagnosed(program, watched).findings
    assert wanted <= {finding.rule for finding in found}
    assert {finding.rule for finding in found if finding.severity != "info"} <= wanted


def marked(rule: str) -> set[tuple[str, int]]:
    """Lines of the programs that are marked as this rule's problem."""
    files = sorted(Path(pairs.__file__).parent.glob("*.py"))
    text = [(file.name, number, line) for file in files for number, line in enumerate(file.read_text().splitlines(), 1)]
    return {(name, number) for name, number, line in text if rule in line.partition("# problem:")[2].split()}


@pytest.mark.parametrize("rule", [rule for rule in pairs.PAIRS if marked(rule)])
def test_a_problem_is_one_finding_on_its_line(rule: str) -> None:
    """Light steps have their lines from the detail steps: not once with the line and once without."""
    (found,) = (finding for finding in diagnosed(pairs.PAIRS[rule][0], True).findings if finding.rule == rule)
    assert found.where is not None
    assert (found.where.file, found.where.line) in marked(rule)


@pytest.mark.parametrize("rule", ["GD301", "GD302", "GD303"])
def test_what_a_line_costs_counts_every_profiled_step(rule: str) -> None:
    (found,) = (finding for finding in diagnosed(pairs.PAIRS[rule][0], True).findings if finding.rule == rule)
    assert found.where is not None
    assert (found.where.precision, found.count) == ("call", {"GD301": 3}.get(rule, 1))


@WATCHED
def test_tf32_and_half_precision_are_one_finding_worth_no_less_than_its_part(watched: bool) -> None:
    found = {finding.rule: finding for finding in diagnosed(pairs.PAIRS["GD401"][0], watched).findings}
    assert found["GD401"].explained_by == found["GD402"].fingerprint
    assert found["GD401"].saving is not None
    assert found["GD402"].saving is not None
    assert found["GD402"].saving.ns_per_step >= found["GD401"].saving.ns_per_step


@cache
def real_step_ns(program: Program) -> float:
    """What a step takes without a profiler, once it has found its pace."""
    steps = bare(program, steps=24).steps[8:]
    return (steps[-1].end_ns - steps[0].start_ns) / len(steps)


@WATCHED
@pytest.mark.parametrize("reads", [True, False], ids=["reads", "runs ahead"])
@pytest.mark.parametrize("rule", pairs.PRICED)
def test_a_price_holds_against_the_twin_also_when_the_host_runs_ahead(rule: str, reads: bool, watched: bool) -> None:
    problem, twin = pairs.PAIRS[rule]
    whole = real_step_ns(problem)
    truth = whole - real_step_ns(twin)
    diagnosis = diagnosed(problem, watched) if reads else unread(rule, watched)
    saving = next(finding.saving for finding in diagnosis.findings if finding.rule == rule)
    assert saving is not None
    assert truth * (0.97 if saving.is_bound else 0.5) <= saving.ns_per_step <= 2 * truth
    assert saving.share == pytest.approx(saving.ns_per_step / whole, rel=0.05)


@cache
def unread(rule: str, watched: bool) -> Diagnosis:
    return diagnosed(pairs.unread(pairs.PAIRS[rule][0]), watched)


@WATCHED
def test_a_host_that_runs_ahead_does_not_make_steps_shorter_than_their_work(watched: bool) -> None:
    diagnosis = unread("GD407", watched)
    told = diagnosis.run.step_ns if watched else diagnosis.run.profiled_step_ns
    assert told == pytest.approx(real_step_ns(pairs.PAIRS["GD407"][0]), rel=0.05)
    assert any("the host runs ahead" in note for note in diagnosis.run.integrity)


@WATCHED
def test_a_slow_kernel_is_explained_by_the_sizes_it_got(watched: bool) -> None:
    found = {finding.rule: finding for finding in diagnosed(pairs.PAIRS["GD407"][0], watched).findings}
    assert found["GD207"].explained_by == found["GD407"].fingerprint


def test_what_a_round_trip_costs_is_one_problem() -> None:
    problem, twin = pairs.PAIRS["GD307"]
    found = {finding.rule: finding for finding in diagnosed(problem, True).findings}
    saving, truth = found["GD307"].saving, real_step_ns(problem) - real_step_ns(twin)
    assert saving is not None
    assert truth * 0.97 <= saving.ns_per_step <= 1.5 * truth
    others = [finding for rule, finding in found.items() if rule in ("GD301", "GD302")]
    assert len(others) == 2
    assert {finding.explained_by for finding in others} == {found["GD307"].fingerprint}


def test_a_launch_bound_step_shows_the_layers_of_the_host_and_what_waits_for_the_device() -> None:
    (found,) = (finding for finding in diagnosed(pairs.PAIRS["GD202"][0], True).findings if finding.rule == "GD202")
    (table,) = (table for table in found.evidence if table.title.startswith("What the host did"))
    assert [row[0] for row in table.rows][:3] == ["python", "operators", "launch calls"]
    assert found.remedy is not None
    assert "No call of the step waits for the device" in " ".join(found.remedy.text.split())


@cache
def whole_step_ns(program: Program) -> float:
    """What a step takes in the long run, what the device still has to do at the end included."""

    def run_ns(steps: int) -> int:
        made = bare(program, steps=steps)
        return max(made.steps[-1].end_ns, *(activity.end_ns for activity in made.activities))

    return (run_ns(44) - run_ns(20)) / 24


@WATCHED
def test_a_read_at_the_end_of_a_step_that_the_gpu_bounds_is_no_finding(watched: bool) -> None:
    program, _ = pairs.VARIANTS["a step of its own pace with a read at its end"]
    whole = whole_step_ns(program)
    assert whole - whole_step_ns(pairs.unread(program)) < 0.01 * whole
    diagnosis = diagnosed(program, watched)
    assert "GD301" not in {finding.rule for finding in diagnosis.findings}
    assert "GD301" in {rule.rule for rule in diagnosis.passed}


def test_the_same_read_in_a_launch_bound_step_is_one_with_the_right_saving() -> None:
    program, _ = pairs.VARIANTS["a launch-bound step with a read at its end"]
    truth = whole_step_ns(program) - whole_step_ns(pairs.unread(program))
    assert truth > 0.03 * whole_step_ns(program)
    (saving,) = (finding.saving for finding in diagnosed(program, True).findings if finding.rule == "GD301")
    assert saving is not None and saving.grade == "simulated"
    assert saving.ns_per_step == pytest.approx(truth, rel=0.1)
    assert (saving.low_ns or 0) <= truth <= 1.1 * (saving.high_ns or 0)
