"""Writes a rule's remedy as a unified diff of the user's file, where the change is certain.

The change is made on the concrete syntax tree, so everything else in the file stays byte for byte what it was, and the
diff applies with `git apply` or `patch -p1`. Whatever leaves a doubt (no such call, several, `**kwargs`, an argument
that is computed) gives no diff: the text of the remedy then has to do.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import PurePosixPath

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from gpudoctor.engine.calls import NotCertainError, drop_keywords, rename_method, set_keywords
from gpudoctor.engine.rule import Edit


def make_diff(edit: Edit, path: str, text: str, line: int, put: Mapping[str, str]) -> str | None:
    """The edit of the one call that covers a line, as a unified diff.

    Args:
        edit: what to change.
        path: path of the file, relative to where the diff will be applied.
        text: the file's text, with its own line ends.
        line: 1-based line that the call covers.
        put: keyword arguments to set, as source text.

    Returns:
        The diff with `a/` and `b/` prefixes; None where the change is not certain or changes nothing.
    """
    pure = PurePosixPath(path.replace("\\", "/"))
    if pure.is_absolute() or ".." in pure.parts or re.match(r"[A-Za-z]:", path):
        return None
    try:
        tree = cst.parse_module(text)
        if tree.code != text:  # libcst drops form feeds, for one
            return None
        wrapper = MetadataWrapper(tree)
        call = _covering(wrapper, edit.call or edit.attribute or "", line)
        changed = _changed(edit, call, put)
        module = wrapper.module.with_deep_changes(call, **_fields(changed))
        cst.parse_module(module.code)
    except (
        cst.ParserSyntaxError,
        cst.CSTValidationError,
        cst.CSTLogicError,
        NotCertainError,
        UnicodeError,
        RecursionError,
    ):
        return None
    return _diff(str(pure), text, module.code)


def _covering(wrapper: MetadataWrapper, name: str, line: int) -> cst.Call:
    """The one call of a function or method of that name that covers the line."""
    positions = wrapper.resolve(PositionProvider)
    found = [
        node
        for node, span in positions.items()
        if isinstance(node, cst.Call) and _called(node) == name and span.start.line <= line <= span.end.line
    ]
    if len(found) != 1:
        raise NotCertainError(f"{len(found)} calls of {name} on the line")
    return found[0]


def _called(call: cst.Call) -> str | None:
    function = call.func
    if isinstance(function, cst.Attribute):
        return function.attr.value
    return function.value if isinstance(function, cst.Name) else None


def _changed(edit: Edit, call: cst.Call, put: Mapping[str, str]) -> cst.Call:
    if edit.attribute is not None:
        return rename_method(call, edit.to or "")
    keywords = {arg.keyword.value for arg in call.args if arg.keyword is not None}
    if keywords & set(edit.unless) or sum(arg.keyword is None for arg in call.args) > edit.max_positional:
        raise NotCertainError("the call has arguments that rule the edit out")
    return set_keywords(drop_keywords(call, edit.drop), put)


def _fields(call: cst.Call) -> dict[str, object]:
    return {"func": call.func, "args": call.args, "whitespace_before_args": call.whitespace_before_args}


def _diff(path: str, before: str, after: str) -> str | None:
    if before == after:
        return None
    name = f"{path}\t" if " " in path else path  # git and patch read a name with blanks up to the tab
    parts = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}", lineterm="\n")
    return "".join(part if part.endswith("\n") else f"{part}\n\\ No newline at end of file\n" for part in parts)


def _lines(text: str) -> list[str]:
    """Split at line feeds only, ends kept, as git and patch do."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
