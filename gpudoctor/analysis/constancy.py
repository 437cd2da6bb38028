"""Whether an expression in the user's source has the same value each time it runs, as far as the source can prove it.

Constant are literals, what is computed from constants by functions without a side effect, names bound once to such a
value or bound outside of the training loop, and sizes (`x.shape[1]`, `len(batch)`): a tensor that depends on sizes
alone can be made once and cut to size. A doubt makes an expression not constant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from gpudoctor.analysis.bindings import Scope, Source

MAX_DEPTH = 24  # names that lead to names: deeper code proves nothing any more

SIZED = {
    "arange": "aten::arange",
    "full": "aten::full",
    "ones": "aten::ones",
    "zeros": "aten::zeros",
    "eye": "aten::eye",
    "linspace": "aten::linspace",
    "logspace": "aten::logspace",
    "tril_indices": "aten::tril_indices",
    "triu_indices": "aten::triu_indices",
    "hann_window": "aten::hann_window",
    "hamming_window": "aten::hamming_window",
    "generate_square_subsequent_mask": "aten::full",
}
"""Functions whose result depends on sizes (and a fill value) alone, and the operator that each of them runs."""

COPIED = frozenset({"tensor", "as_tensor", "from_numpy", "Tensor"}) | {
    f"{kind}Tensor" for kind in ("Float", "Double", "Half", "Long", "Int", "Bool")
}
"""Functions that make a tensor of Python numbers or of a NumPy array; each runs `aten::lift_fresh` in eager code."""

_FILL_AT = {"full": 1}
_PURE_BUILTINS = frozenset(
    {"float", "int", "bool", "str", "abs", "max", "min", "round", "sum", "len", "range", "tuple", "list", "sorted"}
    | {"reversed", "zip", "slice"}
)
_PURE_LINES = (
    "triu tril view reshape unsqueeze squeeze expand expand_as repeat tile float long int bool half bfloat16 double",
    "short t transpose permute contiguous masked_fill type flatten eq ne lt le gt ge logical_not requires_grad_",
    "repeat_interleave pow exp mul div add sub cumsum log sin cos flip clone neg sqrt rsqrt square outer ger cat",
    "stack concatenate meshgrid diag sum mean abs where array asarray arange linspace ones zeros full eye astype",
    "copy tolist float32 float16 float64 int32 int64 uint8 bool_ sinh cosh tanh reciprocal prod maximum minimum",
    "clamp clip roll numpy ravel vstack hstack",
)
_PURE = frozenset(word for line in _PURE_LINES for word in line.split())
"""Functions of torch and NumPy, and methods of their arrays, that give the same for the same and change nothing."""

_NO_VALUES = (ast.For, ast.AsyncFor, ast.AugAssign, ast.withitem, ast.Global, ast.Nonlocal)
_SIZES = frozenset({"shape", "ndim", "dtype", "device", "is_cuda"})
_SIZE_CALLS = frozenset({"size", "dim", "numel", "ndimension"})
_CONFIGURATION = frozenset({"args", "cfg", "config", "conf", "hparams", "hp", "opts", "flags", "FLAGS"})
"""Names that people give to what holds the run's options; it does not change while they train."""


class Constancy:
    """Answers for one file.

    Args:
        source: the file.
        stores: for each attribute name that any user file stores, whether all of its stores are in constructors.
    """

    def __init__(self, source: Source, stores: Mapping[str, bool]) -> None:
        self._source, self._stores = source, stores

    def constant(self, node: ast.expr, given: frozenset[str] = frozenset(), depth: int = 0) -> bool:
        """Whether the value is always the same, or depends on sizes alone.

        Args:
            node: the expression.
            given: parameters of the function around it whose arguments are constant in the call in question.
            depth: how many names were followed so far.
        """
        if depth > MAX_DEPTH:
            return False
        if isinstance(node, ast.Name):
            return node.id in given or self._name(node, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, given, depth)
        if isinstance(node, ast.Call):
            return self._call(node, given, depth)
        parts = _parts(node)
        return parts is not None and self._all(parts, given, depth)

    def _all(self, nodes: Iterable[ast.expr | None], given: frozenset[str], depth: int) -> bool:
        return all(node is None or self.constant(node, given, depth + 1) for node in nodes)

    def _attribute(self, node: ast.Attribute, given: frozenset[str], depth: int) -> bool:
        if node.attr in _SIZES:
            return self._has_sizes(node.value)
        root = node.value
        if node.attr in ("T", "mT"):
            return self.constant(root, given, depth + 1)
        if isinstance(root, ast.Attribute) and root.attr in _CONFIGURATION:
            return True
        if not isinstance(root, ast.Name):
            return False
        if root.id in self._source.modules or root.id in _CONFIGURATION:
            return True
        return root.id == "self" and self._stores.get(node.attr, False)

    def _has_sizes(self, node: ast.expr) -> bool:
        """Whether the sizes of a thing are those of the step: not of one of many things that a loop goes through."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name):
            return False
        if self._source.comprehension(node) is not None:
            return False
        home = self._source.home(node)
        return home is not None and not any(isinstance(bound, ast.For | ast.AsyncFor) for bound in home[1])

    def _call(self, node: ast.Call, given: frozenset[str], depth: int) -> bool:
        name = called(node)
        values = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "dtype")]
        if any(keyword.arg == "out" for keyword in node.keywords):
            return False
        if name in _SIZE_CALLS and isinstance(node.func, ast.Attribute):
            return self._has_sizes(node.func.value)
        if name == "len" and len(values) == 1 and self._has_sizes(values[0]):
            return True
        if name in SIZED and from_module(node, self._source):
            return self._sized(node, name, given, depth)
        if not self._all(values, given, depth):
            return False
        return self._pure(node, name, given, depth) or self._helper(node, given, depth)

    def _pure(self, node: ast.Call, name: str, given: frozenset[str], depth: int) -> bool:
        """Whether the function changes nothing and gives the same for the same."""
        if from_module(node, self._source):
            return name in _PURE or name in COPIED or ast.unparse(node.func).startswith("math.")
        if isinstance(node.func, ast.Attribute):
            return name in _PURE and self.constant(node.func.value, given, depth + 1)
        return name in _PURE_BUILTINS

    def _sized(self, node: ast.Call, name: str, given: frozenset[str], depth: int) -> bool:
        """Sizes may be anything; where a range begins, and what fills, must be constant."""
        begins = node.args if name in ("arange", "linspace", "logspace") and len(node.args) > 1 else []
        fill = node.args[_FILL_AT[name] :] if name in _FILL_AT else []
        told = [k.value for k in node.keywords if k.arg in ("fill_value", "start", "step")]
        return self._all((*begins, *fill, *told), given, depth)

    def _helper(self, node: ast.Call, given: frozenset[str], depth: int) -> bool:
        """Whether it is a function of the user's in the same file that returns a constant for constant arguments."""
        function = self.helper(node)
        if function is None:
            return False
        names = [argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)]
        returned = returns(function)
        return bool(returned) and self._all(returned, frozenset(names), depth)

    def helper(self, node: ast.expr) -> ast.FunctionDef | None:
        """The only function of that name in the file, when the call names one of it (`f(…)`, `self.f(…)`)."""
        if not isinstance(node, ast.Call):
            return None
        function = node.func
        own = isinstance(function, ast.Name) or (
            isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "self"
        )
        found = self._source.functions.get(called(node), []) if own else []
        return found[0] if len(found) == 1 and isinstance(found[0], ast.FunctionDef) else None

    def _name(self, node: ast.Name, depth: int) -> bool:
        clause = self._source.comprehension(node)
        if clause is not None:
            return self.constant(clause.iter, depth=depth + 1)
        home = self._source.home(node)
        if home is None or len(home[1]) != 1:  # imported, and named as constants are
            return home is None and node.id in self._source.modules and node.id.isupper()
        scope, (bound,) = home
        if isinstance(bound, _NO_VALUES) or self._changes(node.id, scope):
            return False
        value = bound.value if isinstance(bound, ast.Assign | ast.AnnAssign) else None
        if value is not None and self.constant(value, depth=depth + 1):
            return True
        if scope is not self._source.scope(node):
            return isinstance(scope, ast.Module) and self._source.loop(bound) is None
        loop = self._source.training_loop(node)
        return loop is not None and not self._source.inside(bound, loop)

    def _changes(self, name: str, scope: Scope) -> bool:
        """Whether something changes the object in place, or may: a function gets it that could, again and again."""
        for use in self._source.uses(name, scope):
            if self._source.changed(use):
                return True
            call = self._source.handed_on(use)
            if call is None or called(call) in _PURE_BUILTINS | _PURE | COPIED:
                continue
            if self._source.loop(use) is not None or self._source.scope(use) is not scope:
                return True
        return False


def _parts(node: ast.expr) -> list[ast.expr | None] | None:
    """The expressions that the value of another one is made of; None for kinds that prove nothing."""
    match node:
        case ast.Constant():
            return []
        case ast.Starred(value=one) | ast.UnaryOp(operand=one):
            return [one]
        case ast.ListComp(elt=element, generators=clauses) | ast.GeneratorExp(elt=element, generators=clauses):
            return [element, *(part for clause in clauses for part in (clause.iter, *clause.ifs))]
        case (
            ast.Tuple()
            | ast.List()
            | ast.Set()
            | ast.BinOp()
            | ast.Compare()
            | ast.BoolOp()
            | ast.IfExp()
            | ast.Slice()
        ) | ast.Subscript():
            return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return None


def called(node: ast.Call) -> str:
    """Last part of the called function's name."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def from_module(node: ast.Call, source: Source) -> bool:
    """Whether a function of an imported module is called (`torch.full`, `nn.Transformer.…`), or an imported one."""
    root: ast.expr = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in source.modules


def returns(function: ast.FunctionDef) -> list[ast.expr]:
    """What a function returns; empty where it may return nothing."""
    found = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    return [] if any(node.value is None for node in found) else [node.value for node in found if node.value is not None]
