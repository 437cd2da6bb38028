"""A snapshot with the problem of each memory rule, and one without: their pairs, as only a GPU shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.memory.gallery import LAYERS, MLP, STEP, Device, full_device
from tests.memory.snapshots import MIB, snapshot, write


def _written(device: Device, path: Path) -> Path:
    return write(path, snapshot(device.segments(), device.recorder.entries, expandable_segments=False))


def _model() -> Device:
    """Parameters that were there before the history began."""
    device = Device(40 << 30)
    for _ in range(LAYERS):
        device.alloc(28 * MIB, [], recorded=False)
    return device


def healthy(path: Path) -> Path:
    """A forward whose activations take a third, on a device with room."""
    device = _model()
    for _ in range(LAYERS):
        device.alloc(14 * MIB, MLP)
    return _written(device, path)


def activations(path: Path) -> Path:
    """A forward whose activations take nearly all."""
    device = _model()
    for _ in range(4 * LAYERS):
        device.alloc(64 * MIB, MLP)
    return _written(device, path)


def optimizer_state(path: Path) -> Path:
    """Two moments for each parameter, and nothing else."""
    device = _model()
    for _ in range(2 * LAYERS):
        device.alloc(28 * MIB, STEP)
    return _written(device, path)


Build = Callable[[Path], Path]
PAIRS: dict[str, tuple[Build, Build]] = {
    "GD501": (full_device, healthy),
    "GD503": (full_device, healthy),
    "GD506": (activations, healthy),
    "GD507": (optimizer_state, healthy),
}
"""Rule → problem and healthy twin."""
