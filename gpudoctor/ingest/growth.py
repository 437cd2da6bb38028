"""Fills `live_growth` and `resident_memory` from what the recorder saw of live tensors and of the process's memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from gpudoctor.analysis.growth_sites import GrowthSites, Site
from gpudoctor.ingest.watch import WatchLog

MIN_COUNTS = 3  # one that knows the start, one that sees what is new, one that sees what is left of it
_KEY = ("scope", "name", "owner", "file", "function")


def add(
    raw: Mapping[str, Any] | None,
    log: WatchLog,
    step_rows: Sequence[Mapping[str, Any]],
    sources: Mapping[str, str],
    tables: dict[str, list[dict[str, Any]]],
    missing: dict[str, str],
) -> None:
    """Adds the tables, or why there are none.

    Args:
        raw: content of `growth.json`; None when it was not written.
        log: the watch log.
        step_rows: rows of `steps`.
        sources: text of the user's files.
        tables: takes the rows.
        missing: takes the reasons.
    """
    if log.resident:
        tables["resident_memory"] = resident(log, step_rows)
    else:
        missing["resident_memory"] = "the system does not tell how much memory a process has"
    if raw is None:
        missing["live_growth"] = "the process was killed before it could write what stays alive"
    elif raw["failed"]:
        missing["live_growth"] = "gpudoctor could not count live tensors to the end in this run"
    elif len(raw["counts"]) < MIN_COUNTS:
        missing["live_growth"] = "the run had too few steps to tell what stays alive"
    else:
        tables["live_growth"] = rows(raw, sources)


def resident(log: WatchLog, step_rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of `resident_memory`: a reading belongs to the step that had just ended."""
    starts = [step["start_ns"] for step in step_rows]
    made = []
    for time_ns, size in log.resident:
        at = bisect_right(starts, time_ns - 1) - 1
        made.append({"step": step_rows[at]["step"] if at >= 0 else None, "time_ns": time_ns, "resident_bytes": size})
    return made


def rows(raw: Mapping[str, Any], sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of `live_growth`: of each holder what the last count that saw it grow found.

    Args:
        raw: content of `growth.json`.
        sources: text of the user's files.
    """
    sites = GrowthSites(sources)
    found: dict[tuple[Any, ...], tuple[Mapping[str, Any], bool]] = {}
    last = len(raw["counts"]) - 1
    for number, count in enumerate(raw["counts"]):
        for one in count["found"]:
            found[tuple(one.get(name) for name in _KEY)] = one, number == last
    rows = [(one, lasting, _site(one, sites)) for one, lasting in found.values()]
    return [_row(one, lasting, site, raw) for one, lasting, site in rows if site or not _only_longer(one)]


def _only_longer(one: Mapping[str, Any]) -> bool:
    """Whether a name was bound to a longer tensor each time: batches that get longer are no growth, nothing adds up."""
    return not one["tensors"] and not one["nodes"]


def _site(one: Mapping[str, Any], sites: GrowthSites) -> Site | None:
    if one.get("name") is None:
        return None
    if one["scope"] == "attribute":
        return sites.attribute(one["name"])
    function = one["function"]
    if one["scope"] == "closure":  # the function that has it in a cell is not the one that it belongs to
        function = function.rpartition(".")[0] or None
    return sites.variable(one["file"], function, one["name"])


def _row(one: Mapping[str, Any], lasting: bool, site: Site | None, raw: Mapping[str, Any]) -> dict[str, Any]:
    steps = one["to_step"] - one["from_step"] + 1
    parts = {"graph": one["saved_bytes"], "tensors": one["tensor_bytes"], "nodes": one["node_bytes"]}
    name, owner = one.get("name"), one.get("owner")
    return {
        "file": site.file if site else one.get("file"),
        "line": site.line if site else None,
        "function": site.function if site else one.get("function"),
        "other_lines": len(site.others) if site else 0,
        "holder": f"{owner}.{name}" if owner else name,
        "scope": one.get("scope"),
        "container": one.get("container"),
        "kind": max(parts, key=lambda kind: parts[kind]),
        "bounded": bool(one.get("bounded")) or bool(site and site.bounded),
        "emptied": bool(site and site.emptied),
        "lasting": lasting,
        "from_step": one["from_step"],
        "to_step": one["to_step"],
        "bytes_per_step": round(sum(parts.values()) / steps),
        "tensor_bytes_per_step": round(one["tensor_bytes"] / steps),
        "saved_bytes_per_step": round(one["saved_bytes"] / steps),
        "used_bytes_per_step": round(one["used_bytes"] / steps),
        "tensors_per_step": one["tensors"] / steps,
        "nodes_per_step": one["nodes"] / steps,
        "gpu": one["gpu"],
        "free_bytes": raw.get("gpu_free_bytes") if one["gpu"] else raw.get("free_bytes"),
    }
