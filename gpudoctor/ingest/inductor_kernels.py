"""What the source of one kernel that Inductor generated says: arguments, reductions, whether it only moves elements.

C++ (for CPUs) and Triton are read; of other kinds only the name is known. Nothing is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ITEM_BYTES = {
    "double": 8,
    "float": 4,
    "half": 2,
    "at::Half": 2,
    "bfloat16": 2,
    "at::BFloat16": 2,
    "int64_t": 8,
    "int32_t": 4,
    "int16_t": 2,
    "int8_t": 1,
    "uint8_t": 1,
    "bool": 1,
    "fp64": 8,
    "fp32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8e4nv": 1,
    "fp8e5": 1,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u8": 1,
    "i1": 1,
}
"""Bytes of an element, by the names that C++ and Triton signatures use."""

_CPP_HEAD = re.compile(r'extern "C"[^(]*?\bkernel\w*\s*\(([^)]*)\)', re.S)
_USES = re.compile(r"in_out_ptr|in_ptr|out_ptr|ws_ptr|arg_[A-Z]$")
_CPP_ARGUMENT = re.compile(r"^\s*(const\s+)?([\w:]+)\s*(\*?)\s*(?:__restrict__\s*)?(\w+)\s*$")
_TRITON_SIGNATURE = re.compile(r"'signature': \{([^}]*)\}")
_TRITON_ARGUMENT = re.compile(r"'?(\w+)'?: '([^']*)'")
_HEURISTIC = re.compile(r"@triton_heuristics\.(\w+)")
_REDUCTIONS = re.compile(r"'num_reduction': (\d+)")
_ASSIGNED = re.compile(r"^\s*(?:auto\s+)?(tmp\d+)\s*=\s*(.+?);?\s*$", re.M)
# an index that was loaded itself (`tmp`) makes it a gather
_CPP_LOAD = re.compile(r"^(?:at::vec::\w+<[^>]*>::loadu\((?:(?!tmp\d).)*|\w*(?:in|out)_ptr\d+\[(?:(?!tmp\d).)*\])$")
_CPP_STORED = re.compile(r"\b(tmp\w+)\.store\(|ptr\d+\[[^;]*\] = (?:static_cast<[\w:]+>\()?(tmp\w+)\)?;")
_TRITON_STORED = re.compile(r"^\s*tl\.store\([^\n]*?, (\w+), [^,\n]*\)\s*$", re.M)
_TRITON_STORE = re.compile(r"^\s*tl\.store\(", re.M)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a kernel: whether it is read and written through, and its element's bytes (None: no known)."""

    name: str
    pointer: bool
    reads: bool
    writes: bool
    item_bytes: int | None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated kernel.

    Attributes:
        name: its name in the code and in a GPU's trace.
        kind: cpp, triton, or what else async_compile made it with.
        arguments: in the order of its signature; empty when it could not be read.
        reduction: it reduces (or scans) along a dimension; None when unknown.
        copy: it moves elements and computes nothing; None when unknown.
        source: its text; None when the output code could not be parsed.
    """

    name: str
    kind: str
    arguments: tuple[Argument, ...] = ()
    reduction: bool | None = None
    copy: bool | None = None
    source: str | None = None


def read_kernel(name: str, made_by: str, source: str | None) -> Kernel:
    """Reads a kernel's source.

    Args:
        name: the variable that holds it.
        made_by: the method of `async_compile`.
        source: its text; None when it is none.
    """
    kind = {"cpp_pybinding": "cpp"}.get(made_by, made_by)
    if source is None:
        return Kernel(name, kind)
    if kind == "cpp":
        return Kernel(name, kind, _cpp_arguments(source), _cpp_reduction(source), _cpp_copy(source), source)
    if kind == "triton":
        reads = _triton_arguments(source), _triton_reduction(source), _triton_copy(source)
        return Kernel(name, kind, *reads, source)
    return Kernel(name, kind, source=source)


def _argument(name: str, pointer: bool, constant: bool, element: str) -> Argument | None:
    """Inductor names an argument for its use: in_ptr0, out_ptr0, in_out_ptr0, in templates arg_A.

    None for any other name (kernels that the user wrote, further results of templates), unless it cannot be written.
    """
    if not pointer:
        return Argument(name, False, False, False, None)
    use = _USES.match(name)
    if use is None and not constant:
        return None
    writes = use is not None and use[0] in ("out_ptr", "in_out_ptr", "ws_ptr") and not constant
    return Argument(name, True, not writes or name.startswith("in_out_ptr"), writes, _ITEM_BYTES.get(element))


def _all_known(arguments: list[Argument | None]) -> tuple[Argument, ...]:
    known = tuple(argument for argument in arguments if argument is not None)
    return known if len(known) == len(arguments) else ()


def _cpp_arguments(source: str) -> tuple[Argument, ...]:
    head = _CPP_HEAD.search(source)
    if head is None:
        return ()
    found = [_CPP_ARGUMENT.match(part) for part in head[1].split(",")]
    if not all(found):
        return ()
    return _all_known([_argument(m[4], bool(m[3]), bool(m[1]), m[2]) for m in found if m is not None])


def _cpp_reduction(source: str) -> bool:
    return re.search(r"\btmp_acc\d|welford|_reduce_all|cascade_sum", source) is not None


def _cpp_copy(source: str) -> bool | None:
    """Whether every stored value was loaded and nothing else."""
    loaded: set[str] = set(re.findall(r"transpose_mxn<[^\n]*, (tmp\d+), ", source))
    computed: set[str] = set()
    for name, value in _ASSIGNED.findall(source):
        # a vector loaded from a transposed tile in registers comes from memory as well
        at_once = _CPP_LOAD.match(value) or any(f"loadu({tile} " in value for tile in loaded)
        (loaded if at_once else computed).add(name)
    stored = {first or second for first, second in _CPP_STORED.findall(source)}
    if not stored or _cpp_reduction(source):
        return None if not stored else False
    return stored <= loaded - computed


def _triton_arguments(source: str) -> tuple[Argument, ...]:
    signature = _TRITON_SIGNATURE.search(source)
    pairs = _TRITON_ARGUMENT.findall(signature[1]) if signature else []
    head = re.search(r"^def \w+\(([^)]*)\)", source, re.M)
    if head is not None and pairs and pairs[0][0].isdigit():  # older signatures go by position
        names = [part.split(":")[0].strip() for part in head[1].split(",")]
        pairs = [(names[int(at)], kind) for at, kind in pairs if int(at) < len(names)]
    return _all_known(
        [_argument(name, kind.startswith("*"), False, kind.lstrip("*")) for name, kind in pairs if kind != "constexpr"]
    )


def _triton_reduction(source: str) -> bool | None:
    heuristic, count = _HEURISTIC.search(source), _REDUCTIONS.search(source)
    if heuristic and ("reduction" in heuristic[1] or "scan" in heuristic[1]):
        return True
    return bool(int(count[1])) if count else None


def _triton_copy(source: str) -> bool | None:
    """Whether every stored value was loaded and nothing else; None for a kernel that stores in another way."""
    stored = _TRITON_STORED.findall(source)
    if not stored or len(stored) != len(_TRITON_STORE.findall(source)):
        return None
    values = dict(_ASSIGNED.findall(source))
    return all(_moved(value, values) for value in stored)


def _moved(name: str, values: dict[str, str]) -> bool:
    """Whether a value is a load or another name of one."""
    seen: set[str] = set()
    while name in values and name not in seen:
        seen.add(name)
        value = values[name]
        if value.startswith("tl.load("):
            return not re.search(r"tl\.load\([^\n]*\btmp\d", value)  # through an index: a gather
        name = value
    return False
