"""Kernels that Inductor made, in the diagnosis: their lines with text, their code, and how much of it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpudoctor import generated_code
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import KernelLine, without_source
from gpudoctor.generated_code import MOST, MOST_LINES, generated, shown_code
from gpudoctor.ingest import torch_trace
from gpudoctor.profile import Profile, frame

LOG = Path(__file__).parent / "ingest" / "data" / "inductor_cpu_cold.log"
SCRIPT = "\n".join(f"line_{number} = {number}" for number in range(1, 20))


def profile(*rows: dict[str, Any], sources: dict[str, str] | None = None) -> Profile:
    return Profile({"generated_kernels": frame("generated_kernels", rows)}, {}, sources or {})


def row(name: str, lines: int = 3, **more: Any) -> dict[str, Any]:
    code = "#include <x>\n" + 'extern "C" void kernel()\n' + "body;\n" * (lines - 1)
    return {"kernel": name, "kind": "cpp", "code": code, **more}


def test_a_real_log_gives_each_kernel_its_lines_and_its_code_from_the_signature_on() -> None:
    read = torch_trace.load(LOG)
    file = read.rows("generated_kernels")[0]["file"]
    kernels, left = generated(Profile(read.tables, read.facts, {file: SCRIPT}))
    first = kernels[0]
    assert left == 0
    assert first.lines == (KernelLine(file, 11, "line_11 = 11"), KernelLine(file, 14, "line_14 = 14"))
    assert first.code is not None and first.code.startswith('extern "C"')
    assert first.code.count("\n") + 1 == min(first.code_lines, MOST_LINES)
    assert all(kernel.code for kernel in kernels)


def test_the_code_begins_at_the_signature_and_is_whole_where_there_is_none() -> None:
    triton = (
        "import triton\n@triton_heuristics.pointwise(\n    size_hints={'x': 8},\n)\n@triton.jit\ndef k(x):\n    pass\n"
    )
    assert shown_code(triton) == ["@triton.jit", "def k(x):", "    pass"]
    assert shown_code("\nkernel void k()\n") == ["kernel void k()"]
    assert shown_code("") == []


def test_long_code_is_cut_and_its_length_is_told() -> None:
    (kernel,), _ = generated(profile(row("a", lines=500)))
    assert kernel.code is not None
    assert (kernel.code.count("\n") + 1, kernel.code_lines) == (MOST_LINES, 500)
    (wide,), _ = generated(profile({"kernel": "b", "code": "x" * 10_000}))
    assert wide.code == "x" * generated_code.MOST_WIDTH


def test_more_code_than_fits_goes_to_the_kernels_that_take_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row("a", time_ns=1), row("b", time_ns=9), row("c", time_ns=5)]
    monkeypatch.setattr(generated_code, "MOST_CHARACTERS", 2 * len(row("a")["code"]))
    kernels, _ = generated(profile(*rows))
    assert [bool(kernel.code) for kernel in kernels] == [False, True, True]
    assert [kernel.code_lines for kernel in kernels] == [3, 3, 3]


def test_kernels_that_are_not_listed_are_counted() -> None:
    kernels, left = generated(profile(*(row(f"k{n}") for n in range(MOST + 7))))
    assert (len(kernels), left) == (MOST, 7)


def test_a_kernel_without_code_or_lines_says_so() -> None:
    (kernel,), _ = generated(profile({"kernel": "a", "file": "cell 3", "line": 99}, sources={"cell 3": "x"}))
    assert (kernel.lines, kernel.code, kernel.code_lines) == ((KernelLine("cell 3", 99),), None, 0)


def test_without_source_neither_the_users_lines_nor_code_made_of_them_remain() -> None:
    read = torch_trace.load(LOG)
    file = read.rows("generated_kernels")[0]["file"]
    made = diagnose(Profile(read.tables, read.facts, {file: SCRIPT}), [])
    bare = without_source(made)
    assert any(kernel.code for kernel in made.generated)
    assert {(kernel.code, at.text) for kernel in bare.generated for at in kernel.lines} == {(None, "")}
    assert [kernel.code_lines for kernel in bare.generated] == [kernel.code_lines for kernel in made.generated]
