"""Tensors are made where they are needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .edit_cases import Case, check, ids, keeps_its_promise

DEVICE = {"kind": "device"}
HEAD = "import torch\n"


def one(name: str, before: str, after: str | None = None) -> Case:
    return Case(name, f"{HEAD}{before}\n", 2, f"{HEAD}{after}\n" if after is not None else None)


CASES = [
    one("a range", "pos = torch.arange(t).to(ids.device)", "pos = torch.arange(t, device=ids.device)"),
    one("a keyword", "m = torch.ones(t, t).to(device=self.device)", "m = torch.ones(t, t, device=self.device)"),
    one("cuda", "m = torch.zeros(4).cuda()", 'm = torch.zeros(4, device="cuda")'),
    one("a text", "m = torch.full((2,), 0.5).to('cuda:1')", "m = torch.full((2,), 0.5, device='cuda:1')"),
    one("without blocking", "m = torch.eye(n).to(device, non_blocking=True)", "m = torch.eye(n, device=device)"),
    one(
        "new axes",
        "m = torch.triu(torch.ones(t, t), diagonal=1).bool()[None, :].expand(x.size(0), -1).to(x.device)",
        "m = torch.triu(torch.ones(t, t, device=x.device), diagonal=1).bool()[None, :].expand(x.size(0), -1)",
    ),
    one("taken by a tensor", "m = torch.arange(t)[order].to(x.device)"),
    one(
        "a chain of methods and functions",
        "m = (torch.triu(torch.ones(t, t), diagonal=1) == 1).unsqueeze(0).to(x.device)  # c",
        "m = (torch.triu(torch.ones(t, t, device=x.device), diagonal=1) == 1).unsqueeze(0)  # c",
    ),
    one(
        "arithmetic",
        "y = f((torch.arange(0, n, 2).float() / 10).to(x.device))",
        "y = f((torch.arange(0, n, 2, device=x.device).float() / 10))",
    ),
    Case(
        "over several lines",
        HEAD + "pos = torch.arange(\n    t,\n    dtype=torch.long,\n).to(ids.device)\n",
        3,
        HEAD + "pos = torch.arange(\n    t,\n    dtype=torch.long,\n    device=ids.device,\n)\n",
    ),
    one("a dtype", "m = torch.arange(t).to(x.dtype)"),
    one("something unknown", "m = torch.arange(t).to(x)"),
    one("dtype too", "m = torch.arange(t).to(device, torch.float32)"),
    one("random numbers", "m = torch.rand(t).to(device)"),
    one("data of the host", "m = torch.tensor(rows).to(device)"),
    one("a device already", "m = torch.ones(t, device='cpu').to(device)"),
    one("another tensor in it", "m = (torch.arange(t) * scale).to(device)"),
    one("a mask from elsewhere", "m = torch.ones(t).masked_fill(mask, 0).to(device)"),
    one("options passed on", "m = torch.ones(t, **options).to(device)"),
    one("two on the line", "a, b = torch.ones(2).to(device), torch.ones(3).to(device)"),
    one("a model", "m = net.to(device)"),
]


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_what_is_the_same_on_each_device_is_made_there(case: Case) -> None:
    check(DEVICE, case)


PARTS = st.sampled_from(
    ["torch.arange(t)", "torch.ones(2, 3)", ".to(device)", ".float()", " * 2", "(", ")", "x", ".cuda()", "\n"]
)


@given(st.lists(PARTS, max_size=8))
def test_any_text_keeps_its_other_lines(parts: list[str]) -> None:
    keeps_its_promise(DEVICE, f"{HEAD}m = {''.join(parts)}\nn = 1\n", 2)
