from __future__ import annotations

import pytest

from gpudoctor.analysis import conv_sites


def found(code: str) -> list[tuple[int, str | None]]:
    return [(row["line"], row["attribute"]) for row in conv_sites.rows({"t.py": code})]


@pytest.mark.parametrize(
    ("code", "there"),
    [
        ("nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))", True),
        ("[Conv1d(1, 2, 3, padding=1), BatchNorm1d(2), ReLU()]", True),
        ("c = nn.Conv2d(1, 2, 3)\nnn.Sequential(c, nn.SyncBatchNorm(2))", True),
        ("nn.Sequential(nn.Conv2d(1, 2, 3, bias=True), nn.BatchNorm2d(2))", True),
        ("nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2))", False),
        ("nn.Sequential(nn.Conv2d(1, 2, 3, bias=flag), nn.BatchNorm2d(2))", False),
        ("nn.Sequential(nn.Conv2d(**settings), nn.BatchNorm2d(2))", False),
        ("nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.BatchNorm2d(2))", False),
        ("nn.Sequential(nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2))", False),
    ],
)
def test_a_list_names_those_right_in_front_of_a_batch_norm(code: str, there: bool) -> None:
    assert found(code) == ([(1, None)] if there else [])


def test_attributes_of_a_class_with_a_batch_norm_have_their_name() -> None:
    code = """class Block(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 2, 3)
        self.other, self.norm = nn.ConvTranspose1d(1, 2, 3), nn.BatchNorm2d(2)
class Head(nn.Module):
    def __init__(self):
        self.conv = nn.Conv2d(1, 2, 3)
"""
    assert found(code) == [(3, "conv"), (4, "other")]


def test_a_file_that_does_not_parse_has_none() -> None:
    assert found("class") == []
