"""What the driver says about the GPUs in use, through nvidia-ml-py: clocks, throttling, power, other processes."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any


def rows(devices: Sequence[tuple[int, str | None]]) -> tuple[list[dict[str, Any]], str | None]:
    """Rows of the table `host` for the devices, and why there are none.

    Args:
        devices: index in this process and UUID of each GPU in use. CUDA_VISIBLE_DEVICES renumbers GPUs for CUDA, not
            for the driver, so a GPU is found by its UUID; by its index only when there is none.
    """
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return [], "nvidia-ml-py is not installed"
    try:
        nvml.nvmlInit()
    except Exception as error:  # no driver, or one of another version
        return [], f"the driver does not answer ({error})"
    found: list[dict[str, Any]] = []
    try:
        for index, uuid in devices:
            with contextlib.suppress(Exception):  # a GPU that went away: not measured
                found += _readings(nvml, index, _handle(nvml, index, uuid))
    finally:
        with contextlib.suppress(Exception):
            nvml.nvmlShutdown()
    return found, None if found else "the driver knows none of the GPUs in use"


def _handle(nvml: Any, index: int, uuid: str | None) -> Any:
    if uuid is None:
        return nvml.nvmlDeviceGetHandleByIndex(index)
    return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}")


def _readings(nvml: Any, index: int, handle: Any) -> list[dict[str, Any]]:
    throttling = "nvmlDeviceGetCurrentClocksEventReasons"  # its name since driver 535
    if not hasattr(nvml, throttling):
        throttling = "nvmlDeviceGetCurrentClocksThrottleReasons"
    readings: dict[str, Callable[[], float | None]] = {
        "sm_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
        "sm_clock_max_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,
        "memory_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
        "memory_clock_max_hz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM) * 1e6,
        "throttle_reasons": lambda: getattr(nvml, throttling)(handle),
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        "other_processes": lambda: _others(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),
    }
    found = []
    for name, read in readings.items():
        try:
            value = read()
        except Exception:  # not supported on this card or by this version: not measured
            continue
        if value is not None:
            found.append({"name": name, "device": index, "value": float(value)})
    return found


def _others(processes: Sequence[Any]) -> int | None:
    """Processes that are not this one; unknown in a container, where the driver has other numbers for them."""
    numbers = [process.pid for process in processes]
    return len(numbers) - 1 if os.getpid() in numbers else None
