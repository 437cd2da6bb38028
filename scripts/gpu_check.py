"""Runs every sample and its healthy twin under gpudoctor on a GPU, and says whether each was judged rightly.

python scripts/gpu_check.py [--output FOLDER] [--only NAME ...] [--allow-cpu]

Exit codes: 0 all as expected; 1 a miss; 2 no GPU (or no such sample). The recordings, what each run printed, summary.md
and summary.json lie in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SAMPLES = ROOT / "samples"
TIMEOUT_S = 900  # a sample takes seconds; compiling for a GPU with a cold cache a minute or two
COLUMNS = ("sample", "rule", "expected", "found", "on its line", "twin silent", "step", "twin's step", "miss")


class UsageError(Exception):
    """Nothing can be run; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a sample's expected.toml says.

    Attributes:
        device: where the problem shows: "cpu" or "gpu"; null on both.
        together: rules that speak of the same problem.
    """

    sample: str
    rule: str
    file: str
    line: int
    device: str | None = None
    together: tuple[str, ...] = ()

    def shows_on(self, device: str) -> bool:
        """Whether the script is expected to be warned about on a device."""
        return self.device in (None, device)


@dataclass(frozen=True, slots=True)
class Ran:
    """One finished `gpudoctor check`: its exit code, and the Diagnosis as JSON (null when it printed none)."""

    code: int
    diagnosis: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a sample and its twin were judged; `misses` is empty when all is as expected."""

    sample: str
    rule: str
    expected: bool
    found: bool
    located: bool
    twin_silent: bool
    step_ns: int | None
    twin_step_ns: int | None
    misses: tuple[str, ...]


def expected_of(folder: Path) -> Expected:
    """Reads a sample's expected.toml."""
    facts = tomllib.loads((folder / "expected.toml").read_text(encoding="utf-8"))
    place = (folder.name, facts["rule"], facts["file"], facts["line"])
    return Expected(*place, facts.get("device"), tuple(facts.get("together", ())))


def judge(want: Expected, sick: Ran, twin: Ran, device: str) -> Verdict:
    """Compares what was found with what a sample says.

    Args:
        want: what is expected.
        sick: the run of train.py.
        twin: the run of train_fixed.py.
        device: "gpu" or "cpu": what the runs must have been on.
    """
    findings = _findings(sick, want.rule)
    found, located = bool(findings), any(_names(finding, want) for finding in findings)
    shows = want.shows_on(device)
    misses = [*_broken("train.py", sick, device), *_broken("train_fixed.py", twin, device)]
    if sick.diagnosis is not None:
        if shows and not found:
            misses.append(f"{want.rule} not found" + _unmeasured(sick, want.rule))
        elif shows and not located:
            misses.append(f"{want.rule} not at {want.file}:{want.line}")
        elif found and not shows:
            misses.append(f"{want.rule} found on a {device.upper()}")
        others = set(_warned(sick)) - {want.rule, *want.together}
        if others:
            misses.append(f"train.py also has {', '.join(sorted(others))}")
    loud = sorted({*_warned(twin), *(finding["rule"] for finding in _findings(twin, want.rule))})
    judged = not shows or want.rule in _ids(twin, "passed")
    if loud:
        misses.append(f"the twin has {', '.join(loud)}")
    elif twin.diagnosis is not None and not judged:
        misses.append(f"the twin did not pass {want.rule}" + _unmeasured(twin, want.rule))
    silent = twin.diagnosis is not None and not loud and judged
    times = (_step_ns(sick), _step_ns(twin))
    return Verdict(want.sample, want.rule, shows, found, located, silent, *times, tuple(misses))


def table(verdicts: list[Verdict]) -> str:
    """The summary as a Markdown table."""
    rows = [COLUMNS, ("---",) * len(COLUMNS), *map(_cells, verdicts)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cells(one: Verdict) -> tuple[str, ...]:
    answers = (one.expected, one.found, one.located, one.twin_silent)
    times = (_ms(one.step_ns), _ms(one.twin_step_ns))
    return (one.sample, one.rule, *("yes" if answer else "no" for answer in answers), *times, "; ".join(one.misses))


def _ms(time_ns: int | None) -> str:
    return "" if time_ns is None else f"{time_ns / 1e6:.2f} ms"


def _broken(script: str, run: Ran, device: str) -> list[str]:
    """Why a run proves nothing: it failed, or it was not on the device."""
    if run.diagnosis is None:
        return [f"{script}: no diagnosis (exit code {run.code})"]
    if run.code:
        return [f"{script}: exit code {run.code}"]
    on_cpu = run.diagnosis["run"].get("device") in (None, "CPU")
    if on_cpu != (device == "cpu"):
        return [f"{script}: recorded on {run.diagnosis['run'].get('device')}, not on a {device.upper()}"]
    return []


def _ids(run: Ran, part: str) -> list[str]:
    return [entry["rule"] for entry in run.diagnosis[part]] if run.diagnosis else []


def _findings(run: Ran, rule: str) -> list[dict[str, Any]]:
    return [finding for finding in run.diagnosis["findings"] if finding["rule"] == rule] if run.diagnosis else []


def _warned(run: Ran) -> list[str]:
    """Rules with a finding above an info."""
    found = run.diagnosis["findings"] if run.diagnosis else []
    return [finding["rule"] for finding in found if finding["severity"] != "info"]


def _names(finding: dict[str, Any], want: Expected) -> bool:
    spots = [spot for spot in (finding["where"], *finding["locations"][:3]) if spot]
    return any((Path(spot["file"]).name, spot["line"]) == (want.file, want.line) for spot in spots)


def _unmeasured(run: Ran, rule: str) -> str:
    entries = run.diagnosis["not_measured"] if run.diagnosis else []
    return next((f" (not measured: {entry['reason']})" for entry in entries if entry["rule"] == rule), "")


def _step_ns(run: Ran) -> int | None:
    return run.diagnosis["run"].get("step_ns") if run.diagnosis else None


def device_here(allow_cpu: bool) -> str:
    """What the samples will run on: "gpu", or "cpu" where that is allowed.

    Raises:
        UsageError: this machine has no GPU that torch can use.
    """
    import torch

    if torch.cuda.is_available():
        return "gpu"
    if allow_cpu:
        return "cpu"
    raise UsageError(
        f"no GPU: torch {torch.__version__} sees none on this machine, so nothing was run. Run it where "
        "`torch.cuda.is_available()` is true (a torch built for CUDA or ROCm), or pass --allow-cpu"
    )


def chosen(only: list[str]) -> list[Path]:
    """Folders of the samples to run.

    Raises:
        UsageError: there is no sample of a name.
    """
    folders = {path.parent.name: path.parent for path in sorted(SAMPLES.glob("*/expected.toml"))}
    unknown = [name for name in only if name not in folders]
    if unknown:
        raise UsageError(f"no sample named {', '.join(unknown)}; there are {', '.join(folders)}")
    return [folders[name] for name in only] if only else list(folders.values())


def run_check(script: Path, folder: Path) -> Ran:
    """Checks a copy of a script in its own folder, where its recording and what it printed stay."""
    shutil.rmtree(folder, ignore_errors=True)  # of the run before
    folder.mkdir(parents=True)
    shutil.copy(script, folder)
    command = [sys.executable, "-m", "gpudoctor", "check", "--preview", "--no-what-if", "--output-format", "json"]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *_python_path()])}
    with (folder / "diagnosis.json").open("w") as out, (folder / "stderr.txt").open("w") as err:
        try:
            done = subprocess.run(
                [*command, script.name],
                cwd=folder,
                env=environment,
                stdout=out,
                stderr=err,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Ran(124, None)
    return Ran(done.returncode, _read(folder / "diagnosis.json"))


def _python_path() -> list[str]:
    return [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None
    return loaded if isinstance(loaded, dict) else None


def check_all(samples: list[Path], output: Path, device: str) -> list[Verdict]:
    """Runs and judges samples one after the other, so that no run disturbs another's times."""
    verdicts = []
    for folder in samples:
        sick, twin = (
            run_check(folder / f"{name}.py", output / folder.name / name) for name in ("train", "train_fixed")
        )
        verdicts.append(judge(expected_of(folder), sick, twin, device))
        print(f"{folder.name}: {'; '.join(verdicts[-1].misses) or 'as expected'}", file=sys.stderr, flush=True)
        write(verdicts, output, device)  # after each: a run that is cut short leaves what it has
    return verdicts


def write(verdicts: list[Verdict], output: Path, device: str) -> None:
    """Writes summary.md and summary.json."""
    (output / "summary.md").write_text(table(verdicts) + "\n", encoding="utf-8")
    facts = {"device": device, "samples": [asdict(verdict) for verdict in verdicts]}
    (output / "summary.json").write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")


def main(argv: list[str] | None = None) -> int:
    """Runs the samples; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "gpu-check", help="folder (default gpu-check)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this sample; repeatable")
    parser.add_argument("--allow-cpu", action="store_true", help="run on the CPU where there is no GPU")
    arguments = parser.parse_args(argv)
    try:
        samples = chosen(arguments.only)
        device = device_here(arguments.allow_cpu)
    except UsageError as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        return 2
    verdicts = check_all(samples, arguments.output.resolve(), device)
    missed = sum(bool(verdict.misses) for verdict in verdicts)
    print(table(verdicts))
    print(f"{len(verdicts) - missed} of {len(verdicts)} samples as expected on a {device.upper()}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
