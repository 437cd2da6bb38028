"""Tables: memory that stays in use step after step."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "live_growth",
        "one holder of tensors that stay alive while more are added in every step",
        CHECK,
        ("file", "str", "user's source file of the statement that adds to it"),
        ("line", "int", "line of that statement; null when the source does not tell"),
        ("function", "str", "its function"),
        ("other_lines", "int", "other statements that may add to it"),
        ("holder", "str", "variable (`losses`) or attribute (`Trainer.history`); null when no name was found"),
        ("scope", "str", "local, global, closure or attribute"),
        ("container", "str", "class of the container that the name leads to; null for a tensor itself"),
        (
            "kind",
            "str",
            "what most of the memory is: graph (tensors that autograd saved for a backward call), tensors (the held "
            "ones themselves), nodes (of graphs that backward has run: they have nothing saved)",
        ),
        ("bounded", "bool", "it has a largest length, or the source takes out of it as well"),
        ("emptied", "bool", "the source empties it or makes it anew now and then, each epoch perhaps"),
        ("lasting", "bool", "it still grew in the last steps that were looked at"),
        ("from_step", "int", "first step that was looked at"),
        ("to_step", "int", "last step that was looked at"),
        ("bytes_per_step", "int", "memory that stays of a step: tensors, what graphs save, 800 bytes for a node"),
        ("tensor_bytes_per_step", "int", "of it, memory of the held tensors"),
        ("used_bytes_per_step", "int", "of that, what the held tensors show: a view, or a scalar, can keep much more"),
        ("saved_bytes_per_step", "int", "of it, memory that only graphs keep"),
        ("tensors_per_step", "float", "held tensors with memory of their own that stay of a step"),
        ("nodes_per_step", "float", "autograd nodes that stay of a step"),
        ("gpu", "bool", "most of the memory is a GPU's"),
        ("free_bytes", "int", "memory that was left at the recording's end, of the GPU or the host; null if unknown"),
    ),
    table(
        "resident_memory",
        "one reading of the process's memory, at the end of a step",
        CHECK,
        ("step", "int", "step that had just ended; null before the first"),
        ("time_ns", "int", "when it was read"),
        ("resident_bytes", "int", "memory of the process that lies in RAM"),
    ),
)
