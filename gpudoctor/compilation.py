"""Profile → the Diagnosis's part on torch.compile: totals, and the chain of compiled frames."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpudoctor.analysis import compile_chain
from gpudoctor.diagnosis import Break, Compilation, CompiledFrame, Location
from gpudoctor.profile import Profile


def compilation(profile: Profile) -> Compilation | None:
    """What torch.compile did in the run; None when nothing was compiled or that was not measured."""
    compilations, breaks = profile.rows("compilations"), profile.rows("graph_breaks")
    if not compilations:
        return None
    chain = compile_chain.graph(compilations, breaks)
    frames = []
    for group in compile_chain.functions(chain):
        for frame in group:
            edges = [edge for _, _, edge in chain.out_edges(frame, data=True)]
            frames.append(_frame(chain.nodes[frame], edges))
    total = sum(row["dur_ns"] or 0 for row in compilations)
    backend = sum(row["backend_ns"] or 0 for row in compilations)
    backward = sum(row["backward_ns"] or 0 for row in compilations)
    late = [row for row in compilations if row["warmup"] is False]
    return Compilation(
        graphs=sum(1 for row in compilations if row["graph_ops"]),
        graph_breaks=len(breaks),
        recompiles=len(profile.rows("recompiles")),
        compile_ns=total + backward,
        dynamo_ns=total - backend,
        backend_ns=backend,
        backward_ns=backward,
        steady_ns=sum(row["dur_ns"] or 0 for row in late) if profile.rows("steps") else None,
        frames=tuple(frames),
    )


def _frame(node: Mapping[str, Any], edges: list[Mapping[str, Any]]) -> CompiledFrame:
    line = node["resumes_at"] or node["line"]
    breaks = sorted(edges, key=lambda edge: (edge["file"] or "", edge["line"] or 0))
    return CompiledFrame(
        function=node["root"] or "?",
        where=Location(node["file"], line, "def", node["root"]) if node["file"] and line else None,
        resumes=node["resumes_at"] is not None,
        versions=node["versions"],
        graphs=node["graphs"],
        operators=node["ops"],
        guards=node["guards"],
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
