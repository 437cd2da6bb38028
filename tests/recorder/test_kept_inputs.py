from __future__ import annotations

import enum
from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from gpudoctor.recorder.kept_inputs import HELD_BYTES, CannotKeepError, KeptInputs

Pair = namedtuple("Pair", "left right")


class Mode(enum.Enum):
    FAST = 1


@dataclass(frozen=True)
class Batch:
    ids: torch.Tensor
    mode: Mode


def test_small_tensors_and_plain_values_are_the_real_ones_in_their_containers() -> None:
    ids = torch.arange(6).view(2, 3)
    given = ([ids, None, 2.5], Pair(ids, "x"), OrderedDict(a=ids), Batch(ids, Mode.FAST))
    kept = KeptInputs(given, {"dtype": torch.float16, "nested": {"deep": (ids,)}})
    args, kwargs = kept.make()
    assert args[0][0] is ids
    assert args[0][1:] == [None, 2.5]
    assert isinstance(args[1], Pair)
    assert args[1].left is ids
    assert isinstance(args[2], OrderedDict)
    assert isinstance(args[3], Batch)
    assert args[3].ids is ids
    assert args[3].mode is Mode.FAST
    assert kwargs == {"dtype": torch.float16, "nested": {"deep": (ids,)}}
    assert kept.remade == 0


def test_a_tensor_of_a_graph_is_made_anew_and_its_graph_is_let_go() -> None:
    weight = torch.ones(3, requires_grad=True)
    hidden = weight * 2
    kept = KeptInputs((hidden,), {})
    reference = torch._C._WeakTensorRef(hidden)
    del hidden
    assert reference.expired()
    ((made,), _) = kept.make()
    assert (made.shape, made.dtype, made.requires_grad, made.is_leaf) == ((3,), torch.float32, True, True)
    assert kept.remade == 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(HELD_BYTES // 4 + 1),
        torch.empty(2, 3, 1024, 1024).to(memory_format=torch.channels_last),
        torch.zeros(HELD_BYTES + 1, dtype=torch.bool),
        torch.empty(HELD_BYTES // 4 + 8)[:4],
        torch.empty(1, HELD_BYTES // 4 + 1).expand(3, -1),
        torch.empty(HELD_BYTES // 8 + 1, dtype=torch.complex64),
    ],
    ids=["floats", "channels last", "booleans", "view of much memory", "expanded", "complex"],
)
def test_large_tensors_are_made_anew_with_their_shape_strides_and_dtype(tensor: torch.Tensor) -> None:
    kept = KeptInputs((tensor,), {})
    ((made,), _) = kept.make()
    assert (made.shape, made.stride(), made.dtype) == (tensor.shape, tensor.stride(), tensor.dtype)
    assert kept.remade == 1
    if tensor.dtype is torch.bool:
        assert not made.any()


def test_other_objects_are_used_while_they_live_and_missed_by_name_when_they_are_gone() -> None:
    layer = nn.Linear(2, 2)
    kept = KeptInputs((layer,), {})
    assert kept.make()[0] == (layer,)
    del layer
    with pytest.raises(CannotKeepError, match="its input of class Linear is gone"):
        kept.make()


def test_what_nobody_can_refer_to_cannot_be_kept() -> None:
    class Slots:
        __slots__ = ()

    with pytest.raises(CannotKeepError, match="Slots"):
        KeptInputs((Slots(),), {})
    with pytest.raises(CannotKeepError, match="values"):
        KeptInputs((list(range(20_000)),), {})
