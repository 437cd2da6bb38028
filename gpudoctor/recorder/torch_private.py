"""Every private torch API that recording relies on, looked up once. What is missing is None and its use is skipped.

Names were checked in the sources of torch 2.7.1, 2.9.1, 2.11.0 and run on 2.13.0.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.autograd
import torch.autograd.graph
import torch.cuda.memory
import torch.optim.optimizer
import torch.profiler
import torch.utils.data.dataloader as _dataloader
from torch.utils.data._utils import fetch as _fetch

AUTOGRAD_FILE: str = torch.autograd.__file__
"""File name given to code objects that Dynamo must treat as torch's own and never trace."""

record_function_fast: Any = getattr(getattr(torch._C, "_profiler", None), "_RecordFunctionFast", None)
module_call_code: Any = getattr(torch.nn.Module.__call__, "__code__", None)
loader_iterator: Any = getattr(_dataloader, "_BaseDataLoaderIter", None)
fetchers: list[Any] = [
    cls for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher") if (cls := getattr(_fetch, name, None))
]


def engine_entry() -> Callable[..., Any] | None:
    """`torch.autograd._engine_run_backward`, which `.backward()` and `autograd.grad` both call."""
    return getattr(torch.autograd, "_engine_run_backward", None)


def engine_flags(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, bool, bool]:
    """Of a call of the engine entry: the outputs, whether the gradients get a graph, whether they are accumulated."""
    outputs = args[0] if args else ()
    creates_graph = bool(args[3]) if len(args) > 3 else bool(kwargs.get("create_graph", False))
    return outputs, creates_graph, bool(kwargs.get("accumulate_grad", False))


def accumulated_leaf(node: Any) -> Any | None:
    """The tensor whose gradient an AccumulateGrad node adds to; None for other nodes."""
    return getattr(node, "variable", None) if node.name() == "torch::autograd::AccumulateGrad" else None


def sequence_number() -> int | None:
    """Number of the next autograd node that this thread makes; None where torch does not tell."""
    read = getattr(torch.autograd, "_get_sequence_nr", None)
    return int(read()) if read is not None else None


def random_position() -> tuple[Any, ...] | None:
    """Where the default generators of the CPU, of the current GPU, of Python and NumPy stand; None where not told.

    No operator runs for it, and nothing waits for a device: the state is a block of host memory.
    """
    try:
        state = torch.default_generator.get_state()
        position: tuple[Any, ...] = (ctypes.string_at(state.data_ptr(), state.numel() * state.element_size()),)
        position += (random.getstate(),)
        if "numpy.random" in sys.modules:
            drawn: Any = sys.modules["numpy.random"].get_state(legacy=False)
            position += (str(drawn["bit_generator"]), drawn["state"]["key"].tobytes(), drawn["state"]["pos"])
        if cuda_initialized():
            generator: Any = torch.cuda.default_generators[torch.cuda.current_device()]
            position += (generator.initial_seed(), generator.get_offset())
    except (AttributeError, IndexError, KeyError, RuntimeError):  # a generator that a CUDA graph captures, say
        return None
    return position


def transformed(tensor: Any) -> bool:
    """Whether a tensor stands for others inside of a function transform (vmap, grad); True where torch cannot tell."""
    ask = getattr(getattr(torch._C, "_functorch", None), "is_functorch_wrapped_tensor", None)
    return bool(ask(tensor)) if ask is not None else True


def without_overrides() -> Any:
    """While it is entered, attributes of tensors are read without the script's `__torch_function__`."""
    return torch._C.DisableTorchFunction()


def unseen_alias(tensor: Any) -> Any | None:
    """A tensor on the same memory and version counter, without a graph, made without a trace in any profile.

    None for subclasses, transformed and inference tensors, under dispatch modes, and where compiled code with CUDA
    graphs counts the references to its outputs.
    """
    silence = getattr(torch.autograd, "_enable_record_function", None)
    modes = getattr(torch._C, "_len_torch_dispatch_stack", None)
    counted = tensor.is_cuda and "torch._inductor.cudagraph_trees" in sys.modules
    if silence is None or modes is None or modes() or counted or type(tensor) is not torch.Tensor:
        return None
    if tensor.is_inference() or tensor.layout is not torch.strided or tensor.is_meta or transformed(tensor):
        return None
    silence(False)
    try:
        with torch._C.DisableTorchFunction():
            return tensor.detach()
    finally:
        silence(True)


def watched_in_forward() -> tuple[Any, str | None]:
    """Code that begins to save tensors under hooks; the file in which Dynamo begins to compile, None if not loaded."""
    enter = getattr(torch.autograd.graph.saved_tensors_hooks.__enter__, "__code__", None)
    return enter, getattr(sys.modules.get("torch._dynamo.convert_frame"), "__file__", None)


def optimizer_made() -> bool:
    """Whether an optimizer was constructed in this process: its class has its `step` hooked then."""
    todo = list(torch.optim.Optimizer.__subclasses__())
    while todo:
        cls = todo.pop()
        if getattr(cls.step, "hooked", False):
            return True
        todo += cls.__subclasses__()
    return False


def profiler_running() -> bool:
    """Whether some profiler session is active in this process."""
    return bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))


def cuda_initialized() -> bool:
    """Whether the process uses CUDA already; asking must not create a context."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


cuda_memory: Any = torch.cuda.memory
"""Home of the allocator's private history and snapshot functions."""


def config_default(module: Any, name: str) -> Any:
    """The value that an entry of torch's config modules starts with, on this machine and in this environment."""
    entry = module._config[name]
    for given in ("env_value_force", "env_value_default", "default"):
        value = getattr(entry, given)
        if repr(value) != "<no_default>" and type(value) is not object:
            return value
    raise KeyError(name)


def profiler_activities() -> set[Any]:
    """Activities that this build's profiler can record."""
    supported = getattr(torch.profiler, "supported_activities", None)
    return set(supported()) if supported is not None else set()


def history_enabled() -> bool:
    """Whether the CUDA allocator records its history already; False where torch cannot tell."""
    ask = getattr(torch._C, "_cuda_isHistoryEnabled", None)
    return bool(ask()) if ask is not None else False


def device_count() -> int:
    """GPUs that the process sees; 0 while it uses none."""
    return int(torch.cuda.device_count()) if cuda_initialized() else 0


def memory_statistics(device: int) -> Any:
    """The caching allocator's statistics as a nested mapping; read on the host."""
    read = getattr(torch._C, "_cuda_memoryStats", None)
    return read(device) if read is not None else torch.cuda.memory_stats_as_nested_dict(device)


def devices_in_use() -> list[tuple[int, str | None]]:
    """Index and UUID of each GPU on which this process has allocated; empty without CUDA."""
    found: list[tuple[int, str | None]] = []
    for device in range(device_count()):
        if torch.cuda.memory_reserved(device):
            uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
            found.append((device, str(uuid) if uuid is not None else None))
    return found


def dropped_prefixes() -> list[str]:
    """Paths that the profiler drops from file names, in its order (torch/profiler/python_tracer.py)."""
    try:
        from torch.profiler import python_tracer

        return [str(prefix) for prefix in python_tracer._prefix_regex()]
    except (ImportError, AttributeError):
        return []


def trace_formatter() -> Any | None:
    """The formatter that writes the TORCH_TRACE format."""
    from torch._logging import _internal

    formatter = getattr(_internal, "TorchLogsFormatter", None)
    return formatter(trace=True) if formatter is not None else None


@contextmanager
def counted_kernels() -> Iterator[list[int]]:
    """Counts, in a list of one number, the operators inside that compute; views and metadata do not."""
    from torch.utils._python_dispatch import TorchDispatchMode

    counted = [0]

    class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            counted[0] += not getattr(func, "is_view", False) and func.namespace != "prim"
            return func(*args, **(kwargs or {}))

    with Counting():  # type: ignore[no-untyped-call]
        yield counted


def compile_in_process() -> None:
    """Has Inductor compile in this process, without a pool of workers that would outlive it."""
    from torch._inductor import config

    config.compile_threads = 1


def hidden_from_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a callback so that Dynamo neither traces it nor breaks a graph on it.

    Dynamo is imported by the first `torch.compile` only (1.3 s); until then the callback runs as it is.
    """
    disabled: list[Callable[..., Any]] = []

    def call(*args: Any) -> Any:
        if not disabled and not _dynamo_ready():
            return function(*args)
        if not disabled:
            disable = getattr(torch, "_disable_dynamo", None)
            # a fresh function: disabling marks the one it is given, and bound methods cannot be marked
            disabled.append(disable(lambda *inner: function(*inner)) if disable else function)  # noqa: PLW0108
        return disabled[0](*args)

    as_torch_code(call)
    return call


def dynamo_disabled() -> bool:
    """Whether compiling is switched off for the whole process: by the environment, the config, or a stance."""
    if os.environ.get("TORCH_COMPILE_DISABLE") == "1" or os.environ.get("TORCHDYNAMO_DISABLE") == "1":
        return True
    if not _dynamo_ready():
        return False
    config, frames = sys.modules.get("torch._dynamo.config"), sys.modules.get("torch._dynamo.eval_frame")
    stance = getattr(getattr(frames, "_stance", None), "stance", "default")
    return bool(getattr(config, "disable", False)) or str(stance).startswith(("force_eager", "eager_"))


def dynamo_importing() -> bool:
    """Whether some thread imports Dynamo right now: a profiler session started meanwhile would import it as well."""
    return "torch._dynamo" in sys.modules and not _dynamo_ready()


def _dynamo_ready() -> bool:
    """Whether Dynamo is imported to the end. Another thread may be importing it: asking for it then can deadlock."""
    module = sys.modules.get("torch._dynamo")
    return module is not None and not getattr(module.__spec__, "_initializing", False)


def as_torch_code(function: Any) -> Any:
    """Gives a function's code object the file name of torch.autograd, which Dynamo skips by its rules."""
    function.__code__ = function.__code__.replace(co_filename=AUTOGRAD_FILE)
    return function


def compile_counters() -> dict[str, dict[str, int]] | None:
    """Dynamo's and Inductor's counters by group; None while Dynamo is not loaded."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if counters is None:
        return None
    return {
        str(group): {str(name): int(count) for name, count in counts.items() if isinstance(count, int)}
        for group, counts in dict(counters).items()
    }


def compile_caches() -> dict[str, bool | None]:
    """Whether each of the compiler's local caches is on; None where torch has no such setting, or did not load it."""
    inductor, functorch = sys.modules.get("torch._inductor.config"), sys.modules.get("torch._functorch.config")
    off = bool(getattr(inductor, "force_disable_caches", False)) or bool(getattr(inductor, "disable_caches", False))
    found: dict[str, bool | None] = {}
    for kind, module, name in (
        ("fx_graph", inductor, "fx_graph_cache"),
        ("aot_autograd", functorch, "enable_autograd_cache"),
    ):
        value = getattr(module, name, None)
        found[kind] = None if value is None else bool(value) and not off
    return found


def compile_cache_folder() -> str | None:
    """Where Inductor keeps its caches; None while it is not loaded. The folder is not made."""
    module = sys.modules.get("torch._inductor.runtime.cache_dir_utils")
    default = getattr(module, "default_cache_dir", None)
    return str(default()) if default is not None else None
