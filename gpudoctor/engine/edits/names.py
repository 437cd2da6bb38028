"""What names in a file mean: imports followed to the dotted names they stand for, and imports that are added."""

from __future__ import annotations

from functools import lru_cache

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.tree import Source


def dotted(node: cst.CSTNode) -> str | None:
    """`a.b.c` as written; None for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr.value}"
    return None


def full_name(source: Source, node: cst.CSTNode) -> str | None:
    """The dotted name that an expression stands for, e.g. `torch.cuda.empty_cache` where `cuda` was imported.

    None where the file binds the first name in other ways too, or imports it twice as different things.
    """
    written = dotted(node)
    if written is None:
        return None
    head, dot, tail = written.partition(".")
    meaning = _imported(source, head)
    if meaning is None or bound_otherwise(source, head):
        return None
    return f"{meaning}{dot}{tail}"


def spelled(source: Source, name: str) -> str | None:
    """The shortest way to write a dotted name with the imports at the file's top; None when none of them reaches it."""
    found = [
        alias + name[len(meaning) :]
        for statement in _top_imports(source)
        for alias, meaning in _meanings(statement)
        if (name == meaning or name.startswith(f"{meaning}.")) and not bound_otherwise(source, alias)
    ]
    return min(found, key=len, default=None)


def with_import(source: Source, module: cst.Module, name: str) -> cst.Module:
    """The module (`source`'s, perhaps changed) with `import name` among the imports at its top.

    Raises:
        NotCertainError: there are none, or the file binds the name otherwise.
    """
    if bound_otherwise(source, name):
        raise NotCertainError(f"the file has another {name}")
    new = source.new_statement(f"import {name}")
    body = list(module.body)
    at = import_end(module)
    if at == 0:
        raise NotCertainError("the file has no imports at its top")
    plain = {i: first for i in range(at) if (first := _plain_import(body[i])) is not None}
    later = next((i for i, first in plain.items() if first > name and not _leading(body[i])), None)
    if later is not None:
        at = later
    elif plain and max(plain.values()) < name:
        at = max(plain) + 1
    return module.with_changes(body=[*body[:at], new, *body[at:]])


def import_end(module: cst.Module) -> int:
    """Index of the statement behind the imports at the top of a module; 0 without any."""
    end = 0
    for index, statement in enumerate(module.body):
        if _is_import(statement):
            end = index + 1
        elif not _is_docstring(statement, index):
            break
    return end


def bound_otherwise(source: Source, name: str) -> bool:
    """Whether the file assigns a name, or has a function, class or parameter of it, besides importing it."""
    return name in _bound(source)


@lru_cache(maxsize=8)
def _bound(source: Source) -> frozenset[str]:
    names: set[str] = set()
    for node in source.all_nodes():
        match node:
            case cst.FunctionDef(name=cst.Name(value=name)) | cst.ClassDef(name=cst.Name(value=name)):
                names.add(name)
            case cst.Param(name=cst.Name(value=name)):
                names.add(name)
            case cst.AssignTarget(target=target) | cst.AnnAssign(target=target) | cst.AugAssign(target=target):
                names |= targets(target)
            case cst.For(target=target) | cst.CompFor(target=target) | cst.NamedExpr(target=target):
                names |= targets(target)
            case cst.AsName(name=target) if not isinstance(source.parent(node), cst.ImportAlias):
                names |= targets(target)
            case _:
                pass
    return frozenset(names)


def is_imported(source: Source, name: str) -> bool:
    """Whether an import of the file binds a name, relative ones too."""
    statements: list[cst.Import | cst.ImportFrom] = [*source.nodes(cst.Import), *source.nodes(cst.ImportFrom)]
    for statement in statements:
        if isinstance(statement.names, cst.ImportStar):
            continue
        for alias in statement.names:
            bound = alias.asname.name if alias.asname is not None else alias.name
            if (dotted(bound) or "").partition(".")[0] == name:
                return True
    return False


def targets(target: cst.CSTNode) -> set[str]:
    """The plain names that an assignment to a target binds."""
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, cst.Tuple | cst.List):
        return {name for element in target.elements for name in targets(element.value)}
    return set()


def _imported(source: Source, name: str) -> str | None:
    statements: list[cst.Import | cst.ImportFrom] = [*source.nodes(cst.Import), *source.nodes(cst.ImportFrom)]
    found = {meaning for statement in statements for alias, meaning in _meanings(statement) if alias == name}
    return found.pop() if len(found) == 1 else None


def _meanings(statement: cst.Import | cst.ImportFrom) -> list[tuple[str, str]]:
    """The names that an import binds, with the dotted names that they stand for."""
    if isinstance(statement.names, cst.ImportStar) or (isinstance(statement, cst.ImportFrom) and statement.relative):
        return []
    prefix = ""
    if isinstance(statement, cst.ImportFrom):
        prefix = f"{dotted(statement.module) if statement.module else ''}."
    found = []
    for alias in statement.names:
        name = dotted(alias.name) or ""
        if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
            found.append((alias.asname.name.value, prefix + name))
        elif prefix:
            found.append((name, prefix + name))
        else:
            head = name.partition(".")[0]
            found.append((head, head))
    return found


def _top_imports(source: Source) -> list[cst.Import | cst.ImportFrom]:
    return [
        small
        for statement in source.module.body
        if isinstance(statement, cst.SimpleStatementLine)
        for small in statement.body
        if isinstance(small, cst.Import | cst.ImportFrom)
    ]


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, cst.Import | cst.ImportFrom) for small in statement.body
    )


def _is_docstring(statement: cst.BaseStatement, index: int) -> bool:
    return index == 0 and isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Expr)


def _plain_import(statement: cst.BaseStatement) -> str | None:
    """What `import a.b` imports first."""
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(first := statement.body[0], cst.Import):
        return dotted(first.names[0].name)
    return None


def _leading(statement: cst.BaseStatement) -> bool:
    return bool(getattr(statement, "leading_lines", ()))
