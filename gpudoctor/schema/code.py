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
    table(
        "constant_sites",
        "one line of the user's source that builds the same tensor in host memory each time and moves it to a device",
        CHECK,
        ("site", "int", "id; a site that moves the tensor on another line than it builds it has two rows"),
        ("role", "str", "built (the line makes the tensor) or moved (the line brings it to the device)"),
        ("file", "str", "user's source file"),
        ("line", "int", "first line of the call"),
        ("last_line", "int", "last line of the call"),
        ("function", "str", "enclosing function"),
        ("factory", "str", "the function that makes it, e.g. torch.arange"),
        ("op", "str", "the operator that this runs"),
        (
            "names_gpu",
            "bool",
            "the user's source speaks of a GPU somewhere, or leaves its device to an option: a GPU would be used",
        ),
    ),
    table(
        "conv_sites",
        "one line of the user's source that constructs a convolution with a bias next to a batch norm",
        CHECK,
        ("file", "str", "user's source file"),
        ("line", "int", "line of the constructor"),
        ("attribute", "str", "attribute of `self` that it becomes; null when it stands in front of the norm in a list"),
    ),
)
