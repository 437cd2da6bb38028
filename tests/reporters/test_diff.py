"""Reading unified diffs."""

from __future__ import annotations

from gpudoctor.reporters.diff import DiffLine, changes, parse


def test_lines_are_told_apart_by_their_sign() -> None:
    assert parse("--- a.py\n+++ b.py\n@@ -1,2 +1,2 @@\n same\n-old\n+new\n") == (
        DiffLine("file", "b.py"),
        DiffLine("hunk", "@@ -1,2 +1,2 @@"),
        DiffLine("same", " same"),
        DiffLine("del", "-old"),
        DiffLine("add", "+new"),
    )


def test_the_prefixes_of_git_are_not_part_of_the_name() -> None:
    assert parse("--- a/b/train.py\n+++ b/b/train.py\n")[0] == DiffLine("file", "b/train.py")


def test_changed_lines_that_look_like_headers_are_changes() -> None:
    assert changes("--- a\n+++ b\n@@ -1 +1 @@\n---x\n+++y\n context\n") == ["- --x", "+ ++y"]


def test_changes_move_left_together() -> None:
    assert changes("-        if a:\n-            b\n+        c\n+\n") == ["- if a:", "-     b", "+ c", "+ "]


def test_nothing_is_no_lines() -> None:
    assert parse("") == ()
    assert changes("") == []
