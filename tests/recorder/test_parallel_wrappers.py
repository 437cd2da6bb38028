"""Where wrappers are constructed; devices are those that the constructor took."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from gpudoctor.recorder import parallel_wrappers
from gpudoctor.recorder.patches import Patches
from gpudoctor.userfiles import UserFiles


class Log:
    def __init__(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def add(self, *row: Any) -> None:
        self.rows.append(row)


@pytest.fixture
def log() -> Any:
    patches, made = Patches(), Log()
    files = UserFiles(str(Path(__file__).parent))
    parallel_wrappers.install(patches, made, files, lambda: True)  # type: ignore[arg-type]
    yield made
    patches.undo()


class Own(nn.DataParallel[nn.Module]):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)


def test_a_subclass_is_constructed_where_it_is_called(log: Log) -> None:
    model = nn.Linear(3, 3)
    model.bias.requires_grad_(False)
    Own(model)
    ((kind, row),) = log.rows
    assert (kind, row["kind"], row["parameters"]) == ("R", "DataParallel", 1)
    assert row["line"] == test_a_subclass_is_constructed_where_it_is_called.__code__.co_firstlineno + 3
