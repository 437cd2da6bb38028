"""Fills `explicit_calls`: synchronisations, emptied caches and collections that the script asks for by hand."""

from __future__ import annotations

import ast
import functools
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpudoctor.clocks import CLOCKS
from gpudoctor.ingest.watch import ExplicitCall

COLLECT = "gc.collect"
SHORT_BLOCK = 3  # statements under an `if` that take a time between them; a longer block does other work as well


def rows(
    calls: Sequence[ExplicitCall], steps: Sequence[Mapping[str, Any]], sources: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Rows of the table.

    Args:
        calls: from the watch log.
        steps: rows of `steps`, in time order.
        sources: texts of the user's files.
    """
    begins = [step["start_ns"] for step in steps]
    made = []
    for call in calls:
        text = sources.get(call.file or "", "")
        if began_by_itself(call, sources):
            continue
        at = bisect_right(begins, call.start_ns) - 1
        inside = at >= 0 and call.start_ns < steps[at]["start_ns"] + steps[at]["dur_ns"]
        made.append(
            {
                "call_name": call.what,
                "start_ns": call.start_ns,
                "dur_ns": call.end_ns - call.start_ns,
                "step": steps[at]["step"] if inside else None,
                "file": call.file,
                "line": call.line,
                "function": call.function,
                "by_user": call.by_user,
                "thread": call.thread,
                "timed": call.line in timed_lines(text),
            }
        )
    return made


def began_by_itself(call: ExplicitCall, sources: Mapping[str, str]) -> bool:
    """Whether a collection only ran in a function that also calls `gc.collect`, on a line that does not."""
    text = sources.get(call.file or "", "")
    return call.what == COLLECT and call.by_user and bool(text) and not _collects(text, call.line or 0)


def _collects(text: str, line: int) -> bool:
    lines = text.splitlines()
    return 0 < line <= len(lines) and "collect" in lines[line - 1]


@functools.lru_cache(maxsize=64)
def timed_lines(text: str) -> frozenset[int]:
    """Lines of the statements that read a clock and of those right before and behind one, in the same block."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found: set[int] = set()
    for block in _blocks(tree):
        reads = [_reads_clock(statement) for statement in block]
        for at, statement in enumerate(block):
            if any(reads[max(0, at - 1) : at + 2]):
                found |= set(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
    return frozenset(found)


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield block


def _reads_clock(statement: ast.stmt) -> bool:
    """Whether the statement's own expressions read a clock; a loop or function around some is no such statement."""
    inner = getattr(statement, "body", [])
    if inner and not (isinstance(statement, ast.If) and len(inner) <= SHORT_BLOCK):
        return False
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
            if name in CLOCKS:
                return True
    return False
