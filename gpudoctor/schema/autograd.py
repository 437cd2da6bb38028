"""Tables: graphs and gradients that autograd makes."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, DETAIL, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "module_calls",
        "one call of an nn.Module from outside any other: in detail steps, and the first ones of an evaluation",
        CHECK,
        ("call", "int", "id"),
        ("step", "int", "profiled step it was seen in; null outside of profiled steps"),
        (
            "seen",
            "str",
            "where it was seen: profiled (a detail step), evaluation (after `eval()`), validation (after a batch that "
            "nothing was trained on)",
        ),
        ("file", "str", "user's source file that called it"),
        ("line", "int", "line of the call"),
        ("function", "str", "its function"),
        ("module", "str", "class of the module, wrappers left out"),
        ("training", "bool", "the module was in training mode"),
        ("grad", "bool", "autograd was on"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long the host took"),
        ("nodes", "int", "autograd nodes that it made; 0 when no output has a graph"),
        (
            "graph",
            "str",
            "what became of its graph: used (backward ran the nodes of all outputs), partly, unused (freed without "
            "having run, or left over when training had gone on or ended), open (not known); null without a graph",
        ),
        ("outputs", "int", "outputs with a graph of their own, the first 16"),
        ("unused", "int", "those of them that backward never reached"),
        (
            "saved_bytes",
            "int",
            "memory that its graph keeps besides parameters and inputs; measured once a line, null elsewhere",
        ),
        ("repeats", "int", "the first call of the same module with the very same inputs in the step; null for none"),
        ("updated", "bool", "the module's weights changed since the call that it repeats; null without one"),
    ),
    table(
        "embedding_gradients",
        "one embedding whose gradient is made dense in the profiled steps",
        DETAIL,
        ("module", "str", "its path in the model; null when unknown"),
        ("file", "str", "user's source file of the lookup"),
        ("line", "int", "line of the lookup"),
        ("function", "str", "its function"),
        ("rows", "int", "rows of its table"),
        ("width", "int", "length of a row"),
        ("looked_up", "int", "indices looked up a step: at most so many rows get a gradient that is not zero"),
        ("bytes", "int", "size of the gradient"),
        ("gradient_ns", "int", "time a step that makes it: zeros, scatter, sums with another (device time on a GPU)"),
        ("optimizer_ns", "int", "time a step of the optimizer's operators on tables of this shape, by parameter"),
        ("optimizer", "str", "class of the optimizer; null for none or several"),
        ("takes_sparse", "bool", "that optimizer takes sparse gradients, and the table can make them; null if unknown"),
        ("tied", "bool", "the same weights are used in a matrix product, which needs the dense gradient"),
        ("made_file", "str", "where it is constructed, when the source tells for certain"),
        ("made_line", "int", "line of the construction"),
        ("optimizer_file", "str", "where the optimizer is constructed, when the source tells for certain"),
        ("optimizer_line", "int", "line of the construction"),
        ("step_file", "str", "where the optimizer's step is called"),
        ("step_line", "int", "line of that call"),
    ),
)
