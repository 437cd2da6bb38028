"""The status line on a real (pseudo-)terminal: the script's output is what it is without, and so is its terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

import pyte
import pytest

from gpudoctor.cli.progress import display, styled, words
from gpudoctor.recorder.status import Progress
from tests.e2e.conftest import environment, hears_ctrl_c

ROWS, COLUMNS = 24, 90
DRAWING = re.compile(
    rb"(?:\x1b7\x1b\[r\x1b8)?(?:\x1bD\x1b\[A\x1b7\x1b\[1;23r\x1b8)?\x1b7\x1b\[24;1H\x1b\[2K(?:\x1b\[[0-9;]*m|[^\x1b])*\x1b8"
)
"""All that the status line ever writes."""

TALKS = """
import os, sys, torch, torch.nn as nn
print(sys.stdout.isatty(), sys.stderr.isatty(), sys.stdin.isatty(), os.get_terminal_size(), flush=True)
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(400):
    opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
    if i % 40 == 0: print("\\nEPOCH", i, "größe ✓ " * 20, flush=True)
    print(f"\\rstep {i:4d} {'#' * (i % 40):40}|", end="", file=sys.stderr, flush=True)
    if i % 100 == 50: sys.stdout.write("\\x1b[31mhalf a"); sys.stdout.flush(); sys.stdout.write(" line\\x1b[0m\\n")
print("\\nthe last line without an end", end="", flush=True)
"""


def on_a_terminal(folder: Path, *command: str, interrupt_at: bytes = b"", **variables: str) -> tuple[bytes, int]:
    """All that a command writes to its terminal, and its exit code.

    Args:
        folder: where it runs.
        command: what runs.
        interrupt_at: press Ctrl-C once the command has written this.
        variables: changes to the environment.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    settings = {**environment(), "TERM": "xterm-256color", **variables}
    if "CI" not in variables:
        settings.pop("CI", None)

    def own_the_terminal() -> None:
        hears_ctrl_c()
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first terminal that a session opens controls it

    run = subprocess.Popen(
        command, cwd=folder, env=settings, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=own_the_terminal
    )
    os.close(theirs)
    written = bytearray()
    while True:
        try:
            read = os.read(ours, 1 << 16)
        except OSError:  # nobody has it open any more
            break
        if not read:
            break
        written += read
        if interrupt_at and interrupt_at in written:
            interrupt_at = b""
            os.write(ours, b"\x03")
    os.close(ours)
    return bytes(written), run.wait(timeout=60)


def check(folder: Path, source: str, *options: str, interrupt_at: bytes = b"", **variables: str) -> tuple[bytes, int]:
    (folder / "train.py").write_text(source, encoding="utf-8")
    words = ("check", "--run-to-end", "--output-format", "concise", *options, "train.py")
    return on_a_terminal(folder, sys.executable, "-m", "gpudoctor", *words, interrupt_at=interrupt_at, **variables)


def shown(written: bytes) -> list[str]:
    """What somebody sees who scrolls through the whole terminal."""
    screen = pyte.HistoryScreen(COLUMNS, ROWS, history=100_000, ratio=1)
    pyte.ByteStream(screen).feed(written)
    rows = [*screen.history.top, *(screen.buffer[row] for row in range(ROWS))]
    return ["".join(row[column].data for column in range(COLUMNS)).rstrip() for row in rows]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes]:
    """What a script writes when it is checked, and when it runs bare."""
    folder = tmp_path_factory.mktemp("talks")
    checked, code = check(folder, TALKS)
    assert code == 0, checked
    bare, _ = on_a_terminal(folder, sys.executable, "train.py")
    return checked, bare


def test_the_line_tells_phase_steps_and_time(both: tuple[bytes, bytes]) -> None:
    drawn = b"\n".join(DRAWING.findall(both[0])).decode()
    assert "waiting for the first step" in drawn
    assert "diagnosing" in drawn


def test_the_scripts_bytes_come_through_whole_and_in_order(both: tuple[bytes, bytes]) -> None:
    checked, bare = both
    assert DRAWING.sub(b"", checked).startswith(bare)


def test_what_is_seen_is_what_the_bare_script_shows(both: tuple[bytes, bytes]) -> None:
    checked, bare = (shown(written) for written in both)
    while not bare[-1]:
        bare.pop()
    assert checked[: len(bare) - 1] == bare[:-1]
    assert checked[len(bare) - 1].startswith(bare[-1])


def test_the_line_is_gone_before_the_diagnosis(both: tuple[bytes, bytes]) -> None:
    rows = shown(both[0])
    assert not [row for row in rows if "diagnosing" in row or "waiting for" in row]
    assert [row for row in rows if "report.html" in row]


FLOOD = """
import sys
for i in range(100):
    sys.stdout.write(("%06d " % i + "x" * 92 + "\\n") * 1024)
sys.stdout.write("no end")
"""


def test_ten_megabytes_come_through_whole(tmp_path: Path) -> None:
    checked, code = check(tmp_path, FLOOD)
    assert code == 4  # no step
    assert DRAWING.search(checked)
    rows = b"".join((b"%06d " % i + b"x" * 92 + b"\r\n") * 1024 for i in range(100))
    assert DRAWING.sub(b"", checked).startswith(rows + b"no end")


ENDLESS = """
import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
i = 0
while True:
    opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
    i += 1
    if i == 40: print("READY", flush=True)
"""


def test_ctrl_c_ends_the_script_once_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    written, code = check(tmp_path, ENDLESS, interrupt_at=b"READY")
    assert code == 3
    assert written.count(b"KeyboardInterrupt") == 1
    assert b"what was seen until then follows" in written
    screen = pyte.Screen(COLUMNS, ROWS)
    pyte.ByteStream(screen).feed(written)
    assert screen.margins is None


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """Both ends of a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (ROWS, COLUMNS))
    monkeypatch.setenv("TERM", "xterm")
    for name in ("CI", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())  # it controls no session
    with os.fdopen(theirs, "w") as stream:
        yield ours, stream
    os.close(ours)


@pytest.mark.parametrize("variable", [("CI", "true"), ("TERM", "dumb"), ("TORCHELASTIC_RUN_ID", "1")])
def test_there_is_no_line_where_it_is_not_wanted(
    variable: tuple[str, str], terminal: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    with display(False, terminal[1]) as line:
        assert line is not None
    with display(True, terminal[1]) as line:
        assert line is None
    monkeypatch.setenv(*variable)
    with display(False, terminal[1]) as line:
        assert line is None


def test_there_is_no_line_without_a_terminal_or_on_a_tiny_one(terminal: tuple[int, TextIO], tmp_path: Path) -> None:
    termios.tcsetwinsize(terminal[1], (4, COLUMNS))
    with display(False, terminal[1]) as line:
        assert line is None
    with (tmp_path / "log").open("w") as file, display(False, file) as line:
        assert line is None


def feed(stream: pyte.ByteStream, ours: int, seen: Callable[[], bool]) -> None:
    """Feeds what arrives at the terminal until it shows something: what is written at once can come in parts."""
    while not seen() and select.select([ours], [], [], 10)[0]:
        stream.feed(os.read(ours, 1 << 16))


@pytest.mark.parametrize("rows", [ROWS + 6, ROWS - 6])
def test_the_line_follows_when_the_terminal_is_resized(rows: int, terminal: tuple[int, TextIO]) -> None:
    ours, theirs = terminal[0], terminal[1].fileno()
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    with display(False, terminal[1]) as line:
        assert line is not None
        os.write(theirs, b"one\r\ntwo")
        line.show("before")
        feed(stream, ours, lambda: "before" in screen.display[ROWS - 1])
        assert "before" in screen.display[ROWS - 1]
        termios.tcsetwinsize(theirs, (rows, COLUMNS))
        screen.resize(rows, COLUMNS)
        line.show("after")
        feed(stream, ours, lambda: "after" in screen.display[rows - 1])
        assert "after" in screen.display[rows - 1]
    feed(stream, ours, lambda: screen.margins is None and not screen.display[-1].strip())
    assert screen.margins is None
    assert "".join(screen.display[-1:]).strip() == ""
    os.write(theirs, b"!")
    feed(stream, ours, lambda: any("!" in row for row in screen.display))
    assert [row.strip()[-1:] for row in screen.display if row.strip()][-1] == "!"


def test_the_words_are_phase_steps_and_time() -> None:
    assert words(Progress()) == "waiting for the first step"
    assert words(Progress("warming up", 1, None, 0.2, None)) == "warming up · 1 step"
    assert words(Progress("watching", 42, 12_300_000, 14.2, 60.0)) == "watching · 42 steps · 12.3 ms each · 14 of 60 s"
    assert styled("long " * 30, 20).count("long") < 5
