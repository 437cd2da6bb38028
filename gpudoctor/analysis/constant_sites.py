"""Lines of the user's source that build the same tensor on the CPU each time they run, and move it to a device.

On a CPU nothing is copied, so operators cannot tell; on a GPU the operators tell that something was copied, not that it
is always the same. The source says both: a tensor made of constants or sizes, by a function that makes it in host
memory, with `.to(x.device)`, `.cuda()` or `device=` behind it. Random numbers, what comes from data, and tensors made
on their device (`torch.zeros(n, device=x.device)`) are no such lines.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from gpudoctor.analysis.bindings import FUNCTIONS, Source
from gpudoctor.analysis.constancy import COPIED, SIZED, Constancy, called, from_module, returns

_LIFT = "aten::lift_fresh"
MAX_HELPERS = 2  # functions that call functions: a mask is made no deeper
_WAYS = frozenset({"to", "cuda", "type_as"})
_INDEX_NAMES = frozenset({"rank", "local_rank", "gpu", "gpu_id"})
_GPU_KINDS = ("cuda", "mps", "xpu", "npu", "hpu")
_GPU_WORDS = (*_GPU_KINDS, "accelerat", "lightning", "Trainer(")
_CHOICES = (ast.Attribute, ast.Subscript, ast.Call)  # an option, an entry of a configuration, an environment variable
_DEFAULT_DEVICE = ("set_default_device(", "set_default_tensor_type(")


def rows(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of `constant_sites`: for each site the place that builds and, where it is another, the one that moves."""
    parsed = {file: Source(tree) for file, text in sources.items() if (tree := _parsed(text)) is not None}
    stores = _stores(parsed.values())
    gpu = any(word in text for text in sources.values() for word in _GPU_WORDS)
    gpu = gpu or any(_device_chosen(source.tree) for source in parsed.values())
    elsewhere = any(word in text for text in sources.values() for word in _DEFAULT_DEVICE)
    numbers: dict[tuple[str, int], int] = {}  # what one line builds is one site
    made: dict[tuple[Any, ...], dict[str, Any]] = {}
    for file in sorted(parsed):
        source = parsed[file]
        for built, moved in _Sites(source, Constancy(source, stores), elsewhere).found():
            site = numbers.setdefault((file, built.lineno), len(numbers))
            places = [("built", built)] if _span(built) == _span(moved) else [("built", built), ("moved", moved)]
            for role, node in places:
                first, last = _span(node)
                op = SIZED.get(called(built), _LIFT)
                made[site, role, first, op] = {
                    "site": site,
                    "role": role,
                    "file": file,
                    "line": first,
                    "last_line": last,
                    "function": source.function(node),
                    "factory": _spelled(built),
                    "op": op,
                    "names_gpu": gpu,
                }
    return list(made.values())


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the user's invalid escapes are not ours to report
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def _stores(parsed: Any) -> dict[str, bool]:
    """For each attribute that is stored somewhere: whether only constructors do."""
    made: dict[str, bool] = {}
    for source in parsed:
        for name, nodes in source.attribute_stores.items():
            for node in nodes:
                around = next((up for up in source.above(node) if isinstance(up, FUNCTIONS)), None)
                made[name] = made.get(name, True) and around is not None and around.name == "__init__"
    return made


def _device_chosen(tree: ast.AST) -> bool:
    """Whether the device is the run's choice (`torch.device(args.device)`): a GPU then, on a machine that has one."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(called(call) == "device" and call.args and isinstance(call.args[0], _CHOICES) for call in calls)


def _span(node: ast.Call) -> tuple[int, int]:
    return node.lineno, node.end_lineno or node.lineno


def _spelled(node: ast.Call) -> str:
    return ast.unparse(node.func) if len(ast.unparse(node.func)) < 60 else called(node)


class _Sites:
    """Finds the sites of one file."""

    def __init__(self, source: Source, constancy: Constancy, elsewhere: bool) -> None:
        self._source, self._constancy, self._elsewhere = source, constancy, elsewhere

    def found(self) -> Iterator[tuple[ast.Call, ast.Call]]:
        """(the call that builds, the call that moves), in the order of the file, each building call once."""
        seen: set[ast.AST] = set()
        calls = [node for node in ast.walk(self._source.tree) if isinstance(node, ast.Call)]
        for move in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
            for built in self._built(move):
                if built not in seen and not self._placed_by_context(built):
                    seen.add(built)
                    yield built, move

    def _built(self, move: ast.Call) -> list[ast.Call]:
        """The factories of the constant that a call brings to a device; none when it is no such call."""
        name = called(move)
        if self._makes_on_device(move, name):
            return [move] if all(self._constancy.constant(value) for value in move.args[:1]) and move.args else []
        if name not in _WAYS or not isinstance(move.func, ast.Attribute) or not self._goes_to_device(move):
            return []
        value = move.func.value
        if not self._constancy.constant(self._followed(value, move)):
            return []
        return self._factories(self._followed(value, move))

    def _makes_on_device(self, call: ast.Call, name: str) -> bool:
        """`torch.tensor(…, device=d)` and `x.new_tensor(…)`: made on the CPU first, whatever the device is."""
        if name == "new_tensor":
            return isinstance(call.func, ast.Attribute)
        devices = [keyword.value for keyword in call.keywords if keyword.arg == "device"]
        made = name in ("tensor", "as_tensor") and from_module(call, self._source)
        return made and any(self._is_device(value) for value in devices)

    def _goes_to_device(self, move: ast.Call) -> bool:
        if called(move) == "cuda":
            return True
        if called(move) == "type_as":
            return bool(move.args)
        told = [keyword.value for keyword in move.keywords if keyword.arg == "device"] or move.args[:1]
        return bool(told) and self._is_device(told[0])

    def _is_device(self, node: ast.expr) -> bool:
        """Whether an expression names a device that can be a GPU."""
        if isinstance(node, ast.Attribute):
            return node.attr == "device" or node.attr.endswith("_device") or node.attr in _INDEX_NAMES
        if isinstance(node, ast.IfExp):
            return self._is_device(node.body) or self._is_device(node.orelse)
        if isinstance(node, ast.Call) and called(node) == "device" and node.args:
            return not isinstance(node.args[0], ast.Constant) or self._is_device(node.args[0])
        if isinstance(node, ast.Name):
            home = self._source.home(node)
            values = [bound.value for bound in home[1] if isinstance(bound, ast.Assign)] if home else []
            if values and not any(self._is_device(value) or _unclear(value) for value in values):
                return False
            return "dev" in node.id.lower() or node.id in _INDEX_NAMES
        return isinstance(node, ast.Constant) and str(node.value).startswith(_GPU_KINDS)

    def _followed(self, value: ast.expr, move: ast.Call) -> ast.expr:
        """Of a name that was given one tensor before and is moved here, that tensor's expression."""
        if not isinstance(value, ast.Name):
            return value
        home = self._source.home(value)
        if home is None or home[0] is not self._source.scope(value):
            return value
        scope, bindings = home
        assigns = [b for b in bindings if isinstance(b, ast.Assign) and not self._source.inside(move, b)]
        if len(assigns) != 1 or any(not isinstance(b, ast.Assign) for b in bindings):
            return value
        (first,) = assigns
        if len(first.targets) != 1 or not isinstance(first.targets[0], ast.Name) or first.lineno > move.lineno:
            return value
        if self._source.loop(first) is not self._source.loop(move):  # made once, moved again and again: not rebuilt
            return value
        before = [use for use in self._source.uses(value.id, scope) if use.lineno < move.lineno]
        touched = any(self._source.changed(use) or self._source.handed_on(use) for use in before)
        return value if touched else first.value

    def _factories(self, node: ast.expr, depth: int = 0) -> list[ast.Call]:
        """The first call in a constant expression that makes a tensor in host memory, also in helpers of the user's."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            if self._on_host(call):
                return [call]
            function = self._constancy.helper(call) if depth < MAX_HELPERS else None
            for value in returns(function) if function is not None else ():
                if found := self._factories(value, depth + 1):
                    return found
        return []

    def _on_host(self, call: ast.Call) -> bool:
        """Whether a call makes a tensor in host memory, whatever the default device is."""
        name = called(call)
        if name not in SIZED and name not in COPIED:
            return False
        if any(keyword.arg == "device" for keyword in call.keywords) or not from_module(call, self._source):
            return False
        return ast.unparse(call.func).split(".")[0] not in ("np", "numpy") and not (name in SIZED and self._elsewhere)

    def _placed_by_context(self, node: ast.AST) -> bool:
        """Whether a `with torch.device(…):` around the line decides where tensors are made."""
        items = [item for up in self._source.above(node) if isinstance(up, ast.With) for item in up.items]
        return any("device" in ast.unparse(item.context_expr) for item in items)


def _unclear(value: ast.expr) -> bool:
    """Whether a device's value is decided elsewhere: not a literal, nor `torch.device` of one."""
    inner = value.args[0] if isinstance(value, ast.Call) and called(value) == "device" and value.args else value
    return not isinstance(inner, ast.Constant)
