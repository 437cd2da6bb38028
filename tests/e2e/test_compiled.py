"""Scripts that Inductor compiles: what it generated is known with an empty cache and with a full one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import gpudoctor

SCRIPT = """\
import os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath("cache")
import torch
net = torch.nn.Linear(8, 8)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

@torch.compile
def forward(x):
    y = net(x)
    return torch.sin(y) * 2

for _ in range(12):
    loss = forward(torch.randn(4, 8)).sum()
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler on a CPU: none on PATH")
def test_a_full_cache_gives_the_same_kernels_and_calls_as_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    cold = gpudoctor("check", "--output-format", "json", "train.py", cwd=tmp_path).profile
    warm = gpudoctor("check", "--output-format", "json", "train.py", cwd=tmp_path).profile
    for name in ("generated_kernels", "extern_calls"):
        first, second = (profile.table(name).drop(columns="time_ns") for profile in (cold, warm))
        assert len(first), name
        assert first.equals(second), name
    kernels, calls = cold.table("generated_kernels"), cold.table("extern_calls")
    assert kernels.loc[kernels["direction"] == "forward", "line"].tolist() == [10]
    assert calls.loc[calls["direction"] == "forward", "line"].tolist() == [9]
    assert kernels["time_ns"].isna().all()
    assert (calls["time_ns"] > 0).all()
    # what ran at a line of a generated file is shown on the user's line
    assert set(cold.table("ops")["file"].dropna()) == {"train.py"}
