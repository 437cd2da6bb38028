"""Whether a file may need a call that waits for the device: it times work, or orders it by hand."""

from __future__ import annotations

import libcst as cst

from gpudoctor.clocks import CLOCKS
from gpudoctor.engine.edits import NotCertainError
from gpudoctor.engine.edits.tree import Source, called_name

_ORDERING = frozenset(
    {"Stream", "ExternalStream", "stream", "wait_stream", "wait_event", "Event", "CUDAGraph", "graph", "replay"}
    | {"share_memory_", "reduce_tensor", "data_ptr", "cudart", "start_profile", "profile"}
)
"""Streams, events, captured graphs, memory that others read, profilers: work that torch does not order by itself."""

_HOST_COPIES = frozenset({"to", "cpu", "copy_"})


def check_nothing_waits(source: Source) -> None:
    """Raises NotCertainError where a wait for the device may have a purpose in the file."""
    for call in source.nodes(cst.Call):
        name = called_name(call)
        if name in CLOCKS:
            raise NotCertainError("the file reads a clock, and may time what the call waits for")
        if name in _ORDERING:
            raise NotCertainError(f"the file calls {name}, and may need the wait")
        if name in _HOST_COPIES and _may_run_on(call):
            raise NotCertainError("the file copies without waiting, perhaps to the host, and may need the wait")


def _may_run_on(call: cst.Call) -> bool:
    """Whether a copy may go to the host and return before it is done: `x.to("cpu", non_blocking=True)`."""
    flags = [one.value for one in call.args if one.keyword is not None and one.keyword.value == "non_blocking"]
    if not flags or (isinstance(flags[0], cst.Name) and flags[0].value == "False"):
        return False
    places = [one.value for one in call.args if one.keyword is None or one.keyword.value == "device"]
    return not (called_name(call) == "to" and places and _is_gpu(places[0]))


def _is_gpu(place: cst.BaseExpression) -> bool:
    """Whether a device is a GPU as far as its name says: "cuda:0", or a variable that is called a device."""
    if isinstance(place, cst.SimpleString):
        return str(place.evaluated_value).partition(":")[0] in ("cuda", "mps", "xpu")
    name = place.attr.value if isinstance(place, cst.Attribute) else place.value if isinstance(place, cst.Name) else ""
    return name.lower() in ("device", "dev", "gpu", "cuda", "rank", "local_rank")
