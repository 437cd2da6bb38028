"""The chain of compiled frames: each function, its versions, and how graph breaks cut it into continuations.

What `torch._dynamo.explain` tells of one call (graphs, breaks, operators per graph, guards), but of the run as it was,
rebuilt from the compile log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpudoctor.ingest.compile_breaks import RESUME, root_function

if TYPE_CHECKING:
    import networkx as nx

Row = dict[str, Any]


def graph(compilations: Sequence[Row], breaks: Sequence[Row]) -> nx.MultiDiGraph[int]:
    """Compiled frames as a graph.

    Args:
        compilations: rows of `compilations`.
        breaks: rows of `graph_breaks`.

    Returns:
        A node for each frame (its id), with `function`, `root` (the function it belongs to), `file`, `line`,
        `resumes_at` (line of the function from which a continuation goes on; None for a function's begin), `versions`
        (compilations that gave code), `graphs`, `ops` and `guards` of the last version, `last` (its compile id),
        `compile_ns`, `limit` and `ran`. An edge for each break that a frame ends with, to the continuation (to the
        frame itself when none was compiled), with `file`, `line`, `reason`, `break_id`, `count` and `skipped`.
    """
    import networkx as nx

    chain: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    by_frame: dict[int, list[Row]] = {}
    for row in compilations:
        by_frame.setdefault(row["frame"], []).append(row)
    for frame in sorted(by_frame):
        chain.add_node(frame, **_node(by_frame[frame]))
    broken: dict[int, dict[tuple[Any, Any], list[Row]]] = {}
    for row in breaks:
        broken.setdefault(row["frame"], {}).setdefault((row["file"], row["line"]), []).append(row)
    continuations = {
        (node["file"], node["root"], node["resumes_at"]): frame
        for frame, node in chain.nodes.items()
        if node["resumes_at"] is not None
    }
    for frame, node in list(chain.nodes.items()):
        for place, same in broken.get(frame, {}).items():
            # a break inside an inlined function resumes in the frame at the line of the call: the next continuation
            target = continuations.get((node["file"], node["root"], place[1]))
            chain.add_edge(
                frame,
                frame if target is None else target,
                file=place[0],
                line=place[1],
                reason=same[0]["reason"],
                break_id=same[0]["break_id"],
                count=len(same),
                skipped=any(row["skipped"] for row in same),
            )
    return chain


def _node(rows: Sequence[Row]) -> Row:
    made = [row for row in rows if not row["fail_reason"]] or list(rows)
    last = made[-1]
    match = RESUME.match(last["function"] or "")
    return {
        "last": last["compile_id"],
        "function": last["function"],
        "root": root_function(last["function"]),
        "file": last["file"],
        "line": last["line"],
        "resumes_at": int(match[2]) if match else None,
        "caller": (last["caller_file"], last["caller_line"]),
        "versions": sum(1 for row in rows if not row["fail_reason"]),
        "graphs": sum(1 for row in rows if row["graph_ops"]),
        "ops": last["graph_ops"],
        "guards": last["guards"],
        "compile_ns": sum((row["dur_ns"] or 0) + (row["backward_ns"] or 0) for row in rows),
        "limit": any(row["limit_hit"] for row in rows),
        "ran": any(row["ran_in_steps"] for row in rows),
    }


def functions(chain: nx.MultiDiGraph[int]) -> list[list[int]]:
    """Frames by the function they belong to: its begin first, then its continuations in order of their lines."""
    groups: dict[tuple[Any, Any], list[int]] = {}
    for frame, node in chain.nodes.items():
        groups.setdefault((node["file"], node["root"]), []).append(frame)
    for frames in groups.values():
        frames.sort(key=lambda frame: (chain.nodes[frame]["resumes_at"] or -1, frame))
    return list(groups.values())
