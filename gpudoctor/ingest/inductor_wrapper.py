"""Inductor's output code as data: kernels, the calls of the function `call`, and the buffers they read and write.

The code is Python that defines kernels (`name = async_compile.triton(…)`) and runs them in a function `call`, with
buffers in between (`buf0 = empty_strided_cuda((8, 16), (16, 1), torch.float32)`). It is parsed, never executed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from gpudoctor.ingest.inductor_kernels import Kernel, read_kernel

_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.M)
_AOT_ID = re.compile(r"^# AOT ID: \['(\d+_(\w+))'", re.M)
_COMMENT = re.compile(r"# [\w ]*Source Nodes: \[(.*?)\], Original ATen: \[(.*?)\]")
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+)")
_FRAGMENT = re.compile(r"^#\s+%(\w+) : .*= call_function\[", re.M)
_EXTERN = ("extern_kernels.", "torch.ops.", "aten.", "prims.", "inductor_ops.", "_quantized.")
_NO_WORK = ("torch.ops.inductor._alloc_from_pool", "torch.ops.inductor._reinterpret_tensor")
_NOT_COPIED = ("reinterpret_tensor", "alloc_from_pool")


@dataclass(frozen=True, slots=True)
class Buffer:
    """One tensor as an argument: the memory it lies in and how many elements of it, None for a dynamic size."""

    name: str
    storage: int
    numel: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a kernel or of a library in the graph.

    Attributes:
        target: kernel's name, or what is called, e.g. `extern_kernels.addmm`.
        kernel: it is a generated kernel.
        line: its line in the generated file.
        arguments: the tensors it takes, in order; None for other arguments.
        result: the buffer it writes (`out=`) or returns; None when it only changes its arguments.
        nodes: source nodes that the comment above it names.
        ops: operators that the comment names, before decomposition.
        handle: its key in the provenance artifacts.
    """

    target: str
    kernel: bool
    line: int
    arguments: tuple[Buffer | None, ...]
    result: Buffer | None
    nodes: tuple[str, ...]
    ops: tuple[str, ...]
    handle: str | None


@dataclass(slots=True)
class Code:
    """One graph's output code.

    Attributes:
        graph: Inductor's id of the graph, e.g. 0_forward.
        direction: forward, backward or inference; None when it is not said.
        kernels: by name.
        fragments: by kernel, the graph's nodes that the comment above it lists.
        calls: in order.
        inputs: the graph's inputs, as buffers.
        outputs: what it returns; None for what is no tensor.
        whole: the code could be parsed.
    """

    graph: str | None = None
    direction: str | None = None
    kernels: dict[str, Kernel] = field(default_factory=dict)
    fragments: dict[str, tuple[str, ...]] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    inputs: list[Buffer] = field(default_factory=list)
    outputs: list[Buffer | None] = field(default_factory=list)
    whole: bool = False


def read_code(text: str) -> Code:
    """Reads output code; what cannot be parsed gives the kernels' names and no calls."""
    code = Code()
    if said := _AOT_ID.search(text):
        code.graph, code.direction = said[1], said[2]
    for match in _DEFINED.finditer(text):
        code.kernels[match[1]] = read_kernel(match[1], match[2], None)
        above = text[: match.start()].rpartition("\n\n")[2]
        code.fragments[match[1]] = tuple(_FRAGMENT.findall(above))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    code.whole = True
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and (made := _definition(statement)):
            code.kernels[made.name] = made
    lines = text.splitlines()
    classes = [statement for statement in tree.body if isinstance(statement, ast.ClassDef)]
    for function in (*tree.body, *(inner for outer in classes for inner in outer.body)):
        # a graph that CUDA graphs cut in parts has a function for each of them
        if isinstance(function, ast.FunctionDef) and re.fullmatch(r"call|partition_\d+", function.name):
            _Calls(code, lines).read(function)
    return code


def _definition(statement: ast.Assign) -> Kernel | None:
    target, value = statement.targets[0], statement.value
    if not (isinstance(target, ast.Name) and isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
        return None
    if not (isinstance(value.func.value, ast.Name) and value.func.value.id == "async_compile"):
        return None
    texts = [
        a.value for a in value.args if isinstance(a, ast.Constant) and isinstance(a.value, str) and "\n" in a.value
    ]
    return read_kernel(target.id, value.func.attr, texts[0] if texts else None)


class _Calls:
    """Walks the statements of one function; remembers where each buffer lies and how large it is."""

    def __init__(self, code: Code, lines: list[str]) -> None:
        self._code, self._lines = code, lines
        self._buffers: dict[str, Buffer] = {}
        self._storages = sum(len(call.arguments) + 1 for call in code.calls) + len(code.inputs)
        self._last_line = 0

    def read(self, function: ast.FunctionDef) -> None:
        self._last_line = function.lineno
        for statement in _flat(function.body):
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Return):
            items = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
            self._code.outputs = [self._buffer(item) for item in items]
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            if ast.unparse(statement.value.func) == "assert_size_stride":
                self._sized(statement.value)
            else:
                self._call(statement.value, None)
        elif isinstance(statement, ast.Assign):
            self._assign(statement.targets[0], statement.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id == "args":
            names = [item.id for item in target.elts if isinstance(item, ast.Name)]
            self._code.inputs = [self._new(name, None) for name in names]
        elif isinstance(target, ast.Name):
            if isinstance(value, ast.Call) and self._call(value, target.id):
                return
            if isinstance(value, ast.Call) and "empty_strided" in ast.unparse(value.func) and value.args:
                self._new(target.id, _numel(value.args[0]))
            elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
                # an element of what a library call returned: its own memory, its producer's result
                self._new(target.id, None, self._buffers.get(value.value.id))
            elif (found := self._buffer(value)) is not None:
                self._buffers[target.id] = Buffer(target.id, found.storage, found.numel)

    def _new(self, name: str, numel: int | None, inside: Buffer | None = None) -> Buffer:
        self._storages += 1
        made = Buffer(name, inside.storage if inside else self._storages, numel)
        self._buffers[name] = made
        return made

    def _sized(self, call: ast.Call) -> None:
        if len(call.args) >= 2 and isinstance(call.args[0], ast.Name) and (known := self._buffers.get(call.args[0].id)):
            self._buffers[known.name] = Buffer(known.name, known.storage, _numel(call.args[1]))

    def _buffer(self, value: ast.expr) -> Buffer | None:
        """The buffer that an expression names or looks at."""
        if isinstance(value, ast.Name):
            return self._buffers.get(value.id)
        if isinstance(value, ast.Call) and ast.unparse(value.func) in _NOT_COPIED and value.args:
            base = self._buffer(value.args[0])
            if base is not None and len(value.args) > 1:
                return Buffer(base.name, base.storage, _numel(value.args[1]))
            return base
        return None

    def _call(self, call: ast.Call, target: str | None) -> bool:
        """Notes a call of a kernel or library; False when it is none."""
        called = ast.unparse(call.func)
        kernel = called.removesuffix(".run")
        if kernel not in self._code.kernels and (not called.startswith(_EXTERN) or called in _NO_WORK):
            return False
        generated = kernel in self._code.kernels
        arguments = tuple(self._buffer(value) for value in call.args)
        out = next((keyword.value for keyword in call.keywords if keyword.arg == "out"), None)
        result = self._buffer(out) if out is not None else self._new(target, None) if target is not None else None
        nodes, ops, handle = self._above(call.lineno)
        name = kernel if generated else called
        self._code.calls.append(Call(name, generated, call.lineno, arguments, result, nodes, ops, handle))
        return True

    def _above(self, line: int) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
        """What the comments between the previous call and this one say."""
        said = "\n".join(self._lines[self._last_line : line - 1])
        self._last_line = line
        comments, handles = _COMMENT.findall(said), _HANDLE.findall(said)
        nodes, ops = comments[-1] if comments else ("", "")
        return _listed(nodes), _listed(ops), handles[-1] if handles else None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(item for item in text.split(", ") if item)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order, those of `with`, `if`, `for` and `try` blocks in their place."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(statement, name, None)
            if isinstance(inner, list) and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                yield from _flat(inner)


def _numel(shape: ast.expr) -> int | None:
    """Elements of a tensor of this shape; None when a size is no number."""
    if not isinstance(shape, ast.Tuple | ast.List):
        return None
    product = 1
    for size in shape.elts:
        if not (isinstance(size, ast.Constant) and isinstance(size.value, int)):
            return None
        product *= size.value
    return product
