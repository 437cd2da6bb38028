"""The terminal report's part on the critical path and on what all fixes save together."""

from __future__ import annotations

import re
from dataclasses import replace

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.reporters import console, path_words

from . import diagnoses


def shown(diagnosis: Diagnosis, width: int = 80) -> str:
    """The report with its lines joined, so that wrapping does not matter."""
    return re.sub(r"\s+", " ", console.render(diagnosis, width))


def test_the_largest_owners_are_shown_with_time_share_and_line_and_the_others_as_one() -> None:
    text = console.render(diagnoses.replayed())
    section = text.partition(path_words.TITLE)[2].partition("\n\n")[0]
    rows = [re.sub(r" {2,}", "  ", line).strip() for line in section.splitlines()[1:]]
    assert rows[:2] == ["Python between operators  1.90 ms  35 %", "GPU: gemm, stream 7  1.10 ms  20 %  train.py:17"]
    assert "wait in cudaStreamSynchronize  400 µs  7.0 %  train.py:32" in rows
    assert "AddmmBackward0  390 µs  7.0 %" in rows
    assert "13 smaller owners  900 µs  16 %" in rows
    assert rows[-1] == "6 steps replayed unchanged: < 0.1 % off (worst 0.4 %), 0.3 % unexplained waits"


def test_a_short_path_is_shown_whole() -> None:
    path = diagnoses.replayed().critical_path
    assert path is not None
    assert len(path_words.owners(replace(path, shares=path.shares[:7]))) == 7
    assert len(path_words.owners(replace(path, shares=path.shares[:8]))) == path_words.MOST + 1


def test_without_a_path_there_is_no_section() -> None:
    assert path_words.TITLE not in console.render(diagnoses.realistic())


def test_savings_are_ranges_and_say_what_they_add_and_give_back() -> None:
    text = shown(diagnoses.replayed())
    assert "worth 1.20 to 1.90 ms/step, 23 to 37 % of the step, simulated (upper bound) fix" in text
    assert "worth ≤ 724 µs/step, ≤ 1.00 GiB of memory, 14 % of the step, simulated (upper bound); 210 µs of it" in text
    assert "worth ≤ 1.50 GiB of memory, estimated (upper bound)" in text
    assert "0 ns" not in text


def test_what_all_fixes_save_together_names_how_many_were_replayed() -> None:
    base = diagnoses.replayed()
    assert (
        "Fixed together, the 2 findings that a replay can price save "
        "1.41 to 2.11 ms/step, 28 to 41 % of the step, simulated (upper bound)" in shown(base)
    )
    assert "Fixed together, all findings save 1.41" in shown(replace(base, findings=base.findings[:3]))
    assert "together" not in shown(replace(base, findings=base.findings[:1]))


def test_a_run_without_a_device_still_says_how_well_it_was_replayed() -> None:
    base = replace(diagnoses.replayed(), critical_path=None)
    assert "simulated (upper bound) 6 steps replayed unchanged" in shown(base)
    one = shown(replace(base, findings=base.findings[:1]))
    assert "6 steps replayed unchanged" in one
    assert "together" not in one
    none = shown(replace(base, findings=()))
    assert "replayed unchanged" not in none


def test_a_refusal_is_one_note_and_nothing_else() -> None:
    base = diagnoses.replayed()
    assert base.replay is not None
    text = shown(replace(base, replay=replace(base.replay, refused="half of it is missing", together=None)))
    assert text.count("no saving was simulated: half of it is missing") == 1
    assert "replayed unchanged" not in text
