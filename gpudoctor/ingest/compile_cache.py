"""Look-ups in torch.compile's caches, as the compile log tells them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from gpudoctor.ingest.compile_metrics import number, text
from gpudoctor.ingest.compile_records import decoded

_ARTIFACT = re.compile(r"^(fx_graph|aot_?autograd)_cache_(hit|miss|bypass|hash)$")
_PGO = re.compile(r"^get_(local|remote)_code_state$")
_KINDS = {"fx_graph": "fx_graph", "aotautograd": "aot_autograd", "aot_autograd": "aot_autograd"}
DISABLED = "fx_graph_cache_disabled"
"""The chromium event of a compilation that asked no cache."""


def is_lookup(artifact: str) -> bool:
    """Whether an artifact's name is that of a look-up."""
    return bool(_ARTIFACT.match(artifact) or _PGO.match(artifact))


def lookup(artifact: str, payload: str) -> dict[str, Any]:
    """The row of `cache` that an artifact gives, without the compilation's ids.

    Raises:
        ValueError: the payload is damaged.
    """
    if pgo := _PGO.match(artifact):  # logged for a hit only; the payload lists what the profile knows
        return {"kind": f"pgo_{pgo[1]}", "outcome": "hit"}
    match = _ARTIFACT.match(artifact)
    said = decoded(payload)
    if match is None or not isinstance(said, dict):
        raise ValueError(artifact)
    return {
        "kind": _KINDS[match[1]],
        "outcome": None if match[2] == "hash" else match[2],
        "detail": text(said.get("cache_status_detailed")),
        "key": text(said.get("key")),
        "reason": text(said.get("cache_bypass_reason")),
        "saved_ns": _time(said, "time_saved"),
        "spent_ns": _time(said, "time_taken"),
    }


def _time(said: Mapping[str, Any], name: str) -> int | None:
    exact, rough = number(said.get(f"{name}_ns")), number(said.get(f"{name}_ms"))
    if exact is not None:
        return int(exact)
    return None if rough is None else int(rough * 1e6)


_COUNTED = ("inductor_fx_local", "inductor_fx_remote", "aotautograd_local", "aotautograd_remote")


def cached(rows: Iterable[Mapping[str, Any]], metrics: Mapping[str, Any]) -> bool | None:
    """Whether the backend's work for one compilation came from a cache; None when nothing says so.

    Args:
        rows: its look-ups.
        metrics: its metrics record, whose counts stand in where no look-up was logged.
    """
    outcomes: dict[str, set[str]] = {}
    for row in rows:
        if row.get("outcome") is not None:
            outcomes.setdefault(row["kind"], set()).add(row["outcome"])
    if outcomes.get("aot_autograd") == {"hit"}:
        return True
    if "fx_graph" in outcomes:
        return outcomes["fx_graph"] == {"hit"}
    hits, misses = (
        sum(int(number(metrics.get(f"{name}_cache_{what}_count")) or 0) for name in _COUNTED)
        for what in ("hit", "miss")
    )
    return None if not hits + misses else misses == 0
