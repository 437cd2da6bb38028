"""How much of what enters a model in the detail steps is padding.

What counts as padding is what the script itself declares: ids equal to an embedding's `padding_idx`, and masks whose
meaning torch or transformers documents. Zeros alone say nothing. While a step runs, tensors are only referred to; they
are read when the profile has ended, between two steps: no operator, no wait and no random number falls into a step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpudoctor.userfiles import UserFiles

FILE = "padded_inputs.json"
HELD_BYTES = 16 << 20  # ids of a large batch have 4 MiB; nobody's memory is short by this much
MAX_INPUTS = 64  # of a burst: a model with more embeddings shows the same sequences in the first ones

TRUE_IS_PADDING = frozenset({"key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask"})
"""Arguments of torch's attention modules; boolean ones (nn.MultiheadAttention, nn.Transformer)."""
ONE_IS_KEPT = "attention_mask"
"""Argument of models of the transformers library: 1 for tokens, 0 for padding."""
MASKS = TRUE_IS_PADDING | {ONE_IS_KEPT}


@dataclass(slots=True)
class _Seen:
    """A tensor that will be read; `padding` is the value that means padding."""

    tensor: torch.Tensor
    version: int
    padding: int
    source: str
    number: int
    start_ns: int
    site: dict[str, Any]


class PaddedInputs:
    """Collects ids and masks of a burst, and counts the padding in them afterwards.

    Args:
        files: names the user's files.
        now: the recording's clock.

    Attributes:
        embeddings: number of the range of each module that has a `padding_idx`, by the module's identity.
    """

    def __init__(self, files: UserFiles, now: Callable[[], int]) -> None:
        self._files, self._now = files, now
        self.embeddings: dict[int, int] = {}
        self.forget()

    def forget(self) -> None:
        """A forked child starts without its parent's inputs."""
        self._rows: list[dict[str, Any]] = []
        self.begin_burst()

    def begin_burst(self) -> None:
        """What an abandoned burst saw is dropped."""
        self.embeddings.clear()
        self._seen: list[_Seen] = []
        self._known: set[tuple[int, int]] = set()
        self._left_bytes = HELD_BYTES

    def named(self, module: Any, number: int) -> None:
        """A module is called for the first time in the burst; its range has that number."""
        if isinstance(module, torch.nn.Embedding) and isinstance(module.padding_idx, int):
            self.embeddings[id(module)] = number

    def entered(self, frame: FrameType, number: int) -> None:
        """A module with a `padding_idx`, or one that gets a mask, is called.

        Args:
            frame: that of `nn.Module.__call__`.
            number: the number of the module's range.
        """
        module, args, kwargs = (frame.f_locals[name] for name in ("self", "args", "kwargs"))
        if id(module) in self.embeddings and (args or "input" in kwargs):
            ids = args[0] if args else kwargs["input"]
            self._keep(ids, module.padding_idx, "ids", number, frame)
        for name in MASKS.intersection(kwargs):
            of_transformers = any(base.__module__.startswith("transformers.") for base in type(module).__mro__)
            if name == ONE_IS_KEPT and of_transformers:
                self._keep(kwargs[name], 0, "mask", number, frame)
            of_torch = type(module).__module__.startswith("torch.nn.")
            if name in TRUE_IS_PADDING and of_torch and getattr(kwargs[name], "dtype", None) is torch.bool:
                self._keep(kwargs[name], 1, "mask", number, frame)

    def _keep(self, tensor: Any, padding: int, source: str, number: int, frame: FrameType) -> None:
        if type(tensor) is not torch.Tensor or tensor.dim() < 2 or tensor.is_inference() or tensor.is_floating_point():
            return
        # inside of a model masks become one of pairs of positions, with four dimensions
        flat = source == "ids" or tensor.dim() == 2
        if not flat or tensor.layout is not torch.strided or len(self._seen) >= MAX_INPUTS:
            return
        key, size = (id(tensor), tensor._version), tensor.numel() * tensor.element_size()
        if key in self._known or size > self._left_bytes:
            return
        self._known.add(key)
        self._left_bytes -= size
        site = self._files.site(frame.f_back)
        self._seen.append(_Seen(tensor, tensor._version, padding, source, number, self._now(), site))

    def count(self, paths: list[str | None]) -> None:
        """Reads what was kept; no profiler runs.

        Args:
            paths: the module path of each range.
        """
        seen, self._seen = self._seen, []
        self.begin_burst()
        for one in seen:
            values = _values(one)
            if values is None:
                continue
            lengths, width = kept_lengths(values != one.padding), values.shape[-1]
            self._rows.append(
                {
                    "start_ns": one.start_ns,
                    "source": one.source,
                    "module": paths[one.number] if one.number < len(paths) else None,
                    **{name: one.site.get(name) for name in ("file", "line", "function")},
                    "rows": len(lengths),
                    "width": width,
                    "padded": int(len(lengths) * width - lengths.sum()),
                    "shortest": int(lengths.min()),
                    "longest": int(lengths.max()),
                }
            )

    def save(self, folder: Path) -> None:
        """Writes `padded_inputs.json`."""
        (folder / FILE).write_text(json.dumps(self._rows), encoding="utf-8")


def _values(seen: _Seen) -> NDArray[Any] | None:
    """What the tensor held when the module got it, as rows of positions; None when that is not known any more."""
    tensor = seen.tensor
    if tensor._version != seen.version or not tensor.numel():
        return None
    try:
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        values: NDArray[Any] = tensor.detach().cpu().numpy()
    except (RuntimeError, TypeError):  # a tensor without values: meta, fake
        return None
    return values.reshape(-1, values.shape[-1])


def kept_lengths(kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Length of each row from its first to its last kept position: a gap inside a sequence is no padding.

    Args:
        kept: rows × positions.
    """
    width = kept.shape[1]
    spans = width - kept.argmax(axis=1) - kept[:, ::-1].argmax(axis=1)
    return np.where(kept.any(axis=1), spans, 0).astype(np.int64)
