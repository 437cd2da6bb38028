"""Renames a method that is called without arguments: `x.old()` as `x.to()`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.keywords import covering, replaced
from gpudoctor.engine.edits.tree import Source


def change(source: Source, line: int, values: Mapping[str, Any]) -> cst.Module:
    """The module with the one method of that name on the line renamed."""
    call = covering(source, values["attribute"], line)
    if not isinstance(call.func, cst.Attribute) or call.args:
        raise NotCertainError("not a method call without arguments")
    function = call.func.with_changes(attr=cst.Name(values["to"]))
    return replaced(source, call, call.with_changes(func=function))
