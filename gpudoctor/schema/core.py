"""Tables: steps, operators and what the run was."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, DETAIL, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "steps",
        "one training step",
        CHECK,
        ("step", "int", "number of the step, from 0 for the first of the run"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long it took"),
        (
            "observation",
            "str",
            "how it was watched: bare (no profiler), light (profiler without options), detail (stacks, shapes, "
            "memory), disturbed (gpudoctor's own work or a validation pass fell inside: not to be timed)",
        ),
        ("warmup", "bool", "before the steady state: first steps, and steps up to the last of the first compiles"),
        ("compile_ns", "int", "time inside the step in which torch.compile compiled"),
        ("input_ns", "int", "time the loop waited for the next batch"),
        ("backward_ns", "int", "time inside backward calls, without optimizers that step there"),
        ("optimizer_ns", "int", "time inside optimizer steps, behind the forward and backward of a closure"),
        (
            "validation_ns",
            "int",
            "time of validation since the step before: passes over a loader without a backward call; in front of "
            "the step and no part of dur_ns, or inside it (then disturbed)",
        ),
        ("batches", "int", "batches taken from DataLoaders in the step, without those of validation"),
        ("epoch", "int", "epoch of the step's last batch, from 0; null without a DataLoader"),
        (
            "source",
            "str",
            "what ended the step: call, optimizer, backward, dataloader, ProfilerStep, annotation, window",
        ),
    ),
    table(
        "ops",
        "one CPU operator call in a profiled step",
        DETAIL,
        ("op", "int", "id"),
        ("name", "str", "operator, e.g. aten::addmm"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long it took, callees included"),
        ("self_ns", "int", "how long it took without the operators it called"),
        ("parent", "int", "op id of the caller; null when called from Python or the autograd engine"),
        ("depth", "int", "operators above it"),
        ("thread", "int", "thread id"),
        ("step", "int", "step it ran in"),
        ("observation", "str", "light or detail, as in steps"),
        ("phase", "str", "input, transfer (host to device), forward, backward, optimizer, other"),
        (
            "op_class",
            "str",
            "gemm, convolution, attention, normalisation, reduction, pointwise, copy, memory, other",
        ),
        ("region", "str", "compile id of the compiled region it ran in, e.g. 0/1; null in eager code"),
        ("module", "str", "class of the innermost nn.Module; null when unknown"),
        (
            "module_path",
            "str",
            "path of the innermost nn.Module's instance in its model, e.g. encoder.layers.3.self_attn; for "
            "backward operators the forward operator's; null when unknown",
        ),
        ("file", "str", "user's source file, relative to the working folder when inside it; null when unknown"),
        ("line", "int", "user's source line; for backward operators the line of the forward operator"),
        ("precision", "str", "call (the line that called it) or def (only the function's first line is known)"),
        ("function", "str", "user's function that owns the line"),
        ("caller_file", "str", "file of the innermost Python frame around it, whoever owns it"),
        ("caller_function", "str", "function of that frame"),
        ("owner", "str", "who called it: user, torch.optim, torch.utils.data, torch.amp, torch, library"),
        ("dtypes", "str", "input dtypes, comma separated, e.g. float,float,; null when not recorded"),
        ("shapes", "str", "input shapes as a JSON list; null when not recorded"),
        ("arguments", "str", "arguments that are no tensors, as a JSON list of texts; null when not recorded"),
        ("sequence", "int", "autograd sequence number; null when none"),
        ("forward_op", "int", "for a backward operator: op id of its forward operator"),
        ("host_read", "bool", "the host needs the result's value here: on a GPU this waits for the device"),
    ),
    table(
        "op_costs",
        "what calls of one operator with the same inputs cost in the profiled steps",
        DETAIL,
        ("name", "str", "operator"),
        ("op_class", "str", "as in ops"),
        ("shapes", "str", "input shapes"),
        ("dtypes", "str", "input dtypes"),
        ("phase", "str", "as in ops"),
        ("module", "str", "module it was called in"),
        ("file", "str", "user's source file"),
        ("line", "int", "user's source line"),
        ("calls", "int", "calls"),
        ("self_ns", "int", "host time without callees"),
        ("device_ns", "int", "time of the kernels it launched itself"),
        ("kernels", "int", "kernels it launched itself"),
        ("flops", "float", "floating point operations of matrix work; null for other work and when not known"),
        ("bytes", "float", "least bytes to move; null when not known"),
    ),
    table(
        "step_budget",
        "one owner's share of one step; the shares of a step add up to it exactly",
        DETAIL,
        ("step", "int", "step"),
        ("device", "int", "GPU index when a device is the ruler; null when the main thread is"),
        (
            "owner",
            "str",
            "main thread: input, compile, matmul, operators, optimizer, framework, python; device: compute, "
            "communication, copies, then what the host did while the device was idle: input, sync, memory, "
            "compile, optimizer, launch (operators, launch calls), python (between operators), queued (launched, "
            "and not begun by the device), unknown",
        ),
        ("dur_ns", "int", "time it owns"),
    ),
    table(
        "settings",
        "one setting of the run",
        CHECK,
        (
            "name",
            "str",
            "e.g. float32_matmul_precision, env.OMP_NUM_THREADS; ….backward_ratio: in which share of the backward "
            "calls it was on",
        ),
        ("value", "str", "its value as text; null when it is not set"),
        ("file", "str", "user's file that set it; null when it is the default or unknown"),
        ("line", "int", "line that set it"),
        (
            "source",
            "str",
            "who set it: script (at file and line), environment, default, or changed (elsewhere); null if unknown",
        ),
    ),
    table(
        "environment",
        "one fact about the machine and the software, as `gpudoctor env` shows it",
        CHECK,
        ("name", "str", "e.g. cores, cpu limit, gpu, kernels for this gpu"),
        ("value", "str", "its value as text"),
    ),
    table(
        "host",
        "one reading of the machine over the watched time",
        CHECK,
        ("name", "str", "what was read; its unit is the end of the name, a count when it has none"),
        ("device", "int", "GPU index; null for the process itself"),
        ("value", "float", "the reading"),
    ),
)
