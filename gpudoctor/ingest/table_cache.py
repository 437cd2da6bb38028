"""Keeps a recording's tables as Parquet beside it: a cache, made anew when older than its sources."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

import gpudoctor
from gpudoctor import profile as schema
from gpudoctor.profile import Profile
from gpudoctor.recording import part

FOLDER = "profile"
_FACTS = "facts.json"
_VERSION = f"{schema.SCHEMA_VERSION}/{gpudoctor.__version__}"


def write(folder: Path, made: Profile) -> None:
    """Writes the tables; a cache that cannot be written is done without."""
    try:
        folder.mkdir(exist_ok=True)
        for name, table in made.tables.items():
            table.to_parquet(folder / f"{name}.parquet", index=False)
        content = {
            "version": _VERSION,
            "facts": made.facts,
            "why_missing": made.why_missing,
            "how_missing": made.how_missing,
            "tables": sorted(made.tables),
        }
        (folder / _FACTS).write_text(json.dumps(content, default=str), encoding="utf-8")
    except OSError:
        return


def read(folder: Path, rank: Path) -> Profile | None:
    """The Profile of a recorded process; None where the cache is not there, damaged or older than a part of it."""
    content = part(folder / _FACTS, None)
    if not isinstance(content, dict) or content.get("version") != _VERSION:
        return None
    written = (folder / _FACTS).stat().st_mtime_ns
    newest = max((path.stat().st_mtime_ns for path in rank.rglob("*")), default=0)
    if newest > written:
        return None
    tables = {}
    for name in content["tables"]:
        try:
            table = pd.read_parquet(folder / f"{name}.parquet")
        except (OSError, ValueError):
            return None
        if list(table.columns) != schema.TABLES[name].names:
            return None
        tables[name] = table
    sources = part(rank / "sources.json", {})
    return Profile(tables, content["facts"], sources, content["why_missing"], content.get("how_missing", {}))
