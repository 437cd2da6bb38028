from __future__ import annotations

from typing import Any

from gpudoctor.ingest import rank_versions


def test_each_rank_has_a_row_for_what_it_loaded() -> None:
    tables: dict[str, Any] = {}
    facts = [
        {"environment": {"torch": "2.13.0", "cuda": "None", "cores": "8"}},
        {},
        {"environment": {"torch": "2.12.0"}},
    ]
    rank_versions.add(facts, tables, {})
    assert [(row["rank"], row["name"], row["version"]) for row in tables["rank_versions"]] == [
        (0, "torch", "2.13.0"),
        (2, "torch", "2.12.0"),
    ]


def test_one_rank_has_nothing_to_be_compared_with() -> None:
    tables: dict[str, Any] = {}
    missing: dict[str, str] = {}
    rank_versions.add([{"environment": {"torch": "2.13.0"}}], tables, missing)
    assert (tables, missing) == ({}, {"rank_versions": "the recording has one rank"})
