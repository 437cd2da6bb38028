"""The kernels that Inductor made, each with its code and with the user's lines that it comes from, for reports."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpudoctor.diagnosis import GeneratedKernel, KernelLine
from gpudoctor.profile import Profile

MOST = 25
"""Kernels kept, the first of the generated code: a list to look things up in, not the whole of it."""

MOST_LINES = 60
"""Lines kept of a kernel's code: the loop that does the work stands well within them."""

MOST_CHARACTERS = 32_000
"""Characters of code kept in all, by kernel time where it was measured, else in order. The page has them twice, once
for machines, and may have 250 KB."""

MOST_WIDTH = 240
"""Characters of a line of either code that are kept."""

_HEAD = re.compile(r'^(?:extern "C"|@triton\.jit|template\s*<)', re.M)


def generated(profile: Profile) -> tuple[tuple[GeneratedKernel, ...], int]:
    """The kernels in the order of the generated code, and how many more there are."""
    made: dict[tuple[object, ...], GeneratedKernel] = {}
    for row in profile.rows("generated_kernels"):
        key = row["kernel"], row["direction"], row["ops"], row["file"], row["line"]
        if key not in made:
            made[key] = _kernel(row, profile.sources)
    kernels = list(made.values())[:MOST]
    return tuple(_within(kernels, MOST_CHARACTERS)), len(made) - len(kernels)


def _kernel(row: Mapping[str, Any], sources: Mapping[str, str]) -> GeneratedKernel:
    moved = [row[name] for name in ("load_bytes", "store_bytes") if row[name] is not None]
    code = shown_code(str(row["code"])) if row["code"] else []
    return GeneratedKernel(
        name=str(row["kernel"]),
        kind=row["kind"],
        direction=row["direction"],
        ops=row["ops"],
        lines=_lines(row, sources),
        bytes=sum(moved) if moved else None,
        ns_per_step=None if row["time_ns"] is None else int(row["time_ns"]),
        code="\n".join(line[:MOST_WIDTH] for line in code[:MOST_LINES]) or None,
        code_lines=len(code),
    )


def shown_code(source: str) -> list[str]:
    """The lines of a kernel's source from its signature on: what stands above is the same in every kernel."""
    head = _HEAD.search(source)
    return source[head.start() if head else 0 :].strip("\n").rstrip().splitlines()


def _within(kernels: Sequence[GeneratedKernel], characters: int) -> list[GeneratedKernel]:
    """The kernels, with the code of those that fit: the longest running first, no shorter one instead of a long one."""
    kept: set[int] = set()
    for at in sorted(range(len(kernels)), key=lambda at: -(kernels[at].ns_per_step or 0)):
        characters -= len(kernels[at].code or "")
        if characters < 0:
            break
        kept.add(at)
    return [one if at in kept else replace(one, code=None) for at, one in enumerate(kernels)]


def _lines(row: Mapping[str, Any], sources: Mapping[str, str]) -> tuple[KernelLine, ...]:
    places = json.loads(row["lines"]) if row["lines"] else []
    if not places and row["file"] and row["line"]:
        places = [f"{row['file']}:{row['line']}"]
    made = []
    for place in places:
        file, _, line = str(place).rpartition(":")
        made.append(KernelLine(file, int(line), _text(sources.get(file), int(line))))
    return tuple(made)


def _text(source: str | None, line: int) -> str:
    lines = (source or "").splitlines()
    return lines[line - 1].strip()[:MOST_WIDTH] if 0 < line <= len(lines) else ""
