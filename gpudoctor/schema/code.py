"""Tables: places in the user's source that bear on the run."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "dtype_sites",
        "one line of the user's source that makes float64 tensors",
        CHECK,
        ("file", "str", "user's source file"),
        ("line", "int", "line of the call"),
        ("function", "str", "enclosing function"),
        ("dtype", "str", "float64"),
        (
            "kind",
            "str",
            "explicit (the line names the dtype) or possible (it takes over the dtype of a NumPy array)",
        ),
    ),
)
