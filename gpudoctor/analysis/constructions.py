"""Where the user's source constructs embeddings and optimizers: the lines that a remedy changes."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

_EMBEDDINGS = frozenset({"Embedding", "EmbeddingBag"})


@dataclass(frozen=True, slots=True)
class Place:
    """A call in the user's source."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Constructions:
    """Calls by what they make.

    Attributes:
        embeddings: the name that an embedding is assigned to (empty for none), and where.
        calls: every call by the last part of the called name.
    """

    embeddings: tuple[tuple[str, Place], ...]
    calls: Mapping[str, tuple[Place, ...]]

    def embedding(self, path: str) -> Place | None:
        """Where the embedding at a module's path is constructed; None when the source does not tell for certain.

        Args:
            path: e.g. `encoder.tokens` or `tables.user`, which a ModuleDict called `tables` holds.
        """
        for part in reversed(path.split(".")):
            fits = {place for name, place in self.embeddings if name == part and part}
            if fits:
                return fits.pop() if len(fits) == 1 else None
        only = {place for _, place in self.embeddings}
        return only.pop() if len(only) == 1 else None

    def optimizer(self, name: str) -> Place | None:
        """Where the one optimizer of a class is constructed; None when there are several such calls, or none."""
        fits = self.calls.get(name, ())
        return fits[0] if len(fits) == 1 else None


def of(sources: Mapping[str, str]) -> Constructions:
    """Looks through the user's files; one that does not parse has nothing."""
    embeddings: list[tuple[str, Place]] = []
    calls: dict[str, tuple[Place, ...]] = {}
    for file, text in sources.items():
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        targets = _targets(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = _last(node.func)
            owner = _last(node.func.value) if isinstance(node.func, ast.Attribute) else ""
            place = Place(file, node.lineno)
            if name:
                calls[name] = (*calls.get(name, ()), place)
            if name in _EMBEDDINGS or (name == "from_pretrained" and owner in _EMBEDDINGS):
                embeddings.append((targets.get(node, ""), place))
    return Constructions(tuple(embeddings), calls)


def _last(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _targets(tree: ast.Module) -> dict[ast.AST, str]:
    """For every node inside an assignment's value: the name or attribute assigned to; a key of a dict comes first."""
    named: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            for inner in ast.walk(node.value):
                named.setdefault(inner, _last(target))
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    named[value] = key.value
    return named
