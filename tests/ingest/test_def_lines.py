from __future__ import annotations

import pytest

from gpudoctor.ingest.def_lines import DefLines

TEXT = """import torch

@torch.no_grad()
def outer():
    x = 1
    def step():
        y = 2
        return y
    return step

async def step():
    z = 3
"""


@pytest.mark.parametrize(
    ("line", "function", "first"),
    [
        (5, "outer", 3),  # its decorator's line, as code objects have it
        (3, "outer", 3),
        (8, "step", 6),
        (12, "step", 11),
        (12, "<module>", 1),
        (5, "<lambda>", 5),
        (99, "step", 99),
    ],
)
def test_the_first_line_is_that_of_the_innermost_function_of_the_name(line: int, function: str, first: int) -> None:
    assert DefLines({"a.py": TEXT}).first_line("a.py", line, function) == first


def test_without_the_text_the_line_stays() -> None:
    assert DefLines({"a.py": "def ("}).first_line("a.py", 4, "f") == 4
    assert DefLines({}).first_line("a.py", 4, "f") == 4
