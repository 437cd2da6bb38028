"""What the run ran on: versions, processor, GPUs, container, NUMA. No names of hosts or users."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Callable
from pathlib import Path

import torch

from gpudoctor.recorder import torch_private

_PACKAGES = ("triton", "numpy", "lightning", "transformers", "accelerate", "nvidia-ml-py")


def facts(touch_cuda: bool = False) -> dict[str, str]:
    """Facts by name, in the order to show them; what cannot be found out is left out.

    Args:
        touch_cuda: look at GPUs even if the process has not used CUDA yet (which may create a context). Never inside a
            user's script.
    """
    found: dict[str, str] = {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": _cpu_model(),
        "cores": str(cores()),
        "threads": str(torch.get_num_threads()),
    }
    readers: dict[str, Callable[[], str | None]] = {
        "memory": _memory,
        "numa nodes": _numa,
        "cpu capability": torch.backends.cpu.get_cpu_capability,
        "container": _container,
        "cuda of the build": lambda: torch.version.cuda,
        "hip of the build": lambda: torch.version.hip,
    }
    for package in _PACKAGES:
        readers[package] = lambda package=package: importlib.metadata.version(package)  # type: ignore[misc]
    if torch_private.cuda_initialized() or (touch_cuda and torch.cuda.is_available()):
        readers |= _gpu_readers()
    for name, read in readers.items():
        with contextlib.suppress(Exception):  # each fact for itself: one that a version lacks is left out
            value = read()
            if value:
                found[name] = value
    return found


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpu_readers() -> dict[str, Callable[[], str | None]]:
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = f"{properties.major}.{properties.minor}"
    return {
        "gpu": lambda: properties.name,
        "gpus": lambda: str(torch.cuda.device_count()),
        "gpu memory": lambda: f"{properties.total_memory / 2**30:.1f} GiB",
        "compute capability": lambda: capability,
        "architectures of the build": lambda: " ".join(torch.cuda.get_arch_list()),
        "cudnn": lambda: str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        "driver": _driver,
    }


def _driver() -> str | None:
    line = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    return next((word for word in line.split() if word[:1].isdigit() and "." in word), None)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.1f} GiB"


def _numa() -> str | None:
    nodes = list(Path("/sys/devices/system/node").glob("node[0-9]*"))
    return str(len(nodes)) if nodes else None


def _container() -> str | None:
    if Path("/.dockerenv").exists():
        return "docker"
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if os.environ.get("SINGULARITY_NAME") or os.environ.get("APPTAINER_NAME"):
        return "apptainer"
    return "slurm job" if os.environ.get("SLURM_JOB_ID") else None
