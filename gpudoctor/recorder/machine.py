"""What the run ran on: versions, processor, GPUs, container, NUMA. No names of hosts or users."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from gpudoctor.recorder import torch_private

_PACKAGES = (
    "triton",
    "numpy",
    "torchvision",
    "torchaudio",
    "torchao",
    "lightning",
    "pytorch-lightning",
    "transformers",
    "accelerate",
    "deepspeed",
    "flash-attn",
    "xformers",
    "transformer-engine",
    "apex",
    "bitsandbytes",
    "nvidia-ml-py",
)
_CGROUP = Path("/sys/fs/cgroup")


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
        "machine cores": str(os.cpu_count() or 1),
        "threads": str(torch.get_num_threads()),
    }
    readers: dict[str, Callable[[], str | None]] = {
        "distribution": _distribution,
        "libc": lambda: " ".join(platform.libc_ver()).strip(),
        "memory": _memory,
        "memory limit": lambda: memory_limit(_CGROUP),
        "cpu limit": lambda: cpu_limit(_CGROUP),
        "shared memory": _shared_memory,
        "numa nodes": _numa,
        "cpu capability": torch.backends.cpu.get_cpu_capability,
        "cpu matrix units": _cpu_matrix_units,
        "cpu governor": lambda: _first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "huge pages": lambda: _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "virtual machine": _hypervisor,
        "container": _container,
        "debug build": lambda: "yes" if torch.version.debug else None,
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
    capability = (properties.major, properties.minor)
    others = {
        f"gpu {index}": lambda index=index: _gpu(index)
        for index in range(torch.cuda.device_count())
        if torch.cuda.device_count() > 1
    }
    return {
        "gpu": lambda: properties.name,
        "gpus": lambda: str(torch.cuda.device_count()),
        **others,
        "gpu memory": lambda: f"{properties.total_memory / 2**30:.1f} GiB",
        "compute capability": lambda: ".".join(map(str, capability)),
        "architectures of the build": lambda: " ".join(torch.cuda.get_arch_list()),
        "kernels for this gpu": lambda: kernels_for(capability, torch.cuda.get_arch_list()),
        "cudnn": lambda: str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "nccl": lambda: ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        "driver": _driver,
    }


def _gpu(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    return f"{properties.name}, {properties.total_memory / 2**30:.1f} GiB, {properties.major}.{properties.minor}"


def kernels_for(capability: tuple[int, int], architectures: Sequence[str]) -> str:
    """Whether a build of torch has code for a GPU.

    Args:
        capability: compute capability of the GPU.
        architectures: what the build was compiled for, e.g. sm_80, sm_90a, compute_90.
    """
    major, minor = capability
    built = [(kind, int(digits[:-1]), int(digits[-1])) for kind, digits in map(_architecture, architectures) if digits]
    if any(kind == "sm" and m == major and n <= minor for kind, m, n in built):
        return "in the build"
    if any(kind == "compute" and (m, n) <= capability for kind, m, n in built):
        return "compiled by the driver at first use (PTX)"
    return "none: this build of torch cannot run on this GPU"


def _architecture(name: str) -> tuple[str, str]:
    kind, _, digits = name.partition("_")
    return kind, digits.rstrip("af")


def cpu_limit(cgroup: Path) -> str | None:
    """CPUs that the container may use together, when that is limited (cgroup version 2)."""
    quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
    return None if quota == "max" else f"{int(quota) / int(period):g} cores"


def memory_limit(cgroup: Path) -> str | None:
    """Memory that the container may use, when that is limited (cgroup version 2)."""
    limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
    return None if limit == "max" else f"{int(limit) / 2**30:.1f} GiB"


def _shared_memory() -> str:
    """Loader workers hand batches over in it; a container's default of 64 MiB is soon full."""
    state = os.statvfs("/dev/shm")
    return f"{state.f_blocks * state.f_frsize / 2**30:.1f} GiB"


def _first_line(path: str) -> str | None:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return lines[0].strip() if lines else None


def _chosen(path: str) -> str | None:
    """The choice in brackets, e.g. `always [madvise] never`."""
    return (_first_line(path) or "").partition("[")[2].partition("]")[0] or None


def _distribution() -> str | None:
    return platform.freedesktop_os_release().get("PRETTY_NAME")


def _hypervisor() -> str | None:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    return "yes" if any("hypervisor" in line for line in text.splitlines() if line.startswith("flags")) else None


def _driver() -> str | None:
    line = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    return next((word for word in line.split() if word[:1].isdigit() and "." in word), None)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cpu_matrix_units() -> str | None:
    """Instructions for products in half precision: AMX works on tiles, AVX-512 on vectors (names as in Linux)."""
    known = ("amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16")
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("flags"):
            has = set(line.partition(":")[2].split())
            return ", ".join(name for name in known if name in has) or None
    return None


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
    if Path("/run/.containerenv").exists():
        return "podman"
    return "slurm job" if os.environ.get("SLURM_JOB_ID") else None
