"""One real recording of a compiled script, shared by the tests that damage copies of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import gpudoctor

SCRIPT = """
import torch, torch.nn as nn
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1); model = torch.compile(net, backend="aot_eager")
for i in range(14):
    loss = model(torch.randn(4, 8)).square().mean(); opt.zero_grad(); loss.backward(); opt.step()
    loss.item()
"""


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    (folder / "train.py").write_text(SCRIPT)
    run = gpudoctor("check", "--output-format", "json", "train.py", cwd=folder)
    assert run.code == 0, run.err
    return run.recording
