"""Whether a mask is the causal one, as `is_causal=True` makes it: query i sees the keys 0 to i, of a square."""

from __future__ import annotations

import re

import libcst as cst

from gpudoctor.engine.edits.attention_scale import assigned
from gpudoctor.engine.edits.names import dotted, full_name
from gpudoctor.engine.edits.patterns import keywords, number
from gpudoctor.engine.edits.tree import Source

_KEPT = frozenset({"bool", "to", "type", "float", "byte", "int"})
"""Methods that leave the shape and the zeros as they are."""

_SHAPED = frozenset({"view", "reshape", "expand"})
"""Methods that get the new shape: the last two sizes must be written alike."""

_FORGETFUL = re.compile(r"cache|past|\bcat\b|concat|kv_", re.IGNORECASE)
"""Words of code whose keys can be more than its queries: there the mask need not be the square that it looks like."""


def is_causal(source: Source, at: cst.CSTNode, hidden: cst.BaseExpression) -> bool:
    """Whether the positions that a condition hides are those behind each query.

    Args:
        source: the file.
        at: a statement of the function in which the condition stands.
        hidden: what `masked_fill` is given: `mask == 0`, `~mask`, or the hidden positions themselves.
    """
    function = next((above for above in source.above(at) if isinstance(above, cst.FunctionDef)), None)
    if function is None or _FORGETFUL.search(source.source_of(function)):
        return False
    match hidden:
        case cst.UnaryOperation(operator=cst.BitInvert(), expression=inner):
            return _is_triangle(source, at, inner, "tril")
        case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=operator, comparator=other)]):
            value = 0.0 if isinstance(other, cst.Name) and other.value == "False" else number(other)
            value = 1.0 if isinstance(other, cst.Name) and other.value == "True" else value
            side = {
                (cst.Equal, 0.0): "tril",
                (cst.Equal, 1.0): "triu",
                (cst.NotEqual, 0.0): "triu",
                (cst.GreaterThan, 0.0): "triu",
            }.get((type(operator), value if value is not None else -1.0))
            return side is not None and _is_triangle(source, at, left, side)
        case _:
            return _is_triangle(source, at, hidden, "triu")


def _is_triangle(source: Source, at: cst.CSTNode, value: cst.BaseExpression, side: str, follow: bool = True) -> bool:
    """Whether a value is `tril(ones(n, n))`, or `triu(ones(n, n), 1)`, or a corner at the top left of one."""
    match value:
        case cst.Subscript(value=inner, slice=parts) if _is_corner(source, parts):
            return _is_triangle(source, at, inner, side, follow)
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=method))) if full_name(
            source, value.func
        ) is None and _keeps(source, method, value):
            return _is_triangle(source, at, inner, side, follow)
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=method))) if (
            full_name(source, value.func) is None and method == side
        ):
            found = keywords(value, ("diagonal",))
            return found is not None and _is_ones(source, inner) and _is_diagonal(found, side)
        case cst.Call() if full_name(source, value.func) == f"torch.{side}":
            found = keywords(value, ("input", "diagonal"))
            made = found.pop("input", None) if found else None
            return found is not None and made is not None and _is_ones(source, made) and _is_diagonal(found, side)
        case cst.Name() | cst.Attribute() if follow and (name := dotted(value)):
            given = _given(source, at, name)
            return len(given) == 1 and _is_triangle(source, at, given[0], side, follow=False)
        case _:
            return False


def _keeps(source: Source, method: str, call: cst.Call) -> bool:
    """Whether a method leaves the last two dimensions of a mask and its zeros as they are."""
    if method in _SHAPED and len(call.args) > 1:
        return source.source_of(call.args[-1].value) == source.source_of(call.args[-2].value)
    if method == "unsqueeze":
        return len(call.args) == 1 and number(call.args[0].value) == 0
    return method in _KEPT


def _given(source: Source, at: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
    """All that the class gives `self.x`, buffers included, or the function a name."""
    kind = cst.ClassDef if name.startswith("self.") else cst.FunctionDef
    holder = next((above for above in source.above(at) if isinstance(above, kind)), None)
    if holder is None or name.count(".") != name.startswith("self."):
        return []
    found = assigned(source, holder, name)
    for call in source.nodes(cst.Call, holder):
        if dotted(call.func) == "self.register_buffer" and len(call.args) > 1:
            label = call.args[0].value
            if isinstance(label, cst.SimpleString) and "self." + str(label.evaluated_value) == name:
                found.append(call.args[1].value)
    return found


def _is_ones(source: Source, value: cst.BaseExpression) -> bool:
    """Whether a value is `torch.ones(n, n)`, of any dtype: both sizes are written alike."""
    match value:
        case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=method))) if (
            full_name(source, value.func) is None and method in _KEPT
        ):
            return _is_ones(source, inner)
        case cst.Call() if full_name(source, value.func) == "torch.ones":
            sizes = [argument.value for argument in value.args if argument.keyword is None]
            if len(sizes) == 1 and isinstance(sizes[0], cst.Tuple | cst.List):
                sizes = [element.value for element in sizes[0].elements]
            texts = [source.source_of(size) for size in sizes]
            leading = all(number(size) == 1 for size in sizes[:-2])
            return len(texts) > 1 and leading and texts[-1] == texts[-2]
        case _:
            return False


def _is_diagonal(found: dict[str, cst.BaseExpression], side: str) -> bool:
    return found.keys() <= {"diagonal"} and number(found.get("diagonal", cst.Integer("0"))) == (side == "triu")


def _is_corner(source: Source, parts: object) -> bool:
    """Whether a subscript is `[:, :, :t, :t]`, `[:t, :t]` or `[None, None]`."""
    assert isinstance(parts, tuple | list)
    ends: list[str | None] = []
    for part in parts:
        match part.slice:
            case cst.Slice(lower=None, upper=upper, step=None):
                ends.append(source.source_of(upper) if upper is not None else "")
            case cst.Index(value=cst.Name(value="None")):
                ends.append(None)
            case _:
                return False
    behind = ends[len(ends) - ends[::-1].index(None) :] if None in ends else ends
    if None in ends and any(end is not None for end in ends) and len(behind) < 2:
        return False  # `[:, None]` of a square is no square
    cut = [end for end in ends if end]
    return not cut or (len(cut) == 2 and cut[0] == cut[1] and ends[-2:] == cut)
