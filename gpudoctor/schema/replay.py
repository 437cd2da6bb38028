"""Tables: the profiled steps replayed, and what their time hangs on."""

from __future__ import annotations

from gpudoctor.schema.declare import DETAIL, GPU, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "stream_waits",
        "one synchronisation as the device's own record gives it: what waited for what",
        "record with torch 2.1 or newer on a CUDA device, with `enable_cuda_sync_events=True`",
        ("correlation", "int", "id that ties it to the runtime call"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long it took"),
        ("device", "int", "GPU index; null when not recorded"),
        ("stream", "int", "stream that waited or was waited for; null when it was no single one"),
        ("waits_for_stream", "int", "stream on which the event was recorded; null when it was no event"),
        ("waits_for_record", "int", "correlation id of the call that recorded the event; null likewise"),
    ),
    table(
        "replayed_steps",
        "one profiled step, measured and as the replay of its dependency graph gives it back",
        DETAIL,
        ("step", "int", "step"),
        ("measured_ns", "int", "how long it took under the profiler"),
        ("replayed_ns", "int", "as replayed with the trace's constants for launch latency, gaps and returns"),
        ("anchored_ns", "int", "the same with each event's own latency, as savings are computed"),
        ("opaque_ns", "int", "waits of its critical path that nothing explains and that stay as they are"),
    ),
    table(
        "critical_path",
        "one stretch of the critical path of the median step: shorten it, and the step is shorter",
        GPU,
        ("position", "int", "place on the path, in the order of time"),
        ("step", "int", "step"),
        ("kind", "str", "host (operators and Python), call (runtime call), device (kernel, copy), latency, wait"),
        ("name", "str", "operator, runtime call or kernel; null for Python between operators"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long it took"),
        ("thread", "int", "thread id, for host and call"),
        ("device", "int", "GPU index, for device"),
        ("stream", "int", "stream id, for device"),
        ("op", "int", "id in ops of the outermost operator it lies in"),
        ("call", "int", "id in runtime_calls"),
        ("kernel", "int", "id in kernels"),
        ("kernel_class", "str", "as in kernels, for device"),
        ("file", "str", "user's source file"),
        ("line", "int", "user's source line"),
    ),
)  # fmt: skip
