"""What the page shows of a kernel that Inductor made: the user's lines, and beside them its code."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis import GeneratedKernel, KernelLine, Location
from gpudoctor.reporters.wording import code_line, glued, one_line, place
from gpudoctor.units import format_bytes, format_ns, plural


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One line of the user's: where it is and what it says, which is empty where it is not known."""

    where: str
    text: str


@dataclass(frozen=True, slots=True)
class KernelView:
    """One kernel: its name and facts, the lines it comes from, and its code with what was cut of it."""

    name: str
    facts: str
    lines: tuple[SourceRow, ...]
    code: tuple[str, ...]
    code_title: str
    cut: str


def kernel(one: GeneratedKernel) -> KernelView:
    """A kernel as the page shows it."""
    code = tuple(code_line(line) for line in one.code.split("\n")) if one.code else ()
    cut = one.code_lines - len(code)
    return KernelView(
        one_line(one.name),
        _facts(one),
        tuple(map(_line, one.lines)),
        code,
        f"Generated code, {plural(one.code_lines, 'line')}",
        _cut(cut, bool(code)) if cut > 0 else "",
    )


def note(left_out: int) -> str:
    """What is said of kernels that are not listed."""
    if not left_out:
        return ""
    return f"{plural(left_out, 'more kernel')}: see the table generated_kernels (gpudoctor query)."


def _facts(one: GeneratedKernel) -> str:
    words = [" ".join(filter(None, (one_line(one.kind or ""), one_line(one.direction or ""))))]
    if one.ops:
        words.append(f"fuses {one_line(one.ops)}")
    if one.bytes is not None:
        words.append(f"moves {format_bytes(one.bytes)}")
    if one.ns_per_step is not None:
        words.append(f"{format_ns(one.ns_per_step)} a step")
    return glued(" · ".join(filter(None, words)))


def _line(line: KernelLine) -> SourceRow:
    return SourceRow(place(Location(line.file, line.line)), code_line(line.text))


def _cut(lines: int, some: bool) -> str:
    what = plural(lines, "more line") if some else f"{plural(lines, 'line')} of its code"
    return f"{what} left out, to keep the page small."
