"""What the step's time hangs on: the table `critical_path` by owner for reports, and as a graph for inspection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gpudoctor.diagnosis import CriticalPath, Location, PathShare
from gpudoctor.profile import Profile

if TYPE_CHECKING:
    import networkx as nx

_Owner = tuple[str, str | None, str | None, int | None, int | None]
"""Kind, name, file, line, stream."""


def critical_path(profile: Profile) -> CriticalPath | None:
    """The owners of the critical path of the median profiled step; None when there is no path.

    Args:
        profile: its table `critical_path`.

    Returns:
        Owners by kind, name, line and stream, largest first: host time by operator (Python between operators has no
        name), calls and waits by name, device work by kernel class, launch latency by stream. They add up to the step.
    """
    rows = profile.rows("critical_path")
    total = sum(int(row["dur_ns"]) for row in rows)
    if not total:
        return None
    owned: Counter[_Owner] = Counter()
    for row in rows:
        owned[_owner(row)] += int(row["dur_ns"])
    shares = tuple(_share(owner, ns, ns / total) for owner, ns in owned.most_common() if ns)
    return CriticalPath(int(rows[0]["step"]), total, shares)


def _owner(row: Mapping[str, Any]) -> _Owner:
    kind, stream = str(row["kind"]), row["stream"]
    if kind == "latency":
        return kind, None, None, None, stream
    name = row["name"] if row["kernel_class"] is None else row["kernel_class"]
    return kind, name, row["file"], row["line"], stream


def _share(owner: _Owner, ns: int, share: float) -> PathShare:
    kind, name, file, line, stream = owner
    where = Location(file, int(line)) if file is not None and line is not None else None
    return PathShare(kind, name, where, None if stream is None else int(stream), ns, share)


def path_graph(profile: Profile) -> nx.DiGraph:
    """The critical path as a graph: one node a stretch, by `position`, and an edge from each stretch to the next.

    Nodes carry what the table `critical_path` has of them; the graph is empty when there is no path.
    """
    import networkx as nx

    graph = nx.DiGraph()
    rows = sorted(profile.rows("critical_path"), key=lambda row: int(row["position"]))
    for row in rows:
        graph.add_node(int(row["position"]), **{name: value for name, value in row.items() if name != "position"})
    graph.add_edges_from(pairwise(list(graph)))
    return graph
