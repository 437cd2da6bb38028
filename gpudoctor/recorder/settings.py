"""The settings that decide speed, and the environment, read at the end of the run."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from gpudoctor.recorder import machine

FILE = "settings.json"

_ENVIRONMENT = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "TORCH_LOGS",
    "TORCH_TRACE",
    "TORCH_COMPILE_DISABLE",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_SHOW_CPP_STACKTRACES",
    "NCCL_P2P_DISABLE",
    "NVIDIA_TF32_OVERRIDE",
)


def _readers() -> dict[str, Callable[[], Any]]:
    backends = torch.backends
    return {
        "float32_matmul_precision": torch.get_float32_matmul_precision,
        "cuda.matmul.allow_tf32": lambda: backends.cuda.matmul.allow_tf32,
        "cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "cuda.matmul.allow_bf16_reduced_precision_reduction": lambda: (
            backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
        "fp32_precision": lambda: getattr(backends, "fp32_precision"),  # noqa: B009 - newer than some supported torch
        "cudnn.enabled": lambda: backends.cudnn.enabled,
        "cudnn.allow_tf32": lambda: backends.cudnn.allow_tf32,
        "cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "cudnn.deterministic": lambda: backends.cudnn.deterministic,
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
        "anomaly_mode": torch.is_anomaly_enabled,
        "default_dtype": lambda: str(torch.get_default_dtype()).removeprefix("torch."),
        "num_threads": torch.get_num_threads,
        "num_interop_threads": torch.get_num_interop_threads,
        "gc.enabled": lambda: __import__("gc").isenabled(),
    }


def read(set_by: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the `settings` table.

    Args:
        set_by: where the user's code set something, by setting name: `{file, line}`.

    A flag that refuses to be read (the old TF32 flags do after the new precision API was used) is left out.
    """
    rows = []
    for name, reader in _readers().items():
        try:
            value = reader()
        except Exception:  # a refusing flag is not measured; nothing else depends on it
            continue
        site = set_by.get(name, {})
        rows.append({"name": name, "value": str(value), "file": site.get("file"), "line": site.get("line")})
    rows += [{"name": f"env.{name}", "value": os.environ.get(name)} for name in _ENVIRONMENT]
    return rows


def save(folder: Path, set_by: dict[str, dict[str, Any]]) -> None:
    """Writes `settings.json`: the rows and the environment."""
    content = {"settings": read(set_by), "environment": machine.facts(), "argv": sys.argv}
    (folder / FILE).write_text(json.dumps(content, default=str), encoding="utf-8")
