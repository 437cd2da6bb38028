"""The counters by name: what each counts, its unit, and whether more of it is worse."""

from __future__ import annotations

from dataclasses import dataclass

from gpudoctor.diagnosis import Scope, Unit


@dataclass(frozen=True, slots=True)
class Kind:
    """What a counter is.

    Attributes:
        title: what it counts, as a reader reads it.
        unit: events, bytes or floating point operations.
        scope: counted in one profiled step, or over the whole run.
        gates: more of it is worse, and decides a review; the others only say what changed.
    """

    title: str
    unit: Unit = "count"
    scope: Scope = "step"
    gates: bool = True


COUNTERS: dict[str, Kind] = {
    "graph_breaks": Kind("graph breaks", scope="run"),
    "recompiles": Kind("recompiles", scope="run"),
    "recompile_limits": Kind("functions at the recompile limit", scope="run"),
    "compile_failures": Kind("failed compilations", scope="run"),
    "graphs": Kind("graphs compiled", scope="run"),
    "graph_operators": Kind("operators in graphs", scope="run", gates=False),
    "generated_kernels": Kind("generated kernels", scope="run"),
    "operators_per_step": Kind("operators a step"),
    "autograd_nodes_per_step": Kind("autograd nodes a step"),
    "host_reads_per_step": Kind("host reads a step (.item() and alike)"),
    "dtype_conversions_per_step": Kind("dtype conversions a step"),
    "kernels_per_step": Kind("kernels a step"),
    "launches_per_step": Kind("launches a step"),
    "syncs_per_step": Kind("calls a step that wait for the GPU"),
    "h2d_copies_per_step": Kind("host-to-device copies a step"),
    "h2d_bytes_per_step": Kind("bytes to the device a step", "bytes"),
    "d2h_copies_per_step": Kind("device-to-host copies a step"),
    "d2h_bytes_per_step": Kind("bytes to the host a step", "bytes"),
    "d2d_copies_per_step": Kind("copies on the device a step"),
    "d2d_bytes_per_step": Kind("bytes copied on the device a step", "bytes"),
    "allocations_per_step": Kind("allocations a step"),
    "allocated_bytes_per_step": Kind("bytes allocated a step", "bytes"),
    "peak_live_bytes_per_step": Kind("bytes of a step alive at once", "bytes"),
    "collectives_per_step": Kind("collectives a step"),
    "collective_bytes_per_step": Kind("bytes sent by collectives a step", "bytes"),
}
"""In the order in which they are shown. Counters of matrix work have a dtype in their names, e.g.
`matmul_flops_fp32_per_step`; `kind` knows them too."""

_MATMUL = "matmul_flops_"


def matmul(dtype: str) -> str:
    """Name of the counter of matrix work in a dtype, e.g. `bf16`."""
    return f"{_MATMUL}{dtype}_per_step"


def kind(name: str) -> Kind | None:
    """What a counter is; None when there is none of that name."""
    if name.startswith(_MATMUL) and name.endswith("_per_step"):
        dtype = name.removeprefix(_MATMUL).removesuffix("_per_step")
        return Kind(f"matrix work a step in {dtype}", "FLOP") if dtype else None
    return COUNTERS.get(name)
