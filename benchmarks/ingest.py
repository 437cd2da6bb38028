"""Speed and memory of reading traces: decoding only, complete tables, and `json.load` for comparison.

    python benchmarks/ingest.py [TRACE] [--mb 200 1000] [--profile]

Repeats a trace until the text has the size, each repetition later and with ids of its own, as more steps of the same
job would look; each measurement is a fresh process on one core. Speed is MB of JSON text a CPU second of that process,
start and imports not counted; memory is its peak, less what the interpreter with its imports takes (shown), as a share
of the text. `tables` makes every table that the trace fills. Figures that must be reached: decoding 80 MB/s, tables
40 MB/s; peak 0.8 of the text at 200 MB, 0.6 at 1 GB.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000
WAYS = ("decode", "tables", "json.load")
GOALS = {"decode": 80, "tables": 40}
GOAL_PEAK = {200: 0.8, 1000: 0.6}
STRIDE = 10_000_000
"""Added to the ids of each repetition: more than one has."""

_TIME = re.compile(r'("ts"\s*:\s*"?)(-?\d+(?:\.\d+)?)')
_IDS = ("External id", "external id", "correlation", "Sequence number", "Ev Idx", "Python id", "Python parent id")
_ID = re.compile(rf'("(?:{"|".join(_IDS)}|id)"\s*:\s*)(\d+)(?=\s*[,}}\r\n])')
_STEP = re.compile(r"ProfilerStep#(\d+)")

_CHILD = """
import json, resource, sys, time
way, path = sys.argv[1:]
from pathlib import Path
from gpudoctor.ingest import kineto, trace
from gpudoctor.profile import empty as a_table
a_table("ops").head()  # what pandas and pyarrow load with the first table
def resource_kb():
    try:  # ru_maxrss starts at what the parent had when it forked
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
empty, start = resource_kb(), time.process_time()
if way == "decode":
    made = kineto.read(Path(path))
    count = sum(made.columns.rows.values())
elif way == "tables":
    made = trace.load(Path(path))
    count = sum(len(made.table(name)) for name in made.tables)
else:
    with open(path, "rb") as file:
        made = json.load(file)
    count = len(made["traceEvents"] if isinstance(made, dict) else made)
print(time.process_time() - start, empty, resource_kb(), count)
"""


def main() -> None:
    """Runs the benchmark."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("trace", nargs="?", type=Path, help="trace to repeat; one of ../shared/traces if not given")
    options.add_argument("--mb", nargs="+", type=int, default=[200, 1000], help="sizes of the text in MB")
    options.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options.add_argument(
        "--folder", type=Path, help="where the files are made and kept; a temporary folder if not given"
    )
    options.add_argument(
        "--profile", action="store_true", help="print where the time goes in `tables`, at the first size"
    )
    given = options.parse_args()
    trace = given.trace or _default()
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
        return _measure(trace, given.folder, given)
    with tempfile.TemporaryDirectory() as folder:
        _measure(trace, Path(folder), given)


def _default() -> Path:
    for folder in (ROOT.parent / "shared" / "traces", ROOT / "samples"):
        for path in sorted(folder.rglob("*control.json.gz")) or sorted(folder.rglob("trace.*.json*")):
            return path
    sys.exit("no trace beside the project; name one")


def _measure(trace: Path, folder: Path, given: argparse.Namespace) -> None:
    print(f"{trace.name} repeated; one core, MB = 10^6 bytes\n")
    print(
        f"{'text':>8}  {'way':<10} {'CPU s':>7} {'MB/s':>7} {'goal':>5}  {'peak MB':>8} {'/ text':>6} {'goal':>5}  rows"
    )
    for size in given.mb:
        path = folder / f"{trace.name.split('.')[0]}-{size}.json"
        if not path.is_file():
            repeat(trace, path, size * MB)
        text = path.stat().st_size
        for way in given.ways:
            seconds, empty, peak, count = _child(way, path)
            share = (peak - empty) * 1024 / text
            goal, goal_peak = GOALS.get(way, ""), GOAL_PEAK.get(size, "") if way in GOALS else ""
            print(
                f"{text / MB:>7.0f}M  {way:<10} {seconds:>7.2f} {text / MB / seconds:>7.1f} {goal:>5}  "
                f"{(peak - empty) * 1024 / MB:>8.0f} {share:>6.2f} {goal_peak:>5}  {count:.0f} "
                f"(+{empty * 1024 / MB:.0f} MB interpreter)",
                flush=True,
            )
        if given.profile and size == given.mb[0]:
            _profile(path)


def _child(way: str, path: Path) -> tuple[float, ...]:
    run = subprocess.run(
        _pinned([sys.executable, "-c", _CHILD, way, str(path)]), capture_output=True, text=True, cwd=ROOT, check=False
    )
    if run.returncode:
        sys.exit(run.stderr)
    return tuple(map(float, run.stdout.split()))


def _pinned(command: list[str]) -> list[str]:
    """On one core, where a process can be told so."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["PYTHONPATH"] = str(ROOT)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return command


def _profile(path: Path) -> None:
    code = (
        "import cProfile, pstats, sys; from pathlib import Path; from gpudoctor.ingest import trace;"
        "p = cProfile.Profile();"
        "p.runcall(trace.load, Path(sys.argv[1])); pstats.Stats(p).sort_stats('tottime').print_stats(25)"
    )
    run = subprocess.run(
        _pinned([sys.executable, "-c", code, str(path)]), capture_output=True, text=True, cwd=ROOT, check=False
    )
    print(run.stdout, run.stderr)


def repeat(trace: Path, path: Path, size: int) -> None:
    """Writes a trace's events again and again, piece by piece, until the text has a size."""
    opened = gzip.open if trace.read_bytes()[:2] == b"\x1f\x8b" else open
    with opened(trace, "rt", encoding="utf-8", errors="replace") as file:
        text = file.read()
    at = text.index("[", text.index('"traceEvents"')) + 1 if '"traceEvents"' in text else text.index("[") + 1
    head, body, tail = text[:at], text[at : text.rindex("}", 0, text.rindex("]")) + 1], text[text.rindex("]") :]
    times = [Decimal(match[2]) for match in _TIME.finditer(body) if Decimal(match[2]) > 1]
    middle = sorted(times)[len(times) // 2]
    times = [time for time in times if abs(time - middle) < 10**10]  # metadata events may be of another age
    span, steps = max(times) - min(times) + 1000, max([0, *(int(step) for step in _STEP.findall(body))]) + 1
    written = 0
    with path.open("w", encoding="utf-8", newline="") as out:
        written += out.write(head)
        for number in range(size):
            if written >= size:
                break
            written += out.write("," * bool(number))
            for piece in _pieces(body):
                written += out.write(_shifted(piece, number, span, steps))
        out.write(tail)


def _pieces(body: str) -> Iterator[str]:
    """The text in pieces that end between lines or objects, so that no number is cut."""
    start = 0
    while start < len(body):
        end = body.find("}", start + (1 << 20)) + 1 or len(body)
        yield body[start:end]
        start = end


def _shifted(text: str, number: int, span: Decimal, steps: int) -> str:
    if not number:
        return text
    text = _TIME.sub(lambda m: m[1] + (str(Decimal(m[2]) + number * span) if Decimal(m[2]) > 1 else m[2]), text)
    text = _ID.sub(lambda m: f"{m[1]}{int(m[2]) + number * STRIDE if int(m[2]) else 0}", text)
    return _STEP.sub(lambda m: f"ProfilerStep#{int(m[1]) + number * steps}", text)


if __name__ == "__main__":
    main()
