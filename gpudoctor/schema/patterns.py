"""Tables: patterns of operators that are one operator elsewhere."""

from __future__ import annotations

from gpudoctor.schema.declare import DETAIL, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "loop_lines",
        "one line of the user's that a Python loop runs over and over in a step, each time with the same operators",
        DETAIL,
        ("loop", "int", "id of the loop; loops that run interleaved are one"),
        ("file", "str", "user's source file"),
        ("line", "int", "line that calls the operators"),
        ("function", "str", "its function"),
        ("module_path", "str", "path of the nn.Module around it, as in ops"),
        ("loop_file", "str", "file of the loop's head; null when the source shows no loop around the lines"),
        ("loop_line", "int", "line of the loop's head"),
        ("head", "str", "the head as text, e.g. for t in range(steps)"),
        ("iterations", "int", "most calls of one operator from one line, between two backward calls"),
        ("pieces", "int", "pieces of a tensor that the loop walks along; null when it walks along none"),
        ("along", "str", "which tensor, e.g. dimension 1 of a [16, 150, 10] tensor; null when not known"),
        ("median_op_ns", "int", "median time of the operators that compute, of all lines of the loop"),
        ("operators", "int", "operators that the line calls in a profiled step"),
        ("forward_ns", "int", "time in them in a profiled step"),
        ("backward_ns", "int", "time of their backward in a profiled step"),
        ("kernels", "int", "kernels that they and their backward launch in a step; null without a GPU"),
        ("kernel_ns", "int", "time of these kernels"),
        ("idle_ns", "int", "time that the GPU waits for their launches in a step; null without a GPU"),
    ),
)
