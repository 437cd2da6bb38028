"""What the recorder counts as padding in the inputs of modules, and that the step does not notice."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from gpudoctor.recorder.compile_targets import CompileTargets
from gpudoctor.recorder.line_marks import LineMarks
from gpudoctor.recorder.padded_inputs import HELD_BYTES, PaddedInputs
from gpudoctor.userfiles import UserFiles

Row = dict[str, Any]
IDS = torch.tensor([[5, 0, 7, 0, 0, 0], [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 0, 0]])


@pytest.fixture(autouse=True)
def no_tracer() -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


@pytest.fixture
def counted(tmp_path: Path) -> Callable[[Callable[[], Any]], list[Row]]:
    """Runs a function as in a detail step, and returns what was counted in it."""

    def run(body: Callable[[], Any]) -> list[Row]:
        files = UserFiles(str(Path(__file__).parent))
        marks = LineMarks(files, CompileTargets(files), padded=PaddedInputs(files, lambda: 0))
        marks.start()
        try:
            body()
        finally:
            marks.stop()
        marks.save(tmp_path)
        rows: list[Row] = json.loads((tmp_path / "padded_inputs.json").read_text())
        return rows

    return run


def test_ids_equal_to_padding_idx_at_the_ends_of_sequences(counted: Callable[..., list[Row]]) -> None:
    model = nn.Sequential(nn.Embedding(9, 4, padding_idx=0), nn.Linear(4, 2))
    (row,) = counted(lambda: model(IDS))
    assert (row["rows"], row["width"], row["source"], row["module"]) == (3, 6, "ids", "0")
    assert row["padded"] == 3 + 0 + 6, "the zero between 5 and 7 stands inside of its sequence"
    assert (row["shortest"], row["longest"]) == (0, 6)
    assert row["file"] == Path(__file__).name
    assert row["line"] is not None


def test_zeros_that_nobody_declared_to_be_padding_are_none(counted: Callable[..., list[Row]]) -> None:
    table = nn.Embedding(9, 4)
    assert counted(lambda: table(IDS)) == []


def test_padding_in_front_counts_as_well(counted: Callable[..., list[Row]]) -> None:
    table = nn.Embedding(9, 4, padding_idx=0)
    (row,) = counted(lambda: table(input=IDS.flip(1)))
    assert row["padded"] == 9


def test_a_key_padding_mask_of_torchs_attention_is_counted_once_however_many_layers_take_it(
    counted: Callable[..., list[Row]],
) -> None:
    attention = nn.ModuleList(nn.MultiheadAttention(4, 1, batch_first=True) for _ in range(2))
    hidden = torch.zeros(2, 6, 4)
    mask = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])

    def step() -> None:
        for layer in attention:
            layer(hidden, hidden, hidden, key_padding_mask=mask)

    (row,) = counted(step)
    assert (row["source"], row["padded"], row["shortest"], row["longest"]) == ("mask", 4, 2, 6)


def test_the_mask_of_a_transformer_encoder_is_counted(counted: Callable[..., list[Row]]) -> None:
    layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])
    (row,) = counted(lambda: encoder(torch.zeros(2, 6, 4), src_key_padding_mask=mask))
    assert row["padded"] == 4


class Own(nn.Module):
    """A user's own module: nobody documents what its mask means."""

    def forward(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return hidden * attention_mask


def test_a_mask_of_the_users_own_module_is_not_guessed_at(counted: Callable[..., list[Row]]) -> None:
    model = Own()
    assert counted(lambda: model(torch.ones(2, 6), attention_mask=torch.ones(2, 6, dtype=torch.long))) == []


def test_the_attention_mask_of_a_transformers_model_has_one_for_what_is_kept(
    counted: Callable[..., list[Row]],
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=9, pad_token_id=0, **sizes))
    mask = (IDS[:2] != 0).long()
    mask[0, 1] = 1
    rows = counted(lambda: model(input_ids=IDS[:2], attention_mask=mask))
    assert {(row["source"], row["padded"]) for row in rows} == {("ids", 3), ("mask", 3)}


def test_ids_that_changed_in_place_afterwards_are_not_counted(counted: Callable[..., list[Row]]) -> None:
    table, ids = nn.Embedding(9, 4, padding_idx=0), IDS.clone()

    def step() -> None:
        table(ids)
        ids.fill_(1)

    assert counted(step) == []


def test_ids_too_large_to_be_kept_are_not_counted(counted: Callable[..., list[Row]]) -> None:
    table, ids = nn.Embedding(9, 1, padding_idx=0), torch.zeros(2, HELD_BYTES // 16 + 1, dtype=torch.long)
    assert counted(lambda: table(ids)) == []


def test_neither_operators_nor_random_numbers_are_added_to_the_step(tmp_path: Path) -> None:
    table = nn.Embedding(9, 4, padding_idx=0)
    files = UserFiles(str(Path(__file__).parent))

    def operators(padded: PaddedInputs | None) -> list[str]:
        marks = LineMarks(files, CompileTargets(files), padded=padded)
        with profile(activities=[ProfilerActivity.CPU]) as session:
            marks.start()
            table(IDS)
            marks.stop()
        marks.save(tmp_path)
        return sorted(event.name for event in session.events() if not event.name.startswith("gpudoctor::"))

    before = torch.get_rng_state()
    assert operators(PaddedInputs(files, lambda: 0)) == operators(None)
    assert torch.equal(torch.get_rng_state(), before)
