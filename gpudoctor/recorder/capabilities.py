"""Which instruments work with the installed torch: each private or young API looked for once, by name."""

from __future__ import annotations

import importlib
import importlib.util
import logging

import torch

from gpudoctor.recorder import torch_private

MEASURED = "measured"


def _cuda() -> bool:
    return torch.cuda.is_available()


def probe() -> dict[str, str]:
    """For each instrument "measured", or "not measured: why"."""
    checks: dict[str, tuple[bool, str]] = {
        "steps by optimizer": (
            hasattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_post_hook"),
            "torch.optim has no global step hook",
        ),
        "steps by backward": (
            torch_private.engine_entry() is not None,
            "torch.autograd starts its engine elsewhere",
        ),
        "skipped scaler steps": (
            hasattr(torch.amp.GradScaler, "_maybe_opt_step"),
            "GradScaler steps optimizers elsewhere",
        ),
        "input pipeline": (torch_private.loader_iterator is not None, "DataLoader's iterator has moved"),
        "dataset and collate time": (bool(torch_private.fetchers), "DataLoader's fetchers have moved"),
        "user lines": (
            torch_private.record_function_fast is not None,
            "this torch has no fast RecordFunction for Python",
        ),
        "compile log": (
            torch_private.trace_formatter() is not None and logging.getLogger("torch.__trace") is not None,
            "this torch has no structured compile log",
        ),
        "profiles beside the script's own": (
            hasattr(torch.autograd.profiler.profile, "_prepare_trace"),
            "the script's own profiler cannot be noticed",
        ),
        "module paths": (
            torch_private.record_function_fast is not None and torch_private.module_call_code is not None,
            "nn.Module calls its forward elsewhere, or there is no fast RecordFunction",
        ),
        "gpu activity": (_cuda(), "no usable GPU"),
        "gpu memory after each step": (
            _cuda() and hasattr(torch.cuda.memory, "memory_stats_as_nested_dict"),
            "no usable GPU, or this torch's allocator tells no statistics",
        ),
        "gpu allocator history": (
            _cuda() and hasattr(torch_private.cuda_memory, "_record_memory_history"),
            "no usable GPU, or this torch cannot record it",
        ),
        "gpu clocks and throttling": (
            _cuda() and importlib.util.find_spec("pynvml") is not None,
            "no usable GPU, or nvidia-ml-py is not installed",
        ),
    }
    return {name: MEASURED if works else f"not measured: {why}" for name, (works, why) in checks.items()}
