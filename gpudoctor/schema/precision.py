"""Tables: precision, and what goes with it: dtypes, loss scaling, layouts."""

from __future__ import annotations

from gpudoctor.schema.declare import CHECK, DETAIL, Table, table

TABLES: tuple[Table, ...] = (
    table(
        "casts",
        "one conversion between floating point dtypes in a profiled step",
        "record shapes (`record_shapes=True`): they come with the dtypes",
        ("op", "int", "op id of the copy that converts"),
        ("step", "int", "step it ran in"),
        ("phase", "str", "as in ops"),
        ("file", "str", "user's source file; for backward work that of the forward operator"),
        ("line", "int", "user's source line"),
        ("function", "str", "user's function that owns the line"),
        ("module", "str", "module's path, its class where there is none"),
        ("precision", "str", "call or def, as in ops"),
        ("source", "str", "dtype it had, e.g. float32"),
        ("target", "str", "dtype it got"),
        ("widens", "bool", "it got a dtype of more bits"),
        (
            "kind",
            "str",
            "who wants it, for gradients the forward conversion's: line (the user's line), loss (the user's line, and "
            "no matrix work follows before backward), operator (autocast, or the operator itself), again (autocast "
            "converts a weight that it had converted in this forward pass), library (other code), backward (an "
            "operator of the backward pass); null when nobody saw who calls",
        ),
        ("dur_ns", "int", "time of its kernels; without a GPU of the copy on the host"),
    ),
    table(
        "backward_calls",
        "one backward call of the loop",
        CHECK,
        ("step", "int", "step it ran in; null outside of steps"),
        ("start_ns", "int", "when it began"),
        ("dur_ns", "int", "how long it took"),
        ("autocast", "str", "autocast's dtype when it was called under autocast; else null"),
        ("file", "str", "user's file of the call; known for those under autocast only"),
        ("line", "int", "line of the call"),
        ("function", "str", "function of the call"),
    ),
    table(
        "scalers",
        "one gradient scaler that was constructed",
        CHECK,
        ("scaler", "int", "id"),
        ("file", "str", "where it was constructed"),
        ("line", "int", "line of the construction"),
        ("function", "str", "function of the construction"),
        ("enabled", "bool", "it scales at all"),
        ("device_kind", "str", "cuda, cpu, …"),
        ("init_scale", "float", "scale it begins with"),
        ("growth_factor", "float", "factor when the scale grows"),
        ("backoff_factor", "float", "factor behind a skipped step"),
        ("growth_interval", "int", "steps without a skip after which the scale grows"),
    ),
    table(
        "scaler_steps",
        "one optimizer step that went through a gradient scaler",
        CHECK,
        ("scaler", "int", "id in scalers"),
        ("number", "int", "position among the scaler's steps, from 0"),
        ("step", "int", "step it ran in; null outside of steps"),
        ("skipped", "bool", "gradients were not finite, and the optimizer did not step"),
        ("scale", "float", "the scale in it, computed from the skips: each step counts as one update of the scaler"),
        ("grew", "bool", "the scale grew behind it"),
    ),
    table(
        "clips",
        "one call of torch's gradient clipping in a profiled step",
        DETAIL,
        ("op", "int", "op id of its first operator"),
        ("step", "int", "step it ran in"),
        ("file", "str", "user's source file of the call"),
        ("line", "int", "user's source line of the call"),
        ("function", "str", "user's function that owns the line"),
        (
            "unscaled",
            "bool",
            "a gradient scaler had unscaled gradients since the last backward call; null when none does in this step",
        ),
    ),
)
