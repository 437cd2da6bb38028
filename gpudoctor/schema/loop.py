"""Tables: what the training loop does beside training."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "host_calls",
        "what one line printed, logged or saved in one step of the whole run, profiled or not",
        CHECK,
        ("step", "int", "step it happened in"),
        ("kind", "str", "print, log, checkpoint, save, tracker, plot, metric"),
        ("name", "str", "what was called, e.g. torch.save"),
        ("file", "str", "user's file of the call"),
        ("line", "int", "user's line of the call"),
        ("function", "str", "user's function"),
        ("calls", "int", "calls in the step, on the main thread; calls inside another one of these do not count"),
        ("dur_ns", "int", "time in them"),
    ),
    table(
        "gc_pauses",
        "Python's garbage collections of one generation in one step of the whole run, by where they began",
        CHECK,
        ("step", "int", "step they happened in"),
        ("generation", "int", "0 for young objects to 2 for all"),
        ("explicit", "bool", "the script asked for it (gc.collect)"),
        ("file", "str", "user's file that ran when it began"),
        ("line", "int", "its line"),
        ("function", "str", "its function"),
        ("calls", "int", "collections in the step"),
        ("dur_ns", "int", "time in them"),
    ),
)
