"""The Profile: one run's facts as tables, with their schema declared once.

Times are integer nanoseconds from the recording's own zero, `_ns` in a name is always nanoseconds. Ids are row numbers.
Any table may be empty. A cell that a source cannot give is null, never zero. A table that no instrument filled is
*absent* (`Profile.measured` is false for it), which is not the same as empty: an empty table was looked for and had
nothing in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpudoctor.columns import Columns, Kind, Tables
from gpudoctor.columns import frame as frame_of
from gpudoctor.errors import GpuDoctorError

if TYPE_CHECKING:
    import pandas as pd

_DTYPES: dict[Kind, str] = {"int": "Int64", "float": "Float64", "str": "string", "bool": "boolean"}

SCHEMA_VERSION = 2
"""Bumped when a table or column changes its meaning: a Parquet cache of another version is rebuilt."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, kind and meaning (the unit is part of the name)."""

    name: str
    kind: Kind
    doc: str

    @property
    def dtype(self) -> str:
        """The pandas extension dtype; nullable, so that one null does not turn nanoseconds into floats."""
        return _DTYPES[self.kind]


@dataclass(frozen=True, slots=True)
class Table:
    """One table of the Profile: its columns and what a row is."""

    name: str
    row: str
    columns: tuple[Column, ...]
    how: str
    """How to get the table when it was not measured: a sentence for the user."""

    @property
    def names(self) -> list[str]:
        """The column names in order."""
        return [column.name for column in self.columns]


def _table(name: str, row: str, how: str, *columns: tuple[str, Kind, str]) -> Table:
    return Table(name, row, tuple(Column(*column) for column in columns), how)


_CHECK = "record the run with `gpudoctor check train.py`"
_DETAIL = "let the run reach a profiled step: more steps, or fewer compiles in them"
_COMPILE = "run `gpudoctor check` on a torch (2.7 or newer) that writes the structured compile log"
_GPU = "run `gpudoctor check` on a machine with a GPU, or `gpudoctor analyze` on a trace recorded with one"

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        _table(
            "steps",
            "one training step",
            _CHECK,
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
        _table(
            "ops",
            "one CPU operator call in a profiled step",
            _DETAIL,
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
        _table(
            "kernels",
            "one device activity (kernel, memcpy, memset)",
            _GPU,
            ("kernel", "int", "id"),
            ("name", "str", "kernel name"),
            ("kind", "str", "kernel, memcpy, memset"),
            (
                "kernel_class",
                "str",
                "gemm, convolution, attention, normalisation, reduction, pointwise, copy, optimizer, communication, "
                "embedding, triton, other",
            ),
            ("precision", "str", "fp64, fp32, tf32, fp16, bf16, fp8, int8 of matrix work, as the name says; else null"),
            ("start_ns", "int", "when it began"),
            ("dur_ns", "int", "how long it took"),
            ("device", "int", "GPU index"),
            ("stream", "int", "stream id"),
            ("correlation", "int", "id that ties it to its launch"),
            ("call", "int", "id in runtime_calls of the call that launched it; null when not recorded"),
            ("queue_ns", "int", "from the begin of its launch call to its own begin; null when unknown"),
            ("graph", "bool", "launched by a CUDA or HIP graph replay"),
            ("op", "int", "op id of the launching operator; null when unknown"),
            ("step", "int", "step it ran in"),
            ("bytes", "int", "bytes moved, for copies and sets"),
            ("direction", "str", "h2d, d2h, d2d, p2p, h2h for copies"),
            ("pageable", "bool", "host side of the copy is pageable memory"),
            ("grid_blocks", "int", "thread blocks of the launch"),
            ("block_threads", "int", "threads in a block"),
            ("registers", "int", "registers a thread"),
            ("shared_memory_bytes", "int", "shared memory a block"),
            ("exposed_ns", "int", "for copies and communication: part of it during which no other kernel ran"),
            ("held_ns", "int", "part of exposed_ns in which the next kernel was launched already, or the host waited"),
            ("file", "str", "user's source file of the launching operator"),
            ("line", "int", "user's source line of the launching operator"),
        ),
        _table(
            "runtime_calls",
            "one call into the GPU's runtime or driver library",
            _GPU,
            ("call", "int", "id"),
            ("name", "str", "e.g. cudaLaunchKernel, hipMemcpyWithStream"),
            ("kind", "str", "launch, graph_launch, memcpy, memset, sync, event, allocate, free, other"),
            ("start_ns", "int", "when it began"),
            ("dur_ns", "int", "how long it took"),
            ("thread", "int", "thread id"),
            ("correlation", "int", "id that ties it to what it launched"),
            ("op", "int", "op id of the innermost operator around it"),
            ("step", "int", "step it ran in"),
            ("blocks", "bool", "the host waited in it for the device: a synchronisation or a blocking copy"),
            ("file", "str", "user's source file of the operator around it"),
            ("line", "int", "user's source line of the operator around it"),
        ),
        _table(
            "collectives",
            "one communication kernel on a device",
            _GPU,
            ("collective", "int", "id"),
            ("kernel", "int", "id in kernels"),
            ("name", "str", "what was asked for: allreduce, all_gather, reduce_scatter, alltoall, send, recv, …"),
            ("start_ns", "int", "when its kernel began"),
            ("dur_ns", "int", "how long its kernel took, waiting for other ranks included"),
            ("exposed_ns", "int", "part of it during which no other kernel ran on the device"),
            ("held_ns", "int", "part of exposed_ns in which the next kernel was launched already, or the host waited"),
            ("device", "int", "GPU index"),
            ("stream", "int", "stream id"),
            ("step", "int", "step it ran in"),
            ("dtype", "str", "element type; null when not recorded"),
            ("bytes", "int", "bytes that this rank sends (the larger side); null when not recorded"),
            ("ranks", "int", "size of the process group; null when not recorded"),
            ("group", "str", "process group's name or description"),
            ("op", "int", "op id that asked for it"),
            ("file", "str", "user's source file of that operator"),
            ("line", "int", "user's source line of that operator"),
        ),
        _table(
            "memory_events",
            "one allocation or release that the profiler saw",
            "record with `profile_memory=True`",
            ("start_ns", "int", "when"),
            ("bytes", "int", "bytes allocated; negative when released"),
            ("allocated_bytes", "int", "in use on the device afterwards"),
            ("reserved_bytes", "int", "held by the allocator afterwards"),
            ("address", "int", "address"),
            ("device_kind", "str", "cpu or gpu"),
            ("device", "int", "GPU index"),
            ("thread", "int", "thread id"),
            ("op", "int", "op id of the innermost operator around it"),
            ("step", "int", "step it happened in"),
        ),
        _table(
            "gaps",
            "one stretch of a step in which the device did nothing",
            _GPU,
            ("gap", "int", "id"),
            ("device", "int", "GPU index"),
            ("step", "int", "step"),
            ("start_ns", "int", "when it began"),
            ("dur_ns", "int", "how long it lasted"),
            ("owner", "str", "who had the time, as in step_budget"),
            ("evidence", "str", "name of the event on the host that says so; null for unknown"),
            ("op", "int", "op id of the operator the host was in"),
            ("call", "int", "id in runtime_calls of the call that is the evidence; null when it is none"),
            ("file", "str", "user's source file of that operator"),
            ("line", "int", "user's source line of that operator"),
        ),
        _table(
            "kernel_runs",
            "one run of short kernels that followed each other on a stream while the device waited for launches",
            _GPU,
            ("run", "int", "id"),
            ("device", "int", "GPU index"),
            ("stream", "int", "stream id"),
            ("step", "int", "step"),
            ("start_ns", "int", "when its first kernel began"),
            ("dur_ns", "int", "from the begin of its first to the end of its last kernel"),
            ("kernels", "int", "kernels in it"),
            ("kernel_ns", "int", "time in its kernels"),
            ("gap_ns", "int", "time between them"),
            ("phase", "str", "phase, as in ops, that most of its kernels belong to; null when unknown"),
            ("file", "str", "user's source file that most of its kernels come from"),
            ("line", "int", "that line"),
            ("function", "str", "that function"),
        ),
        _table(
            "launch_queue",
            "how far the host was ahead of one device in one step",
            _GPU,
            ("step", "int", "step"),
            ("device", "int", "GPU index"),
            ("launches", "int", "kernels with a recorded launch"),
            ("median_queue_ns", "int", "median time from launch call to kernel begin"),
            ("starved_share", "float", "share of the launches that found the device idle, waiting for them, 0 to 1"),
            ("host_ns", "int", "time the host spent in launch calls"),
        ),
        _table(
            "op_costs",
            "what calls of one operator with the same inputs cost in the profiled steps",
            _DETAIL,
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
        _table(
            "roofline",
            "what the matrix work of one operator with the same inputs reached of this GPU's peak",
            "record shapes (`record_shapes=True`) on a GPU that gpudoctor has the figures of",
            ("name", "str", "operator"),
            ("shapes", "str", "input shapes"),
            ("dtypes", "str", "input dtypes"),
            ("matrix_dtype", "str", "dtype whose peak applies; tf32 where its kernels say so, null where none does"),
            ("calls", "int", "calls"),
            ("device_ns", "int", "time of its kernels"),
            ("flops_per_s", "float", "floating point operations a second"),
            ("bytes_per_s", "float", "least bytes a second"),
            ("compute_share", "float", "of the peak rate for its dtype, 0 to 1"),
            ("bandwidth_share", "float", "of the memory bandwidth, 0 to 1"),
            ("bound", "str", "compute, memory or neither"),
        ),
        _table(
            "batches",
            "one batch taken from a DataLoader",
            _CHECK,
            ("loader", "int", "id in loaders"),
            ("step", "int", "step that used it; null for one of validation"),
            ("validation", "bool", "taken in a validation pass: a pass without a backward call in a run that trains"),
            ("epoch", "int", "pass over this loader, from 0"),
            ("position", "int", "position in its epoch, from 0"),
            ("start_ns", "int", "when the loop asked for it"),
            ("wait_ns", "int", "how long the loop waited"),
            ("fetch_ns", "int", "time in the dataset (`__getitem__`), main process only"),
            ("collate_ns", "int", "time in collate_fn, main process only"),
            ("size", "int", "samples in the batch: first dimension of its first tensor"),
        ),
        _table(
            "loaders",
            "one DataLoader that was iterated",
            _CHECK,
            ("loader", "int", "id"),
            ("file", "str", "where it was constructed"),
            ("line", "int", "line of the construction"),
            ("function", "str", "function of the construction"),
            ("for_file", "str", "where it was iterated"),
            ("for_line", "int", "line of the loop"),
            ("batch_size", "int", "batch_size argument"),
            ("num_workers", "int", "num_workers argument"),
            ("pin_memory", "bool", "pin_memory argument"),
            ("persistent_workers", "bool", "persistent_workers argument"),
            ("drop_last", "bool", "drop_last argument"),
            ("prefetch_factor", "int", "prefetch_factor argument"),
            ("dataset", "str", "class of the dataset"),
            ("dataset_file", "str", "file of the dataset's __getitem__ or __iter__, when the user's"),
            ("dataset_line", "int", "line of its definition"),
            ("samples", "int", "len(dataset), when it has one"),
            ("cores", "int", "CPU cores this process may use"),
        ),
        _table(
            "compile_calls",
            "one call of torch.compile",
            _CHECK,
            ("file", "str", "where torch.compile was called"),
            ("line", "int", "line of the call"),
            ("function", "str", "function of the call"),
            ("target", "str", "what was compiled"),
            ("target_file", "str", "file of the compiled function or forward"),
            ("target_line", "int", "its first line"),
            ("dynamic", "str", "dynamic argument: None, True, False"),
            ("backend", "str", "backend argument"),
            ("mode", "str", "mode argument"),
            ("fullgraph", "bool", "fullgraph argument"),
            ("step", "int", "step in which it was called; null before the first"),
        ),
        _table(
            "compilations",
            "one compilation of one frame by Dynamo",
            _COMPILE,
            ("compile_id", "str", "frame/compile, e.g. 0/1"),
            ("frame", "int", "frame id"),
            ("attempt", "int", "compilation number of the frame, from 0"),
            ("function", "str", "code object's name"),
            ("file", "str", "file of the code object"),
            ("line", "int", "its first line"),
            ("resumes", "bool", "a continuation after a graph break"),
            ("caller_file", "str", "user's file that called the compiled code"),
            ("caller_line", "int", "user's line that called it"),
            ("start_ns", "int", "when it began"),
            ("dur_ns", "int", "how long it took"),
            ("backend_ns", "int", "of which in the backend (AOTAutograd, Inductor)"),
            ("backward_ns", "int", "compile time of its backward graph, when that happened later"),
            ("step", "int", "step in which it happened; null before the first"),
            ("graph_ops", "int", "operators in the graph; null when none was made"),
            ("guards", "int", "guards on the compiled code"),
            ("dynamic_dims", "int", "dimensions that were compiled as symbols"),
            ("fail_type", "str", "exception that ended it; null when it succeeded"),
            ("fail_reason", "str", "its text"),
            ("ran_in_steps", "bool", "the compiled code ran in a profiled step; null when none was profiled"),
        ),
        _table(
            "graph_breaks",
            "one graph break that Dynamo logged",
            _COMPILE,
            ("compile_id", "str", "compilation it happened in"),
            ("frame", "int", "frame id"),
            ("step", "int", "step in which it happened; null before the first"),
            ("file", "str", "user's file of the breaking line"),
            ("line", "int", "user's line"),
            ("function", "str", "user's function"),
            ("reason", "str", "Dynamo's reason, one line"),
            ("explanation", "str", "Dynamo's explanation"),
            ("hint", "str", "Dynamo's hints"),
            ("break_id", "str", "id in Dynamo's registry of breaks, e.g. GB0124; null when the version has none"),
            ("owner", "str", "whose code broke: user, torch.optim, torch, library"),
            ("skipped", "bool", "the whole frame runs eagerly because of it"),
            ("graphs", "int", "graphs of the function and its continuations in the end"),
            ("ran_in_steps", "bool", "code of the broken frame ran in the steps"),
        ),
        _table(
            "recompiles",
            "one recompilation: the guard that failed and what changed",
            _COMPILE,
            ("compile_id", "str", "the new compilation"),
            ("frame", "int", "frame id"),
            ("step", "int", "step in which it happened; null before the first"),
            ("file", "str", "file of the compiled function"),
            ("line", "int", "its first line"),
            ("function", "str", "compiled function"),
            ("caller_file", "str", "user's file that called it"),
            ("caller_line", "int", "user's line that called it"),
            ("compile_file", "str", "user's file with the torch.compile call; null when unknown"),
            ("compile_line", "int", "its line"),
            ("compile_dynamic", "str", "its dynamic argument"),
            ("cause", "str", "shape, value, or other"),
            ("guard", "str", "the guard that failed, as Dynamo words it"),
            ("source", "str", "what the guard looks at: a tensor's name or an expression"),
            ("dimension", "int", "dimension that changed, for shapes"),
            ("expected", "str", "value the older code was compiled for"),
            ("actual", "str", "value that came"),
            ("dur_ns", "int", "how long the recompilation took"),
            ("dynamic_dims", "int", "dimensions the new code has as symbols"),
            ("ragged_batch", "bool", "the step's batch was smaller than its loader's batch_size"),
            ("loader_file", "str", "file of that loader's construction"),
            ("loader_line", "int", "line of that loader's construction"),
        ),
        _table(
            "settings",
            "one setting of the run",
            _CHECK,
            ("name", "str", "e.g. float32_matmul_precision, env.OMP_NUM_THREADS"),
            ("value", "str", "its value as text; null when it is not set"),
            ("file", "str", "user's file that set it; null when it is the default or unknown"),
            ("line", "int", "line that set it"),
            (
                "source",
                "str",
                "who set it: script (at file and line), environment, default, or changed (elsewhere); null if unknown",
            ),
        ),
        _table(
            "host",
            "one reading of the machine over the watched time",
            _CHECK,
            ("name", "str", "what was read; its unit is the end of the name, a count when it has none"),
            ("device", "int", "GPU index; null for the process itself"),
            ("value", "float", "the reading"),
        ),
        _table(
            "memory_timeline",
            "one reading of a GPU's caching allocator, at the end of a step",
            _GPU,
            ("step", "int", "step that had just ended; null before the first"),
            ("time_ns", "int", "when it was read"),
            ("device", "int", "GPU index"),
            ("allocated_bytes", "int", "memory that tensors hold"),
            (
                "allocated_peak_bytes",
                "int",
                "most that they held at once, since the script last reset it",
            ),
            ("reserved_bytes", "int", "memory that the allocator holds from the driver"),
            ("active_bytes", "int", "memory that tensors hold or that a stream may still use"),
            ("inactive_split_bytes", "int", "free parts of blocks that are partly in use: they cannot be given back"),
            ("alloc_retries", "int", "allocations so far for which the cache had to be emptied first"),
            ("device_allocs", "int", "memory requests to the driver so far"),
            ("device_frees", "int", "memory given back to the driver so far"),
            ("ooms", "int", "out-of-memory errors so far"),
        ),
        _table(
            "input_lines",
            "one line of the dataset's code seen by sampling while it made a batch in the main process",
            "use num_workers=0 for the run: lines in worker processes are not sampled",
            ("file", "str", "user's source file"),
            ("line", "int", "line that ran"),
            ("function", "str", "its function"),
            ("samples", "int", "how often the line was seen running"),
            ("share", "float", "its share of all samples, 0 to 1"),
        ),
        _table(
            "dtype_sites",
            "one line of the user's source that makes float64 tensors",
            _CHECK,
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
        _table(
            "step_budget",
            "one owner's share of one step; the shares of a step add up to it exactly",
            _DETAIL,
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
    )
}


def empty(name: str) -> pd.DataFrame:
    """An empty table with the declared columns and dtypes."""
    return frame(name, [])


def frame(name: str, rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Builds a table from row mappings; missing keys become null.

    Args:
        name: one of `TABLES`.
        rows: mappings from column name to value.

    Returns:
        A frame with exactly the declared columns, in order, with nullable dtypes.

    Raises:
        GpuDoctorError: a row has a column that the table does not declare.
    """
    rows = list(rows)
    table = _declared(name)
    unknown = {key for row in rows for key in row} - set(table.names)
    if unknown:
        raise GpuDoctorError(f"table {name!r} has no column {sorted(unknown)[0]!r}; it has {', '.join(table.names)}")
    return columns(name, {column: [row.get(column) for row in rows] for column in table.names})


def columns(name: str, values: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    """Builds a table from columns (sequences of equal length); columns left out become null."""
    import pandas as pd

    table = _declared(name)
    length = max((len(v) for v in values.values()), default=0)
    nothing: Sequence[Any] = [None] * length
    made = pd.DataFrame({c.name: list(values.get(c.name, nothing)) for c in table.columns}, dtype=object)
    return made.astype({c.name: c.dtype for c in table.columns})


def from_columns(name: str, given: Columns) -> pd.DataFrame:
    """Builds a large table from arrays without touching single cells; columns left out are null.

    Raises:
        GpuDoctorError: a column is given that the table does not declare.
    """
    table = _declared(name)
    unknown = set(given) - set(table.names)
    if unknown:
        raise GpuDoctorError(f"table {name!r} has no column {sorted(unknown)[0]!r}; it has {', '.join(table.names)}")
    return frame_of({column.name: column.kind for column in table.columns}, given)


def tables(frames: Mapping[str, pd.DataFrame], arrays: Mapping[str, Columns]) -> Tables:
    """Frames that are there, and others that are made from arrays when they are asked for."""
    return Tables(frames, from_columns, arrays)


def _declared(name: str) -> Table:
    try:
        return TABLES[name]
    except KeyError:
        raise GpuDoctorError(f"no table {name!r}; the tables are {', '.join(TABLES)}") from None


@dataclass(frozen=True, slots=True)
class Profile:
    """One run's facts as tables, plus the facts that are not rows.

    Attributes:
        tables: the measured tables only; ask `table()` to get an empty one for the rest.
        facts: what the run was (script, argv, torch, device, integrity notes, …), JSON-able.
        sources: text of the user's files that the tables point at, by the path used in `file` columns.
        why_missing: for a table that was not measured, why (`how` in its declaration says how to get it).
    """

    tables: Mapping[str, pd.DataFrame]
    facts: Mapping[str, Any] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    why_missing: Mapping[str, str] = field(default_factory=dict)

    def measured(self, name: str) -> bool:
        """Whether an instrument filled this table (an empty table was measured, an absent one was not)."""
        return name in self.tables

    def table(self, name: str) -> pd.DataFrame:
        """The table, empty when it was not measured."""
        return self.tables[name] if name in self.tables else empty(name)

    def sql(self, query: str) -> pd.DataFrame:
        """The answer to one SELECT over the tables, with nullable types.

        Tables that were not measured are there and empty; ask `measured()`.

        Raises:
            UsageError: the query is refused (it may read the tables and nothing else), fails, or takes too long.
        """
        from gpudoctor.query import ask

        return ask(self, query).frame()

    def why_not(self, name: str) -> tuple[str, str]:
        """Why a table was not measured and how to get it, two sentences."""
        declared = _declared(name)
        return self.why_missing.get(name, f"this run has no table {name!r} ({declared.row})"), declared.how
