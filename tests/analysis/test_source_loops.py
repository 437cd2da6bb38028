from __future__ import annotations

from gpudoctor.analysis.source_loops import SourceLoops

SOURCE = """
for epoch in range(3):
    for x in data:
        y = [f(row) for row in x]
        while busy(y):
            y = g(
                y,
            )
    done()
"""


def test_the_innermost_loop_that_repeats_a_line() -> None:
    loops = SourceLoops({"t.py": SOURCE})
    found = {line: loops.around("t.py", line) for line in range(1, 10)}
    assert {line: loop.head for line, loop in found.items() if loop} == {
        3: "for epoch in range(3)",
        4: "for row in x",
        5: "for x in data",
        6: "while busy(y)",
        7: "while busy(y)",
        8: "while busy(y)",
        9: "for epoch in range(3)",
    }


def test_a_file_that_is_not_there_or_does_not_parse_has_no_loops() -> None:
    loops = SourceLoops({"t.py": "for ("})
    assert loops.around("t.py", 1) is None
    assert loops.around("other.py", 1) is None


def test_a_long_head_is_cut() -> None:
    loop = SourceLoops({"t.py": f"for x in {'a' * 200}:\n    x\n"}).around("t.py", 2)
    assert loop is not None
    assert len(loop.head) == 80
    assert loop.head.endswith("…")
