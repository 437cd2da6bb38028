"""Notes which line of the user's code changed a setting that decides speed.

torch's setters end in a few C functions; those are wrapped, so that every spelling (`torch.backends…`, `torch.set_…`,
a context manager) is seen. A change that torch makes for itself (Dynamo restores settings around a compile) is not the
user's, and setting what is set already is no change but is intent, so it counts.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch

from gpudoctor.recorder import settings
from gpudoctor.recorder.patches import Patches
from gpudoctor.userfiles import UserFiles

_C_SETTERS = {
    "_set_float32_matmul_precision": "float32_matmul_precision",
    "_set_cublas_allow_tf32": "cuda.matmul.allow_tf32",
    "_set_cublas_allow_fp16_accumulation": "cuda.matmul.allow_fp16_accumulation",
    "_set_cublas_allow_fp16_reduced_precision_reduction": "cuda.matmul.allow_fp16_reduced_precision_reduction",
    "_set_cublas_allow_bf16_reduced_precision_reduction": "cuda.matmul.allow_bf16_reduced_precision_reduction",
    "_set_deterministic_algorithms": "deterministic_algorithms",
    "_set_default_dtype": "default_dtype",
    "_set_sdp_use_flash": "sdp.flash",
    "_set_sdp_use_mem_efficient": "sdp.mem_efficient",
    "_set_sdp_use_math": "sdp.math",
    "_set_sdp_use_cudnn": "sdp.cudnn",
}
_TORCH_SETTERS = {
    "set_num_threads": "num_threads",
    "set_num_interop_threads": "num_interop_threads",
    "set_anomaly_enabled": "anomaly_mode",
    "set_default_device": "default_device",
}
_set_anomaly = torch.set_anomaly_enabled
_CUDNN_PROPERTIES = {
    "benchmark": "cudnn.benchmark",
    "deterministic": "cudnn.deterministic",
    "allow_tf32": "cudnn.allow_tf32",
    "enabled": "cudnn.enabled",
}
_PROFILERS = (torch.profiler.profile, torch.autograd.profiler.profile)
_INTERNAL = (
    "/torch/_dynamo/",
    "/torch/_inductor/",
    "/torch/_functorch/",
    "/torch/fx/",
    "/torch/profiler/",  # constructs the session of a profiler that was noted when the script made it
    os.path.join(os.path.dirname(os.path.abspath(__file__)), ""),  # a burst's profiler is no profiler of the script's
)


class SettingsWatch:
    """Remembers the last user's line that set each setting.

    Attributes:
        set_by: `{file, line, function}` by setting name.
    """

    def __init__(self, files: UserFiles, live: Callable[[], bool]) -> None:
        self._files, self._live = files, live
        self.set_by: dict[str, dict[str, object]] = {}

    def install(self, patches: Patches) -> None:
        """Wraps the setters that this torch has."""
        for owner, names in ((torch._C, _C_SETTERS), (torch, _TORCH_SETTERS)):
            for name, setting in names.items():
                setter = getattr(owner, name, None)
                if setter is not None:
                    patches.set(owner, name, self._wrapped(setter, lambda *_, setting=setting: setting))
        setter = getattr(torch._C, "_set_fp32_precision_setter", None)
        if setter is not None:  # one function for all backends and operations
            patches.set(torch._C, "_set_fp32_precision_setter", self._wrapped(setter, settings.precision_name))
        for name, setting in _CUDNN_PROPERTIES.items():
            descriptor = vars(type(torch.backends.cudnn)).get(name)
            if descriptor is not None and callable(getattr(descriptor, "setter", None)):
                patches.set(descriptor, "setter", self._wrapped(descriptor.setter, lambda *_, setting=setting: setting))
        for profiler in _PROFILERS:
            patches.set(profiler, "__init__", self._wrapped(profiler.__init__, lambda *_: "autograd_profiler"))

    def _wrapped(self, setter: Callable[..., Any], setting: Callable[..., str]) -> Callable[..., Any]:
        @functools.wraps(setter)
        def set_it(*args: Any, **kwargs: Any) -> Any:
            # leaving a `with detect_anomaly()` block is not what switched it on
            if self._live() and not (setter is _set_anomaly and args[:1] == (False,)):
                self._note(setting(*args), sys._getframe(1))
            return setter(*args, **kwargs)

        return set_it

    def _note(self, setting: str, frame: FrameType | None) -> None:
        while frame is not None and self._files.name(frame.f_code.co_filename) is None:
            if any(folder in frame.f_code.co_filename for folder in _INTERNAL):
                return
            frame = frame.f_back
        if frame is not None:
            self.set_by[setting] = self._files.site(frame)
