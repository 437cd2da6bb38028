"""Reads one chain of attention from its last product back to its first."""

from __future__ import annotations

import re
from collections.abc import Sequence

import libcst as cst

from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.attention_causal import is_causal
from gpudoctor.engine.edits.attention_scale import assigned, is_python_number, root_of_size
from gpudoctor.engine.edits.names import dotted, full_name
from gpudoctor.engine.edits.patterns import bare, is_minus_infinity, is_simple, keywords, number
from gpudoctor.engine.edits.tree import Source


class Attention:
    """What was read. The statements are consumed backwards: each name must be what the statement above assigns.

    Args:
        source: the file.
        body: the statements of the block.
        last: index of the statement with the last product.
    """

    def __init__(self, source: Source, body: Sequence[cst.CSTNode], last: int) -> None:
        self._source = source
        self._body = body
        self.first = last
        """Index of the first statement of the chain."""
        self.intermediates: set[str] = set()
        self.query: cst.BaseExpression = cst.Name("_")
        self.key: cst.BaseExpression = cst.Name("_")
        self.value: cst.BaseExpression = cst.Name("_")
        self.mask: str | None = None
        self.causal = False
        """Whether the mask is the causal one, which needs no tensor."""
        self.dropout: str | None = None
        self.scale: str | None = "1.0"
        """Source of `scale=`; None where it is the default."""
        self.scaled_by: str | None = None
        """Of which tensor the default scale takes the width."""

    def read(self, product: cst.BaseExpression) -> bool:
        """Whether the product is the end of such a chain; if so, the attributes say what it computes."""
        factors = self._product(product)
        if factors is None:
            return False
        weights, self.value = factors
        scores = self._softmax(self._dropped(self._inlined(weights)))
        if scores is None:
            return False
        factors = self._scores(self._scaled(self._masked(self._inlined(scores))))
        if factors is None:
            return False
        self.query, self.key = factors
        return all(dotted(value) for value in (self.query, self.key, self.value))

    def check(self) -> None:
        """Raises NotCertainError where an argument of the call would be one of the results that are gone."""
        source = self._source
        texts = [source.source_of(value) for value in (self.query, self.key, self.value)]
        if self.scaled_by is not None and self.scaled_by not in texts[:2]:
            raise NotCertainError("the scale is that of another tensor")
        for text in (*texts, self.mask, self.dropout, self.scale):
            if text and self.intermediates & set(re.findall(r"\w+", text)):
                raise NotCertainError("an intermediate result is used twice")

    def _inlined(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What a name was given by the statement above, which then belongs to the chain; else the value itself."""
        if not isinstance(value, cst.Name) or self.first == 0:
            return value
        given = _given(self._body[self.first - 1], value.value)
        if given is None:
            return value
        self.first -= 1
        self.intermediates.add(value.value)
        return given

    def _product(self, value: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        match value:
            case cst.BinaryOperation(operator=cst.MatrixMultiply(), left=left, right=right):
                return left, right
            case cst.Call(args=[left, right]) if full_name(self._source, value.func) == "torch.matmul":
                return (left.value, right.value) if left.keyword is None and right.keyword is None else None
            case cst.Call() if (factors := self._einsum(value)) is not None and factors[2] == "values":
                return factors[:2]
            case _:
                return None

    def _einsum(self, value: cst.Call) -> tuple[cst.BaseExpression, cst.BaseExpression, str] | None:
        """The factors of an einsum, and whether `bhqd,bhkd->bhqk` gives scores or `bhqk,bhkd->bhqd` takes values."""
        match value.args:
            case [cst.Arg(value=cst.SimpleString() as text), left, right] if not (left.keyword or right.keyword):
                formula = str(text.evaluated_value).replace(" ", "")
            case _:
                return None
        found = re.fullmatch(r"([a-zA-Z]*|\.\.\.)(\w)(\w),\1(\w)(\w)->\1(\w)(\w)", formula)
        if found is None or full_name(self._source, value.func) != "torch.einsum":
            return None
        batch, a, b, c, d, e, f = found.groups()
        if len({*batch.replace(".", ""), a, b, c, d}) != len(batch.replace(".", "")) + 3:
            return None
        if (a, c, b) == (e, f, d):
            return left.value, right.value, "scores"
        return (left.value, right.value, "values") if (a, b, d) == (e, c, f) else None

    def _scores(self, value: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        """Queries and keys of the product that makes the scores."""
        if isinstance(value, cst.Call) and (einsum := self._einsum(value)) is not None:
            return einsum[:2] if einsum[2] == "scores" else None
        factors = self._product(value)
        key = self._untransposed(factors[1]) if factors is not None else None
        return (factors[0], key) if factors is not None and key is not None else None

    def _softmax(self, value: cst.BaseExpression) -> cst.BaseExpression | None:
        """What a softmax over the last dimension is taken of."""
        if not isinstance(value, cst.Call):
            return None
        name = full_name(self._source, value.func)
        if name in ("torch.softmax", "torch.nn.functional.softmax"):
            found = keywords(value, ("input", "dim"))
            inner = found.pop("input", None) if found else None
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value == "softmax":
            found, inner = keywords(value, ("dim",)), value.func.value
        else:
            return None
        return inner if found is not None and found.keys() == {"dim"} and number(found["dim"]) == -1 else None

    def _dropped(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What dropout is applied to."""
        if not isinstance(value, cst.Call):
            return value
        if full_name(self._source, value.func) == "torch.nn.functional.dropout":
            found = keywords(value, ("input", "p", "training")) or {}
            if not found.keys() <= {"input", "p", "training"} or not all(
                is_simple(found.get(k, cst.Integer("1"))) for k in ("p", "training")
            ):
                raise NotCertainError("the dropout is computed")
            self.dropout = _dropout(*(self._text(found[k]) if k in found else None for k in ("p", "training")))
            return self._inlined(found["input"])
        module = dotted(value.func)
        if module and module.startswith("self.") and len(value.args) == 1 and self._is_dropout(value, module):
            self.dropout = f"{module}.p if self.training else 0.0"
            return self._inlined(value.args[0].value)
        return value

    def _is_dropout(self, call: cst.Call, module: str) -> bool:
        """Whether the class makes that attribute an `nn.Dropout`, and nothing else."""
        holder = next((above for above in self._source.above(call) if isinstance(above, cst.ClassDef)), None)
        made = assigned(self._source, holder, module) if holder else []
        return (
            len(made) == 1
            and isinstance(made[0], cst.Call)
            and full_name(self._source, made[0].func) == "torch.nn.Dropout"
        )

    def _masked(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What a mask is added to, or filled into."""
        match value:
            case cst.BinaryOperation(operator=cst.Add(), left=left, right=right) if dotted(right):
                self.mask = self._text(right)
                return self._inlined(left)
            case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value="masked_fill")), args=[cond, fill]):
                if not is_minus_infinity(self._source, fill.value) or cond.keyword or fill.keyword:
                    raise NotCertainError("the mask is filled with something else than minus infinity")
                self.causal = is_causal(self._source, self._body[self.first], bare(cond.value))
                self.mask = None if self.causal else self._kept(cond.value)
                return self._inlined(inner)
            case _:
                return value

    def _kept(self, hidden: cst.BaseExpression) -> str:
        """The positions that take part, where a condition says which are hidden."""
        match hidden:
            case cst.UnaryOperation(operator=cst.BitInvert(), expression=inner):
                return self._text(bare(inner))
            case cst.Comparison(comparisons=[cst.ComparisonTarget(operator=cst.Equal() as equal, comparator=zero)]):
                if number(zero) == 0 or (isinstance(zero, cst.Name) and zero.value == "False"):
                    other = cst.NotEqual(
                        whitespace_before=equal.whitespace_before, whitespace_after=equal.whitespace_after
                    )
                    return self._text(bare(hidden.with_changes(comparisons=[cst.ComparisonTarget(other, zero)])))
        simple = isinstance(hidden, cst.Name | cst.Attribute | cst.Call | cst.Subscript)
        return f"~{self._text(hidden)}" if simple or hidden.lpar else f"~({self._text(hidden)})"

    def _scaled(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """What is multiplied by the scale, or divided by its inverse."""
        match value:
            case cst.BinaryOperation(operator=cst.Divide(), left=left, right=right) if self._product_of(left):
                self.scale = self._scale_of(right, 0.5)
                return self._inlined(left)
            case cst.BinaryOperation(operator=cst.Multiply(), left=left, right=right) if self._product_of(left):
                self.scale = self._scale_of(right, -0.5)
                return self._inlined(left)
            case _:
                return value

    def _product_of(self, value: cst.BaseExpression) -> bool:
        """Whether a value is a product, or a name that the statement above gives one."""
        if isinstance(value, cst.Name) and self.first > 0:
            value = _given(self._body[self.first - 1], value.value) or value
        return self._scores(value) is not None

    def _scale_of(self, value: cst.BaseExpression, power: float) -> str | None:
        """`scale=` for a factor (power -0.5 is the default's), or for a divisor (0.5); None for the default."""
        if not is_python_number(self._source, self._body[self.first], value):
            raise NotCertainError("the scale may be a tensor")
        self.scaled_by = root_of_size(self._source, value, power)
        if self.scaled_by is not None:
            return None
        text = self._text(bare(value))
        if power < 0:
            return text
        closed = not isinstance(value, cst.BinaryOperation) or isinstance(value.operator, cst.Power)
        return f"1.0 / {text}" if closed else f"1.0 / ({text})"

    def _untransposed(self, value: cst.BaseExpression) -> cst.BaseExpression | None:
        """What has its last two dimensions swapped."""
        match value:
            case cst.Attribute(value=inner, attr=cst.Name(value="mT")):
                return inner
            case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value="transpose" | "swapaxes")), args=[a, b]):
                if full_name(self._source, value.func) is not None:
                    return None
                return inner if {number(a.value), number(b.value)} == {-1.0, -2.0} else None
            case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value="permute")), args=arguments):
                order = [number(argument.value) for argument in arguments]
                return inner if order == [0, 1, 3, 2] else None
            case _:
                return None

    def _text(self, value: cst.CSTNode) -> str:
        text = self._source.source_of(value)
        if "\n" in text or "#" in text:
            raise NotCertainError("a part of it goes over several lines")
        return text


def arguments(source: Source, chain: Attention) -> str:
    """The arguments of the one call."""
    parts = [source.source_of(value) for value in (chain.query, chain.key, chain.value)]
    causal = "True" if chain.causal else None
    given = (("attn_mask", chain.mask), ("is_causal", causal), ("dropout_p", chain.dropout), ("scale", chain.scale))
    for name, text in given:
        if text is not None:
            parts.append(f"{name}={text}")
    return ", ".join(parts)


def _given(statement: cst.CSTNode, name: str) -> cst.BaseExpression | None:
    """What a statement gives a name, as an expression; None when it is another statement."""
    match statement:
        case cst.SimpleStatementLine(
            body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=found))], value=value)]
        ):
            return value if found == name else None
        case cst.SimpleStatementLine(
            body=[cst.AugAssign(target=cst.Name(value=found) as target, operator=operator, value=value)]
        ):
            operators: dict[type[cst.BaseAugOp], cst.BaseBinaryOp] = {
                cst.AddAssign: cst.Add(),
                cst.MultiplyAssign: cst.Multiply(),
                cst.DivideAssign: cst.Divide(),
            }
            if found == name and type(operator) in operators:
                return cst.BinaryOperation(target, operators[type(operator)], value)
    return None


def _dropout(p: str | None, training: str | None) -> str | None:
    p = p or "0.5"
    if training is None or training == "True":
        return p
    return None if training == "False" else f"{p} if {training} else 0.0"
