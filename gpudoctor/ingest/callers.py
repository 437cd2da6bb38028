"""Who called an operator: what the Python functions around it say, and which of them are the user's."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpudoctor.ingest.def_lines import MODULE_LEVEL, DefLines
from gpudoctor.ingest.kineto import Table
from gpudoctor.ingest.nesting import Tree, nest

_THIN = (
    "torch/_jit_internal.py",
    "torch/_tensor.py",
    "torch/_tensor_str.py",
    "torch/functional.py",
    "torch/nn/functional.py",
)
"""Wrappers that only pass a call of the user's on: print(t), f"{t}", t.unique()."""

_OWNERS = (("torch/optim/", "torch.optim"), ("torch/utils/data/", "torch.utils.data"), ("torch/amp/", "torch.amp"))

_UNNAMED = "unknown"
"""What torch shows for a function whose name or file it cannot decode."""

_MODULE = "nn.Module: "
_READ = re.compile(r"<built-in method (cpu|tolist) of (?:Tensor|Parameter) object")

LIBRARIES = frozenset(
    word
    for line in (
        "accelerate aiter apex bitsandbytes datasets deepspeed diffusers einops fairscale fastai flash_attn flashinfer",
        "flax functorch habana_frameworks huggingface_hub hydra ignite intel_extension_for_pytorch jax kornia",
        "lightning_fabric liger_kernel megatron mmcv mmengine monai numpy omegaconf lightning onnxruntime pandas peft",
        "pytorch_lightning safetensors scipy sentence_transformers sglang sklearn tensorboard tensordict timm",
        "PIL ray tokenizers torch torch_geometric torch_xla torchao torchaudio torchdata torchmetrics torchrec",
        "torchtitan torchtune torchvision tqdm transformer_engine transformers triton trl vllm wandb",
        "webdataset xformers",
    )
    for word in line.split()
)
"""Packages whose files are not the user's in a trace that comes without the user's source files."""

_INSTALLED = re.compile(r"(?:^|/)(?:site-packages|dist-packages|lib/python3\.\d+)/|^<")


@dataclass(slots=True)
class Names:
    """What the recording knows about source files.

    Attributes:
        lines: for a line mark's id, `[file, line, function]`.
        sources: texts of the user's files, by name.
        shown: the user's file by the name that a trace shows.
        modules: for a module range's id, the module's path; None for one that has no own.
        guess: nothing is known of the user's files: every file that is no known library's counts as one.
    """

    lines: Sequence[Sequence[Any]] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict)
    modules: Sequence[str | None] = ()
    guess: bool = False
    defs: DefLines = field(init=False)

    def __post_init__(self) -> None:
        self.defs = DefLines(self.sources)

    def user_file(self, shown: str) -> str | None:
        """The user's file behind a name in a trace (torch shortens names by the search path); None for others."""
        if self.guess:
            return shown if is_users(shown) else None
        if shown in self.shown:
            return self.shown[shown]
        for name in sorted(self.sources) if not self.shown else ():
            if name == shown or name.endswith("/" + shown):
                return name
        return None


def is_users(file: str) -> bool:
    """Whether a file that a trace names can be the user's: not the standard library's, nor a known package's."""
    if not file or _INSTALLED.search(file):
        return False
    head = file.lstrip("/").split("/")[0].removesuffix(".py")
    return head not in LIBRARIES and (file.startswith("/") or head not in sys.stdlib_module_names)


@dataclass(frozen=True, slots=True)
class Place:
    """What one Python function's name says: `path(line): function`.

    Attributes:
        file, line, function: its parts, None where it has none.
        owner: user, torch.optim, …, library; None when only its caller can tell.
        user: the user's file.
        scope: the user's function, None for code that is in none.
        module: class of the nn.Module that it is a call of.
    """

    file: str | None = None
    line: int | None = None
    function: str | None = None
    owner: str | None = None
    user: str | None = None
    scope: str | None = None
    module: str | None = None


def place(name: str, names: Names, running: bool = False) -> Place:
    """Takes a function's name apart.

    Args:
        name: as the trace shows it.
        names: what is known of the user's files.
        running: the line is the one that ran, not the function's first.
    """
    if name == _UNNAMED:
        return Place(owner="user")
    if name.startswith(_MODULE):  # "nn.Module: Linear_3", numbered by first call
        return Place(function=name, owner="torch", module=name.removeprefix(_MODULE).rpartition("_")[0])
    head, _, function = name.rpartition(": ")
    file, _, number = head.rpartition("(")
    digits = number.rstrip(")")
    line = int(digits) if digits.isdigit() else None
    user = names.user_file(file) if file else None
    if user is not None:
        scope = None if function == MODULE_LEVEL else function
        if line is not None and not running:
            line = names.defs.first_line(user, line, function)
        return Place(user, line, function, "user", user, scope)
    owner = next((owner for folder, owner in _OWNERS if folder in file), None)
    if owner is None and not file.endswith(_THIN):
        owner = "torch" if file.startswith(("torch/", "<")) or "/torch/" in file else "library"
    return Place(file, line, function, owner)


@dataclass(slots=True)
class Callers:
    """The Python functions of a trace as a forest.

    Attributes:
        tree: functions, nested.
        code: name code of each, in the tree's order.
        places: what each name code says.
        reads: built-in methods that fetch a tensor's value and run no operator on a CPU: (row, "Tensor.cpu").
    """

    tree: Tree
    code: NDArray[np.int32]
    places: dict[int, Place]
    reads: list[tuple[int, str]]


def callers(python: Table, texts: Sequence[str], names: Names) -> Callers:
    """Reads the `python` table.

    Args:
        python: begin, length, thread and name of each Python function.
        texts: names by code.
        names: what is known of the user's files.
    """
    if not len(python):
        nothing = np.empty(0, np.int64)
        return Callers(nest(nothing, nothing, np.empty(0, np.int32)), np.empty(0, np.int32), {}, [])
    codes = np.unique(python["name"])
    read = {int(c): f"Tensor.{match[1]}" for c in codes if (match := _READ.match(texts[c]))}
    builtin = np.array([texts[c].startswith("<built-in") for c in codes], bool)
    # a built-in function only passes its caller on
    kept = ~np.isin(python["name"], codes[builtin])
    functions = python.take(kept)
    tree = nest(functions["start_ns"], functions["dur_ns"], functions["thread"])
    reads = []
    if read:
        rows = np.flatnonzero(np.isin(python["name"], list(read)))
        reads = [(int(row), read[int(python["name"][row])]) for row in rows]
    places = {int(code): place(texts[code], names) for code in codes[~builtin]}
    return Callers(tree, functions["name"][tree.order], places, reads)


@dataclass(slots=True)
class Called:
    """Who called each operator; positions in `Callers.tree`, -1 for nobody.

    Attributes:
        function: innermost function around it.
        owner: function that says who owns the call.
        user: innermost function of the user's.
        module: innermost call of an nn.Module.
    """

    function: NDArray[np.int32]
    owner: NDArray[np.int32]
    user: NDArray[np.int32]
    module: NDArray[np.int32]


def who_called(
    found: Callers, thread: NDArray[np.int32], start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> Called:
    """The functions around each operator."""
    tree = found.tree
    function = tree.enclosing(thread, start_ns, end_ns)
    if not len(tree.order):
        return Called(function, function, function, function)
    position = np.arange(len(tree.order), dtype=np.int32)

    def nearest(has: set[int]) -> NDArray[np.int32]:
        own = np.where(np.isin(found.code, list(has)), position, -1).astype(np.int32)
        near = tree.inherit(own)
        return np.where(function >= 0, near[function], -1).astype(np.int32)

    places = found.places
    return Called(
        function,
        nearest({code for code, place in places.items() if place.owner is not None}),
        nearest({code for code, place in places.items() if place.user is not None and place.line is not None}),
        nearest({code for code, place in places.items() if place.module is not None}),
    )
