"""Tables: the input pipeline."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "batches",
        "one batch taken from a DataLoader",
        CHECK,
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
    table(
        "loaders",
        "one DataLoader that was iterated",
        CHECK,
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
    table(
        "input_lines",
        "one line of the dataset's code seen by sampling while it made a batch in the main process",
        "use num_workers=0 for the run: lines in worker processes are not sampled",
        ("file", "str", "user's source file"),
        ("line", "int", "line that ran"),
        ("function", "str", "its function"),
        ("samples", "int", "how often the line was seen running"),
        ("share", "float", "its share of all samples, 0 to 1"),
    ),
)
