"""The settings that decide speed, and the environment, read at the end of the run."""

from __future__ import annotations

import functools
import gc
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from gpudoctor.recorder import machine, torch_private

FILE = "settings.json"

_ENVIRONMENT = (
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_VISIBLE_DEVICES",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "LD_PRELOAD",
    "MALLOC_CONF",
    "MKL_NUM_THREADS",
    "NCCL_P2P_DISABLE",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
    "TORCH_LOGS",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_TRACE",
    "TRITON_CACHE_DIR",
    "XLA_FLAGS",
)
_ENVIRONMENT_PREFIXES = (
    "NCCL_",
    "TORCHDYNAMO_",
    "TORCHINDUCTOR_",
    "TORCH_NCCL_",
    "TORCH_COMPILE_",
    "TORCH_DISTRIBUTED_",
)
"""Of these only what is set."""

_FROM_ENVIRONMENT = {
    "num_threads": ("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    "float32_matmul_precision": ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",),
    "cuda.matmul.allow_tf32": ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",),
    "dynamo.suppress_errors": ("TORCHDYNAMO_SUPPRESS_ERRORS",),
    "dynamo.disable": ("TORCH_COMPILE_DISABLE", "TORCHDYNAMO_DISABLE"),
    "inductor.max_autotune": ("TORCHINDUCTOR_MAX_AUTOTUNE",),
    "inductor.max_autotune_gemm": ("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",),
    "inductor.coordinate_descent_tuning": ("TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",),
    "inductor.fx_graph_cache": ("TORCHINDUCTOR_FX_GRAPH_CACHE",),
    "inductor.force_disable_caches": ("TORCHINDUCTOR_FORCE_DISABLE_CACHES",),
    "inductor.freezing": ("TORCHINDUCTOR_FREEZING",),
    "inductor.compile_threads": ("TORCHINDUCTOR_COMPILE_THREADS",),
    "inductor.cpp_wrapper": ("TORCHINDUCTOR_CPP_WRAPPER",),
    "inductor.emulate_precision_casts": ("TORCHINDUCTOR_EMULATE_PRECISION_CASTS",),
}
"""Variables that torch takes a setting's first value from."""

_DEFAULTS = {
    "float32_matmul_precision": "highest",
    "cuda.matmul.allow_tf32": "False",
    "cuda.matmul.allow_fp16_accumulation": "False",
    "cudnn.enabled": "True",
    "cudnn.allow_tf32": "True",
    "cudnn.benchmark": "False",
    "cudnn.deterministic": "False",
    "mkldnn.enabled": "True",
    "deterministic_algorithms": "False",
    "deterministic_algorithms.warn_only": "False",
    "anomaly_mode": "False",
    "autograd_profiler": "False",
    "default_dtype": "float32",
    "default_device": "cpu",
    "gc.enabled": "True",
    "sdp.flash": "True",
    "sdp.mem_efficient": "True",
    "sdp.math": "True",
    "sdp.cudnn": "True",
}
"""Values that torch starts with, where that does not depend on the machine or the version."""

_DYNAMO = (
    "suppress_errors",
    "recompile_limit",
    "cache_size_limit",  # its name before 2.7
    "accumulated_recompile_limit",
    "fail_on_recompile_limit_hit",
    "automatic_dynamic_shapes",
    "assume_static_by_default",
    "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops",
    "compiled_autograd",
    "optimize_ddp",
    "disable",
)
_INDUCTOR = (
    "max_autotune",
    "max_autotune_gemm",
    "coordinate_descent_tuning",
    "epilogue_fusion",
    "shape_padding",
    "fx_graph_cache",
    "force_disable_caches",
    "freezing",
    "cpp_wrapper",
    "emulate_precision_casts",
    "compile_threads",
    "triton.cudagraphs",
)

Reader = Callable[[], Any]


def _readers() -> dict[str, Reader]:
    backends: Any = torch.backends
    sharing: Any = torch.multiprocessing
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "cuda.matmul.allow_tf32": lambda: backends.cuda.matmul.allow_tf32,
        "cuda.matmul.allow_fp16_accumulation": lambda: backends.cuda.matmul.allow_fp16_accumulation,
        "cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": lambda: (
            backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        **{f"{place}fp32_precision".lstrip("."): _precision(place) for place in _PRECISION.values()},
        "cudnn.enabled": lambda: backends.cudnn.enabled,
        "cudnn.allow_tf32": lambda: backends.cudnn.allow_tf32,
        "cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "cudnn.benchmark_limit": lambda: backends.cudnn.benchmark_limit,
        "cudnn.deterministic": lambda: backends.cudnn.deterministic,
        "mkldnn.enabled": lambda: backends.mkldnn.enabled,
        "sdp.flash": backends.cuda.flash_sdp_enabled,
        "sdp.mem_efficient": backends.cuda.mem_efficient_sdp_enabled,
        "sdp.math": backends.cuda.math_sdp_enabled,
        "sdp.cudnn": backends.cuda.cudnn_sdp_enabled,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "deterministic_algorithms.warn_only": torch.is_deterministic_algorithms_warn_only_enabled,
        "anomaly_mode": torch.is_anomaly_enabled,
        "autograd_profiler": torch_private.profiler_running,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "default_device": lambda: str(torch.get_default_device()),
        "num_threads": torch.get_num_threads,
        "num_interop_threads": torch.get_num_interop_threads,
        "multiprocessing.sharing_strategy": sharing.get_sharing_strategy,
        "gc.enabled": gc.isenabled,
        "gc.threshold": gc.get_threshold,
        **_config("dynamo", "torch._dynamo.config", _DYNAMO),
        **_config("inductor", "torch._inductor.config", _INDUCTOR),
    }


_PRECISION = {
    ("generic", "all"): "",
    ("cuda", "matmul"): "cuda.matmul.",
    ("cuda", "all"): "cudnn.",
    ("cuda", "conv"): "cudnn.conv.",
    ("cuda", "rnn"): "cudnn.rnn.",
    ("mkldnn", "all"): "mkldnn.",
    ("mkldnn", "matmul"): "mkldnn.matmul.",
    ("mkldnn", "conv"): "mkldnn.conv.",
    ("mkldnn", "rnn"): "mkldnn.rnn.",
}
"""Where the precision API of torch 2.9 keeps its flags, by the backend and operation that its C functions take."""


def precision_name(backend: str = "generic", operation: str = "all", *_: Any) -> str:
    """Name of the setting that `torch._C._set_fp32_precision_setter(backend, operation, …)` sets."""
    return f"{_PRECISION.get((backend, operation), f'{backend}.{operation}.')}fp32_precision"


def _precision(place: str) -> Reader:
    return lambda: functools.reduce(getattr, [*place.split(".")[:-1], "fp32_precision"], torch.backends)


def _config(label: str, module: str, names: Sequence[str]) -> dict[str, Reader]:
    """Readers of a config module, if the run has imported it; asking would import the compiler."""
    loaded = sys.modules.get(module)
    if loaded is None:
        return {}
    return {
        f"{label}.{name}": functools.partial(functools.reduce, getattr, name.split("."), loaded)
        for name in names
        if hasattr(loaded, name.split(".", maxsplit=1)[0])
    }


def read(set_by: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the `settings` table.

    Args:
        set_by: where the user's code set something, by setting name: `{file, line}`.

    A flag that refuses to be read is left out: the old TF32 flags do once the script has used the precision API of
    torch 2.9. Others warn that they are deprecated; that is no news for the user, who did not ask.
    """
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, reader in _readers().items():
            try:
                value = str(reader())
            except Exception:  # a refusing flag is not measured; nothing else depends on it
                continue
            site = set_by.get(name, {})
            row = {"name": name, "value": value, "file": site.get("file"), "line": site.get("line")}
            rows.append(row | {"source": _source(name, value, site)})
    return rows + _environment()


def _source(name: str, value: str, site: dict[str, Any]) -> str | None:
    if site:
        return "script"
    if any(os.environ.get(variable) is not None for variable in _FROM_ENVIRONMENT.get(name, ())):
        return "environment"
    default = _default(name)
    return None if default is None else "default" if value == default else "changed"


def _default(name: str) -> str | None:
    """The value that torch starts with; None when nobody can tell."""
    label, _, key = name.partition(".")
    module = sys.modules.get(f"torch._{label}.config") if label in ("dynamo", "inductor") else None
    if module is None:
        return _DEFAULTS.get(name)
    try:
        return str(torch_private.config_default(module, key))
    except (AttributeError, KeyError, LookupError):
        return None


def _environment() -> list[dict[str, Any]]:
    begun = _begun_environment()
    more = (name for name in os.environ if name.startswith(_ENVIRONMENT_PREFIXES))
    rows = []
    for name in [*_ENVIRONMENT, *sorted(set(more) - set(_ENVIRONMENT))]:
        value = os.environ.get(name)
        known = begun is None or begun.get(name) == value
        source = None if value is None else "environment" if known else "changed"
        rows.append({"name": f"env.{name}", "value": value, "source": source})
    return rows


def _begun_environment() -> dict[str, str] | None:
    """The environment that the process was started in; None where the system does not tell."""
    try:
        content = Path("/proc/self/environ").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)


def save(folder: Path, set_by: dict[str, dict[str, Any]], ratios: dict[str, float]) -> None:
    """Writes `settings.json`: the rows and the environment.

    Args:
        folder: the rank's folder.
        set_by: as in `read`.
        ratios: in which share of the backward calls a mode was on, by name; rows of their own.
    """
    shares = [{"name": name, "value": f"{ratio:.4f}"} for name, ratio in ratios.items()]
    content = {"settings": read(set_by) + shares, "environment": machine.facts(), "argv": sys.argv}
    (folder / FILE).write_text(json.dumps(content, default=str), encoding="utf-8")
