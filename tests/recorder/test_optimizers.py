from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gpudoctor.recorder import optimizers
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
    optimizers.install(patches, made, UserFiles(str(Path(__file__).parent)), lambda: True)  # type: ignore[arg-type]
    yield made
    patches.undo()


class Plain(torch.optim.Optimizer):
    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})


def weights(count: int = 2) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(3)) for _ in range(count)]


def test_the_constructors_line_and_what_it_was_told(log: Log) -> None:
    torch.optim.AdamW(weights(), foreach=False)
    line = test_the_constructors_line_and_what_it_was_told.__code__.co_firstlineno + 1
    ((kind, row),) = log.rows
    assert (kind, row["kind"], row["of_torch"], row["line"]) == ("Z", "AdamW", True, line)
    assert (row["foreach"], row["fused"], row["capturable"]) == (False, None, False)
    assert (row["parameters"], row["elements"]) == (2, 6)


def test_a_class_of_the_users_is_constructed_where_it_is_called_not_in_its_own_constructor(log: Log) -> None:
    Plain(weights(1))
    line = log.rows[0][1]["line"]
    first = test_a_class_of_the_users_is_constructed_where_it_is_called_not_in_its_own_constructor.__code__
    assert line == first.co_firstlineno + 1
    assert (log.rows[0][1]["of_torch"], log.rows[0][1]["foreach"]) == (False, None)


def test_a_constructor_that_fails_fails_as_before_and_is_not_noted(log: Log) -> None:
    with pytest.raises(ValueError, match="empty parameter list"):
        torch.optim.SGD([])
    assert log.rows == []
