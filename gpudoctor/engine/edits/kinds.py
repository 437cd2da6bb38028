"""The kinds of edits that a remedy can declare, as data: their keys, what those hold, and what each kind does.

Light on purpose: rule files are checked against this without libcst. The module of a kind's own name makes the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EditValue = str | int | tuple[str, ...] | dict[str, str]
Shape = Literal["text", "names", "dotted", "sources", "count"]
"""What a key holds: a text, a list of identifiers, a list of dotted names, source text by keyword, a whole number."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a kind.

    Attributes:
        shape: what it holds; texts and sources are templates over the row's columns.
        doc: what it says, one phrase.
        default: its value when it is left out; None: it must be there.
        choices: the only texts allowed; empty: any.
    """

    shape: Shape
    doc: str
    default: EditValue | None = None
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of edit: what it does and when it is certain, and its keys."""

    doc: str
    keys: Mapping[str, Key] = field(default_factory=dict)


KINDS: Mapping[str, Kind] = {
    "keywords": Kind(
        "sets or drops keyword arguments of the one call of that name that covers the line",
        {
            "call": Key(
                "text", "name of the called function, without what stands before its last dot; several with `|` between"
            ),
            "set": Key("sources", "keyword arguments to set", {}),
            "drop": Key("names", "keyword arguments to remove", ()),
            "max_positional": Key("count", "positional arguments the call may have, so that none is passed twice", 1),
            "unless": Key("names", "keyword arguments that rule the edit out", ()),
            "only_with": Key("names", "keyword arguments that the call must have", ()),
            "unless_called": Key("names", "functions that the file must not call anywhere", ()),
        },
    ),
    "method": Kind(
        "renames the one method of that name that the line calls without arguments",
        {"attribute": Key("text", "the method's name"), "to": Key("text", "its new name")},
    ),
    "delete": Kind(
        "deletes the one call that stands alone as a statement, or dedents the `with` block that it opens; an import "
        "from Python's library that nothing else uses goes with it",
        {
            "calls": Key("dotted", "what may be called, e.g. `torch.cuda.empty_cache`; imported names are followed"),
            "purpose": Key(
                "text",
                "`wait`: the call waits for the device, and stays where the file reads a clock, or has streams, "
                "events, CUDA graphs, or copies to the host that do not wait by themselves",
                "none",
                ("none", "wait"),
            ),
        },
    ),
    "insert": Kind(
        "inserts a statement, unless it is there already; names in it must be imported by the file",
        {
            "statement": Key("text", "the statement"),
            "place": Key("text", "where", "before", ("before", "after", "imports")),
        },
    ),
    "no_grad": Kind(
        "runs code under `torch.no_grad()` that does not train: decorates the function around the line when it gives "
        "away nothing with a graph, else wraps the loop when nothing with a graph is used behind it",
        {
            "scope": Key(
                "text",
                "what is looked at; `statement` wraps the one statement",
                "evaluation",
                ("evaluation", "statement"),
            )
        },
    ),
    "sdpa": Kind(
        "replaces attention that consecutive statements write out (`q @ k.transpose(-2, -1)`, scale, mask, softmax, "
        "dropout, `@ v`), whose intermediate results nothing else uses, by `F.scaled_dot_product_attention`",
    ),
    "leave_with": Kind(
        "moves the line's statement, and all behind it, out of the `with` block, when they only back-propagate "
        "and step",
        {"contexts": Key("dotted", "what opens the block, e.g. `torch.autocast`")},
    ),
    "device": Kind(
        "makes the one tensor that the line makes and moves (`torch.arange(n).to(x.device)`) on that device "
        "(`device=x.device`), where its values are the same to the last bit",
    ),
    "accumulate": Kind(
        "makes `total += loss.item()` of a training loop `total += loss.detach().float()`, and reads the total behind "
        "the loop, where nothing in the loop looks at it",
    ),
    "detach": Kind(
        "detaches what the one statement on the line adds to a sum (`total += loss`) or a list (`losses.append(loss)`) "
        "that is a variable of one function, where everything that reads it turns it into numbers",
    ),
    "no_sync": Kind(
        "puts the micro-batches of the loop around the line, all but the last, under the wrapped model's `no_sync()`",
    ),
    "mark_dynamic": Kind(
        "calls `torch._dynamo.maybe_mark_dynamic` before the statement that passes the tensor to compiled code",
        {
            "function": Key("text", "the compiled function"),
            "tensor": Key("text", "its parameter"),
            "dimension": Key("text", "the dimension that varies"),
        },
    ),
}
"""By name. `imports` is the place behind the file's first run of imports."""

DEFAULT_KIND = "keywords"
