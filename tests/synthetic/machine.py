"""Host and device together: the runtime calls, what they launch, and what the host waits for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.synthetic.device import Activity, Device
from tests.synthetic.hardware import MS, US, Gpu, Kernel
from tests.synthetic.host import PROCESS, Event, Host, Place

COMPUTE_STREAM = 7
"""What CUPTI calls the default stream."""
NCCL_STREAM, COPY_STREAM = 20, 24

_CBID = {
    "cudaLaunchKernel": 211, "cudaMemcpyAsync": 41, "cudaStreamSynchronize": 131, "cudaDeviceSynchronize": 165,
    "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaMalloc": 20, "cudaFree": 22, "cudaMemsetAsync": 51,
    "cudaGraphLaunch": 311, "cudaLaunchKernelExC": 430, "cudaEventSynchronize": 137, "cuLaunchKernel": 307,
    "cudaHostAlloc": 27, "cudaEventQuery": 136,
}  # fmt: skip
"""CUPTI's callback ids."""

TAIL_NS = 5 * US
"""From the end of what the host waits for to its return from the call."""


@dataclass(slots=True)
class Call:
    """A runtime call as it happened, profiled or not.

    Attributes:
        waited_ns: how long it waited for the device.
        place: the program's line.
        step: number of the step it was made in.
    """

    name: str
    start_ns: int
    end_ns: int
    correlation: int
    thread: int
    waited_ns: int = 0
    place: Place | None = None
    step: int = 0


class Machine:
    """A host with one GPU.

    Attributes:
        host: the host.
        device: the device.
        calls: all runtime calls.
        stream: the current stream.
        step: number of the step that runs.
    """

    def __init__(self, gpu: Gpu, seed: int = 0) -> None:
        self.host = Host(seed)
        self.device = Device(gpu)
        self.calls: list[Call] = []
        self.stream = COMPUTE_STREAM
        self.step = 0
        self._correlation = 0

    # -- calls ---------------------------------------------------------------------------------------------------

    def _call(self, name: str, dur_ns: float, until: int = 0) -> Call:
        """A call that takes so long, or until the device is done."""
        host = self.host
        host.now += 200
        self._correlation += 1
        start = host.now
        waited = max(0, until - start)
        host.now = max(start + host.jitter(dur_ns), until)
        call = Call(name, start, host.now, self._correlation, host.thread, waited, host.place(), self.step)
        self.calls.append(call)
        args: dict[str, Any] = {"cbid": _CBID.get(name, 0), "correlation": call.correlation}
        if host.external is not None:
            args = {"External id": host.external} | args
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        host.write(Event(category, name, PROCESS, host.thread, start, host.now - start, args))
        host.now += 200
        return call

    def _put(
        self, call: Call, kind: str, name: str, stream: int, dur_ns: int, args: dict[str, Any], **how: Any
    ) -> Activity:
        host = self.host
        ready = call.start_ns + min(call.end_ns - call.start_ns, 2 * host.costs.launch) + host.jitter(1_300, 0.2)
        made = self.device.run(kind, name, stream, ready, host.jitter(dur_ns, 0.02), call.correlation, **how)
        made.args = args
        shown = {} if host.external is None else {"External id": host.external}
        shown |= {"queued": 0} if kind == "kernel" else {}
        shown |= {"device": 0, "context": 1, "stream": stream, "correlation": call.correlation} | args
        category = "kernel" if kind == "kernel" else f"gpu_{kind}"
        if "memory bandwidth (GB/s)" in shown:
            shown["memory bandwidth (GB/s)"] = shown["bytes"] / max(1, made.end_ns - made.start_ns)
        host.write(Event(category, name, 0, stream, made.start_ns, made.end_ns - made.start_ns, shown))
        return made

    def write_backlog(self) -> None:
        """What was launched before the profiler was started and begins after it: device activities without a call."""
        for made in self.device.activities:
            if made.start_ns >= self.host.now:
                category = "kernel" if made.kind == "kernel" else f"gpu_{made.kind}"
                shown = {"device": 0, "context": 1, "stream": made.stream, "correlation": made.correlation} | made.args
                dur = made.end_ns - made.start_ns
                self.host.write(Event(category, made.name, 0, made.stream, made.start_ns, dur, shown))

    def launch(
        self,
        kernel: Kernel,
        stream: int | None = None,
        api: str = "cudaLaunchKernel",
        dur_ns: int | None = None,
        fills: bool | None = None,
        **more: Any,
    ) -> Activity:
        """Launches a kernel.

        Args:
            kernel: what it does.
            stream: where; the current stream by default.
            api: the call that launches it.
            dur_ns: how long it takes, when its work does not say.
            fills: it needs the whole device; by its grid by default.
            more: of its `args`.
        """
        host, gpu = self.host, self.device.gpu
        room = self.device.accepts(host.now)
        call = self._call(api, host.costs.launch, room if room > host.now else 0)
        args = kernel.occupancy(gpu) | more
        dur = kernel.duration_ns(gpu) if dur_ns is None else dur_ns
        full = kernel.blocks >= gpu.sms if fills is None else fills
        return self._put(call, "kernel", kernel.name, stream or self.stream, dur, args, fills=full)

    def graph(self, kernels: Iterable[Kernel], stream: int | None = None) -> list[Activity]:
        """Replays a captured graph: one call, and its kernels without gaps."""
        call = self._call("cudaGraphLaunch", 4 * self.host.costs.launch)
        made = []
        for node, kernel in enumerate(kernels):
            args = kernel.occupancy(self.device.gpu) | {"graph id": 2, "graph node id": 100 + node}
            made.append(
                self._put(call, "kernel", kernel.name, stream or self.stream, kernel.duration_ns(self.device.gpu), args)
            )
        return made

    def memset(self, moved_bytes: int) -> Activity:
        """Fills memory by the driver's own kernel."""
        call = self._call("cudaMemsetAsync", self.host.costs.launch)
        dur = 1_000 + round(moved_bytes / self.device.gpu.bytes_per_s * 1e9)
        args = {"bytes": moved_bytes, "memory bandwidth (GB/s)": 0.0}
        return self._put(call, "memset", "Memset (Device)", self.stream, dur, args)

    # -- copies --------------------------------------------------------------------------------------------------

    def copy(self, direction: str, moved_bytes: int, pageable: bool, stream: int | None = None) -> Activity:
        """`cudaMemcpyAsync` between host and device.

        One of pageable memory waits for what its stream had to do, goes through a buffer of the driver's and returns
        when the last piece is there. A small one (64 KiB) to the device is taken along by the call itself.
        """
        stream = stream or self.stream
        host_side = "Pageable" if pageable else "Pinned"
        name = {
            "h2d": f"Memcpy HtoD ({host_side} -> Device)",
            "d2h": f"Memcpy DtoH (Device -> {host_side})",
            "d2d": "Memcpy DtoD (Device -> Device)",
        }[direction]
        dur = self.device.copy_ns(moved_bytes, pageable)
        if direction == "d2d":
            dur = 1_000 + round(2 * moved_bytes / (self.device.gpu.bytes_per_s * 0.8) * 1e9)
        waits = pageable and direction != "d2d" and (direction == "d2h" or moved_bytes > 64 * 1024)
        until = 0
        if waits:
            begins = max(self.host.now + self.host.costs.launch, self.device.idle_at(stream))
            until = begins + dur + TAIL_NS
        call = self._call("cudaMemcpyAsync", self.host.costs.launch + 1 * US, until)
        args = {"bytes": moved_bytes, "memory bandwidth (GB/s)": 0.0}
        engine = direction if direction != "d2d" else None
        made = self._put(call, "memcpy", name, stream, dur, args, engine=engine)
        if waits and made.end_ns > call.end_ns:  # it took longer than foreseen
            self.host.now = max(self.host.now, made.end_ns + 1 * US)
            self._stretch(call, made.end_ns + 800)
        return made

    def _stretch(self, call: Call, end_ns: int) -> None:
        for event in reversed(self.host.events[-3:]):
            if event.args.get("correlation") == call.correlation and event.category == "cuda_runtime":
                event.dur_ns = end_ns - call.start_ns
        call.waited_ns += end_ns - call.end_ns
        call.end_ns = end_ns

    # -- waiting -------------------------------------------------------------------------------------------------

    def synchronize(self, stream: int | None = None) -> Call:
        """Waits for a stream, or for the whole device."""
        return self._wait("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize", stream)

    def _wait(self, name: str, stream: int | None, work_ns: int = 2_000) -> Call:
        done = self.device.idle_at(stream)
        return self._call(name, work_ns, done + self.host.jitter(TAIL_NS, 0.15) if done > self.host.now else 0)

    def record_event(self, stream: int | None = None) -> int:
        """`cudaEventRecord`: gives when the event will be done."""
        self._call("cudaEventRecord", self.host.costs.call)
        return self.device.idle_at(stream or self.stream)

    def wait_event(self, done_ns: int, stream: int | None = None) -> None:
        """`cudaStreamWaitEvent`: what comes next on the stream waits for the event."""
        self._call("cudaStreamWaitEvent", self.host.costs.call)
        stream = stream or self.stream
        self.device.barriers[stream] = max(self.device.barriers.get(stream, 0), done_ns)

    def synchronize_event(self, done_ns: int) -> Call:
        """`cudaEventSynchronize`: the host waits for the event."""
        until = done_ns + TAIL_NS if done_ns > self.host.now else 0
        return self._call("cudaEventSynchronize", 2_000, until)

    # -- memory --------------------------------------------------------------------------------------------------

    def malloc(self, moved_bytes: int) -> Call:
        """`cudaMalloc`: longer for more."""
        return self._call("cudaMalloc", 90 * US + moved_bytes / 2**20 * 200)

    def free(self) -> Call:
        """`cudaFree`: waits for the device first."""
        done = self.device.idle_at()
        work = self.host.jitter(0.25 * MS)
        return self._call("cudaFree", work, max(done, self.host.now) + work)
