"""Counts the backward calls that a debugging mode was on in: a `with` block leaves no trace in settings read late."""

from __future__ import annotations

import torch

from gpudoctor.recorder import torch_private


class DebugModes:
    """Looks at the modes once a backward call; two C calls, well under a microsecond."""

    def __init__(self) -> None:
        self._calls = self._anomaly = self._profiler = 0

    def backward(self, profiling: bool) -> None:
        """A backward call is entered.

        Args:
            profiling: gpudoctor's own profiler runs.
        """
        self._calls += 1
        self._anomaly += torch.is_anomaly_enabled()
        self._profiler += torch_private.profiler_running() and not profiling

    def ratios(self) -> dict[str, float]:
        """By setting: the share of the backward calls in which it was on; empty when there was none."""
        if not self._calls:
            return {}
        return {
            "anomaly_mode.backward_ratio": self._anomaly / self._calls,
            "autograd_profiler.backward_ratio": self._profiler / self._calls,
        }
