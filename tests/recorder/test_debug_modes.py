from __future__ import annotations

import torch

from gpudoctor.recorder.debug_modes import DebugModes


def test_the_share_of_backward_calls_under_anomaly_detection_is_counted() -> None:
    modes = DebugModes()
    for number in range(4):
        with torch.autograd.set_detect_anomaly(number == 0):
            modes.backward(profiling=False)
    assert modes.ratios()["anomaly_mode.backward_ratio"] == 0.25


def test_gpudoctors_own_profiler_is_none_of_the_scripts() -> None:
    modes = DebugModes()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        modes.backward(profiling=True)
        modes.backward(profiling=False)
    assert modes.ratios()["autograd_profiler.backward_ratio"] == 0.5


def test_without_a_backward_call_nothing_is_said() -> None:
    assert DebugModes().ratios() == {}
