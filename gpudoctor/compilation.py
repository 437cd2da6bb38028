"""Profile → the Diagnosis's part on torch.compile: totals, and the chain of compiled frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.analysis import compile_chain
from gpudoctor.diagnosis import Break, Compilation, CompiledFrame, Location, WhatIf
from gpudoctor.ingest.compile_breaks import is_wrapper
from gpudoctor.profile import Profile


def compilation(profile: Profile) -> Compilation | None:
    """What torch.compile did in the run; None when nothing was compiled or that was not measured."""
    compilations, breaks = profile.rows("compilations"), profile.rows("graph_breaks")
    if not compilations:
        return None
    chain = compile_chain.graph(compilations, breaks)
    frames = []
    kernels, calls = _calls(profile, "generated_kernels"), _calls(profile, "extern_calls")
    for group in compile_chain.functions(chain):
        for frame in group:
            edges = [edge for _, _, edge in chain.out_edges(frame, data=True)]
            frames.append(_frame(chain.nodes[frame], edges, kernels, calls))
    total = sum(row["dur_ns"] or 0 for row in compilations)
    backend = sum(row["backend_ns"] or 0 for row in compilations)
    backward = sum(row["backward_ns"] or 0 for row in compilations)
    looked_up = [row["outcome"] for row in profile.rows("cache") if row["kind"] in ("fx_graph", "aot_autograd")]
    late = [row for row in compilations if row["warmup"] is False and not row["limit_hit"]]
    steady = sum((row["dur_ns"] or 0) + (row["backward_ns"] or 0) for row in late)
    again = [row for row in profile.rows("recompiles") if not row["refused"]]
    return Compilation(
        graphs=sum(1 for row in compilations if row["graph_ops"]),
        graph_breaks=len(breaks),
        recompiles=len(again),
        compile_ns=total + backward,
        dynamo_ns=total - backend,
        backend_ns=backend,
        backward_ns=backward,
        steady_ns=steady if profile.rows("steps") else None,
        cache_hits=looked_up.count("hit") if looked_up else None,
        cache_misses=sum(outcome in ("miss", "bypass") for outcome in looked_up) if looked_up else None,
        frames=tuple(frames),
    )


def what_if(profile: Profile) -> WhatIf | None:
    """What torch.compile would make of the model; None where that was not measured."""
    rows = profile.rows("what_if")
    if not rows:
        return None
    row = rows[0]
    return WhatIf(
        module=row["module"] or "?",
        where=Location(row["file"], row["line"], function=row["function"]) if row["file"] and row["line"] else None,
        graphs=row["graphs"],
        operators=row["ops"],
        guards=row["guards"],
        seconds=None if row["dur_ns"] is None else row["dur_ns"] / 1e9,
        breaks=tuple(
            Break(
                Location(broke["file"], broke["line"], function=broke["function"]) if broke["file"] else None,
                broke["reason"],
                broke["break_id"],
                skipped=bool(broke["skipped"]),
            )
            for broke in profile.rows("what_if_breaks")
        ),
        eager_kernels=row["eager_kernels"],
        kernels=row["kernels"],
        library_calls=row["extern_calls"],
    )


def _calls(profile: Profile, table: str) -> dict[str, int]:
    """Calls in one run of a compilation's graphs."""
    found: dict[str, int] = {}
    for row in profile.rows(table):
        found[row["compile_id"]] = found.get(row["compile_id"], 0) + (row["calls"] or 0)
    return found


def _frame(
    node: Mapping[str, Any], edges: list[Mapping[str, Any]], kernels: Mapping[str, int], calls: Mapping[str, int]
) -> CompiledFrame:
    line = node["resumes_at"] or node["line"]
    wrapped = is_wrapper(node["file"]) and node["caller"][0] is not None
    where = Location(node["file"], line, "def", node["root"]) if node["file"] and line else None
    if wrapped:
        where = Location(*node["caller"])
    breaks = sorted(edges, key=lambda edge: (edge["file"] or "", edge["line"] or 0))
    return CompiledFrame(
        function="torch's own code" if wrapped else node["root"] or "?",
        where=where,
        resumes=node["resumes_at"] is not None,
        versions=node["versions"],
        graphs=node["graphs"],
        operators=node["ops"],
        guards=node["guards"],
        kernels=kernels.get(node["last"], 0) if node["last"] in kernels or node["last"] in calls else None,
        library_calls=calls.get(node["last"], 0) if node["last"] in kernels or node["last"] in calls else None,
        compile_ns=node["compile_ns"],
        limit=node["limit"],
        breaks=tuple(
            Break(
                Location(edge["file"], edge["line"]) if edge["file"] else None,
                edge["reason"],
                edge["break_id"],
                edge["count"],
                edge["skipped"],
            )
            for edge in breaks
        ),
    )
