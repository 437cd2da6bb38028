"""Tables: the code that Inductor generated."""

from __future__ import annotations

from gpudoctor.schema.declare import COMPILE, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "generated_kernels",
        "one kernel that Inductor generated for one compiled graph",
        COMPILE,
        ("compile_id", "str", "compilation it belongs to, as in compilations"),
        ("graph", "str", "Inductor's id of the graph, e.g. 0_forward"),
        ("direction", "str", "forward, backward, inference; null when unknown"),
        ("position", "int", "place of its first call among the calls of the graph, from 0"),
        ("calls", "int", "calls in one run of the graph"),
        ("kernel", "str", "its name, also in a GPU's trace"),
        ("kind", "str", "cpp, triton, or what else it is written in"),
        (
            "ops",
            "str",
            "operators fused, comma separated: as the model called them where the code says it (Triton), else "
            "those of the graph, after decomposition",
        ),
        ("nodes", "str", "nodes of the graph that it computes, comma separated; null when unknown"),
        ("file", "str", "user's source file that most of it comes from; null when unknown"),
        ("line", "int", "that line"),
        ("function", "str", "its function"),
        ("lines", "str", "user lines in it, as a JSON list of file:line; all of them where nodes are known"),
        (
            "line_source",
            "str",
            "how they are known: provenance (torch traced it), comment (the code names the nodes), dataflow (from "
            "the buffers that it reads and writes)",
        ),
        ("loads", "int", "buffers that one call reads"),
        ("stores", "int", "buffers that one call writes"),
        (
            "load_bytes",
            "int",
            "bytes of the buffers read in one run of the graph, each read once and whole; null for dynamic sizes",
        ),
        ("store_bytes", "int", "bytes of the buffers written in one run of the graph, likewise"),
        ("reduction", "bool", "it reduces or scans along a dimension; null when unknown"),
        ("in_place", "int", "buffers that it overwrites with its result"),
        ("copy", "bool", "it only moves elements: a change of layout, a clone; null when unknown"),
        (
            "unfused_with",
            "str",
            "pointwise kernel right in front of it whose result it reads, over as many elements; null when none",
        ),
        ("unfused_bytes", "int", "bytes written and read again because these two are not one, a run of the graph"),
        ("launches_per_step", "float", "times it ran in a profiled step; null when not measured"),
        ("time_ns", "int", "how long it ran in a profiled step; null when not measured"),
        ("code", "str", "its source; null when the output code could not be read"),
    ),
    table(
        "extern_calls",
        "one library kernel or fallback operator that a compiled graph calls for one of the user's lines",
        COMPILE,
        ("compile_id", "str", "compilation it belongs to, as in compilations"),
        ("graph", "str", "Inductor's id of the graph, e.g. 0_forward"),
        ("direction", "str", "forward, backward, inference; null when unknown"),
        ("position", "int", "place of its first call among the calls of the graph, from 0"),
        ("calls", "int", "calls in one run of the graph"),
        ("name", "str", "what the code calls, e.g. extern_kernels.addmm"),
        ("op", "str", "operator that it stands for, e.g. aten.addmm"),
        ("op_class", "str", "as in ops"),
        ("fallback", "bool", "the operator itself is called, as in eager code, for want of a kernel"),
        (
            "has_lowering",
            "bool",
            "Inductor generates code for it as a rule: simple pointwise work, reductions, copies",
        ),
        ("ops", "str", "operator in the graph; null when it could not be told"),
        ("nodes", "str", "nodes of the graph that it computes, comma separated; null when unknown"),
        ("file", "str", "user's source file that calls it; null when unknown"),
        ("line", "int", "that line"),
        ("function", "str", "its function"),
        ("lines", "str", "user lines in it, as a JSON list of file:line; all of them where nodes are known"),
        (
            "line_source",
            "str",
            "how they are known: provenance (torch traced it), comment (the code names the nodes), dataflow (from "
            "the buffers that it reads and writes)",
        ),
        ("launches_per_step", "float", "times it ran in a profiled step with stacks; null when not measured"),
        ("time_ns", "int", "host time in it in a profiled step with stacks; null when not measured"),
    ),
)
