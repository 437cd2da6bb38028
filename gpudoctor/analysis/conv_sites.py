"""Lines of the user's source that construct a convolution with a bias next to a batch norm.

The step shows that a bias is taken away again, and the convolution's path in the model; which line constructed it was
decided before the first step. So the source is searched for constructors that leave `bias` at its default: in a list of
modules right in front of a batch norm, or as an attribute of a class that constructs batch norms too.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

_CONVOLUTION = re.compile(r"(?:Lazy)?Conv(?:Transpose)?[123]d")
_NORM = re.compile(r"(?:Lazy|Sync)?BatchNorm(?:[123]d)?")


def rows(sources: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of `conv_sites` from the user's source files; a file that does not parse has none."""
    made = []
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        found = {**_attributes(tree), **_in_lists(tree)}
        made += [{"file": file, "line": line, "attribute": found[line]} for line in sorted(found)]
    return made


def _in_lists(tree: ast.AST) -> dict[int, str | None]:
    """Neighbours among the arguments of a call (nn.Sequential) or in a list, also by the name of a variable."""
    named: dict[str, list[ast.Call]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
            named.setdefault(node.targets[0].id, []).append(node.value)
    made: dict[int, str | None] = {}
    for node in ast.walk(tree):
        neighbours = node.args if isinstance(node, ast.Call) else node.elts if isinstance(node, ast.List) else []
        for first, second in itertools.pairwise(neighbours):
            calls = named.get(first.id, []) if isinstance(first, ast.Name) else [first]
            for call in calls:
                if isinstance(call, ast.Call) and _leaves_bias(call) and _constructs(second, _NORM):
                    made[call.lineno] = None
    return made


def _attributes(tree: ast.AST) -> dict[int, str | None]:
    """`self.NAME = nn.Conv2d(…)` in a class that constructs a batch norm too."""
    made: dict[int, str | None] = {}
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef) or not any(_constructs(node, _NORM) for node in ast.walk(owner)):
            continue
        for name, value in _assigned(owner):
            if isinstance(value, ast.Call) and _leaves_bias(value):
                made[value.lineno] = name
    return made


def _assigned(owner: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        for place, value in pairs:
            if isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name) and place.value.id == "self":
                yield place.attr, value


def _constructs(node: ast.AST, what: re.Pattern[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    name = getattr(function, "attr", getattr(function, "id", ""))
    return what.fullmatch(name) is not None


def _leaves_bias(call: ast.Call) -> bool:
    """Whether it constructs a convolution and `bias` is not given, or given as True."""
    if not _constructs(call, _CONVOLUTION) or any(keyword.arg is None for keyword in call.keywords):
        return False
    given = [keyword.value for keyword in call.keywords if keyword.arg == "bias"]
    return not given or (isinstance(given[0], ast.Constant) and given[0].value is True)
