"""Counts of profiled steps, and whether they repeat from step to step."""

from __future__ import annotations

import numpy as np
import pandas as pd

from gpudoctor.analysis import flops, work
from gpudoctor.counting.names import COUNTERS, Kind, kind, matmul
from gpudoctor.counting.places import Places
from gpudoctor.diagnosis import Counter
from gpudoctor.profile import Profile

NO_STEP = "no step was profiled without a compile in it"
_NODE = "autograd::engine::evaluate_function: "
_COPIES = ("h2d", "d2h", "d2d")


class StepCounts:
    """Counts rows of tables by profiled step.

    Args:
        profile: the run's tables.
        places: names lines.
    """

    def __init__(self, profile: Profile, places: Places) -> None:
        self._profile, self._places = profile, places
        steps = profile.table("steps")
        quiet = steps[steps["compile_ns"].fillna(0).eq(0)] if len(steps) else steps
        self._light = _numbers(quiet, ("light", "detail"))
        self._detail = _numbers(quiet, ("detail",))
        if profile.facts.get("trace"):  # somebody else's recording: every step was profiled in the same way
            self._light = self._detail = quiet["step"].dropna().astype(int).tolist()

    def all(self) -> dict[str, Counter]:
        """The counters of steps by name, in the order of COUNTERS."""
        made = self._of_operators() | self._of_devices() | self._of_memory()
        ordered = {name: made[name] for name in COUNTERS if name in made}
        return ordered | dict(sorted((name, found) for name, found in made.items() if name not in COUNTERS))

    def _of_operators(self) -> dict[str, Counter]:
        names = ("operators_per_step", "autograd_nodes_per_step", "host_reads_per_step", "dtype_conversions_per_step")
        if not self._profile.measured("ops"):
            return self._none(names, "ops")
        ops = self._profile.table("ops")
        name = ops["name"].astype(str)
        nodes = name.str.startswith(_NODE).to_numpy(bool)
        made = {names[0]: self._counted(names[0], ops[name.str.startswith("aten::").to_numpy(bool)])}
        if nodes.any() or not name.str.contains("Backward", regex=False).any():
            made[names[1]] = self._counted(names[1], ops[nodes])
        else:
            made |= self._none(names[1:2], why="the trace has backward functions, and not the engine that runs them")
        if ops["owner"].notna().any():
            reads = ops["host_read"].fillna(False).astype(bool) & ops["owner"].eq("user").fillna(False)
            made[names[2]] = self._counted(names[2], ops[reads.to_numpy(bool)], lines_only=True)
        else:
            made |= self._none(names[2:3], why="nobody saw who calls: the trace has no Python stacks")
        if self._profile.measured("casts"):
            made[names[3]] = self._counted(names[3], self._profile.table("casts"), lines_only=True)
        else:
            made |= self._none(names[3:], "casts")
        return made | self._of_matrices(ops)

    def _of_matrices(self, ops: pd.DataFrame) -> dict[str, Counter]:
        """Matrix work by dtype, where shapes were recorded."""
        shaped = ops[ops["step"].isin(self._detail).to_numpy(bool)]
        if shaped.empty or not shaped["shapes"].notna().any():
            return {}
        done = work.of_calls(shaped)
        products = done.owns & np.array([flops.kind(name) == "matrix" for name in shaped["name"]], bool)
        known = products & np.isfinite(done.flops) & (done.dtype.codes >= 0)
        if (products & ~known).any():  # a part of the work would look like the whole
            return {}
        rows = shaped[["step", "file", "line"]][known].assign(
            flops=done.flops[known], dtype=[done.dtype.values[code] for code in done.dtype.codes[known]]
        )
        return {
            matmul(str(dtype)): self._counted(matmul(str(dtype)), group, "flops", lines_only=True)
            for dtype, group in rows.groupby("dtype")
        }

    def _of_devices(self) -> dict[str, Counter]:
        copies = tuple(f"{way}_{what}_per_step" for way in _COPIES for what in ("copies", "bytes"))
        names = ("kernels_per_step", *copies, "launches_per_step", "syncs_per_step")
        if not self._profile.measured("kernels"):
            return self._none((*names, "collectives_per_step", "collective_bytes_per_step"), "kernels")
        kernels = self._profile.table("kernels")
        kernels = kernels.assign(step=kernels["launch_step"].fillna(kernels["step"]))
        made = {"kernels_per_step": self._counted("kernels_per_step", kernels[kernels["kind"].eq("kernel")])}
        for way in _COPIES:
            rows = kernels[kernels["kind"].eq("memcpy") & kernels["direction"].eq(way).fillna(False)]
            made[f"{way}_copies_per_step"] = self._counted(f"{way}_copies_per_step", rows)
            made[f"{way}_bytes_per_step"] = self._counted(f"{way}_bytes_per_step", rows, "bytes")
        if self._profile.measured("runtime_calls"):
            calls = self._profile.table("runtime_calls")
            launches = calls[calls["kind"].isin(("launch", "graph_launch"))]
            made["launches_per_step"] = self._counted("launches_per_step", launches)
            made["syncs_per_step"] = self._counted("syncs_per_step", calls[calls["blocks"].fillna(False).astype(bool)])
        else:
            made |= self._none(names[-2:], "runtime_calls")
        sent = self._profile.table("collectives")
        made["collectives_per_step"] = self._counted("collectives_per_step", sent)
        if sent["bytes"].notna().all():
            made["collective_bytes_per_step"] = self._counted("collective_bytes_per_step", sent, "bytes")
        return made

    def _of_memory(self) -> dict[str, Counter]:
        names = ("allocations_per_step", "allocated_bytes_per_step", "peak_live_bytes_per_step")
        events = self._profile.table("memory_events")
        if events.empty:
            return self._none(names, "memory_events")
        device = "gpu" if events["device_kind"].eq("gpu").fillna(False).any() else "cpu"
        events = events[events["device_kind"].eq(device).fillna(False).to_numpy(bool)]
        made = events[events["bytes"].gt(0).fillna(False).to_numpy(bool)]
        lines = self._profile.table("ops").drop_duplicates("op").set_index("op")[["file", "line"]]
        placed = made.join(lines, on="op")
        counted = {
            names[0]: self._counted(names[0], placed, lines_only=True),
            names[1]: self._counted(names[1], placed, "bytes", lines_only=True),
        }
        if not made["address"].fillna(0).ne(0).all():
            return counted | self._none(names[2:], why="the trace has no addresses of what was allocated")
        peaks = pd.DataFrame(
            [(step, _peak(rows)) for step, rows in events.groupby("step")], columns=["step", "bytes"]
        ).assign(file=None, line=None)
        return counted | {names[2]: self._counted(names[2], peaks, "bytes", lines_only=True)}

    def _counted(self, name: str, rows: pd.DataFrame, weight: str | None = None, lines_only: bool = False) -> Counter:
        """A counter of rows with a `step`, over every profiled step, or over those with lines only."""
        what = kind(name) or Kind(name)
        steps = self._detail if lines_only else self._light
        if not steps:
            return Counter(None, what.unit, unknown=NO_STEP)
        rows = rows[rows["step"].isin(steps).to_numpy(bool)]
        groups = rows.groupby(rows["step"].astype(int))
        sums = groups.size() if weight is None else groups[weight].sum()
        found = sums.reindex(steps, fill_value=0)
        amounts = [round(float(one)) for one in found.fillna(0)]
        shown = next((step for step in reversed(steps) if step in self._detail), steps[-1])
        repeats = len(set(amounts)) == 1
        return Counter(
            value=amounts[steps.index(shown)],
            unit=what.unit,
            repeats=repeats,
            least=min(amounts),
            most=max(amounts),
            steps=len(steps),
            lines=self._places.lines(rows[rows["step"].eq(shown).to_numpy(bool)], weight),
        )

    def _none(self, names: tuple[str, ...], table: str = "", why: str | None = None) -> dict[str, Counter]:
        reason = why or self._profile.why_not(table)[0]
        return {name: Counter(None, (kind(name) or Kind(name)).unit, unknown=reason) for name in names}


def _numbers(steps: pd.DataFrame, observations: tuple[str, ...]) -> list[int]:
    if steps.empty:
        return []
    return sorted(int(step) for step in steps.loc[steps["observation"].isin(observations), "step"].dropna())


def _peak(events: pd.DataFrame) -> int:
    """Most bytes alive at once of what the step itself allocates; what it inherits from before is left out."""
    held: dict[tuple[int, int], int] = {}
    now = peak = 0
    devices = events["device"].fillna(-1)
    for size, address, device in zip(events["bytes"], events["address"].fillna(0), devices, strict=True):
        key = (int(device), int(address))
        now -= held.pop(key, 0)
        if size > 0:
            held[key] = int(size)
            now += int(size)
            peak = max(peak, now)
    return peak
