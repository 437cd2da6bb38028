"""Every setting that decides speed is in the recording, with who set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpudoctor.ingest.recording import load
from gpudoctor.recording import open_recording
from tests.e2e.conftest import Checked

SETS = """import os, torch, torch.nn as nn
import torch._dynamo.config
os.environ["NCCL_DEBUG"] = "WARN"
torch._dynamo.config.suppress_errors = True
torch.backends.cudnn.conv.fp32_precision = "ieee"
torch.backends.cuda.matmul.fp32_precision = "tf32"
torch.backends.cudnn.benchmark = True
torch.backends.cuda.enable_flash_sdp(False)
torch.autograd.set_detect_anomaly(True)
net = nn.Linear(8, 1); opt = torch.optim.SGD(net.parameters(), lr=0.1)
for i in range(5):
    opt.zero_grad(); net(torch.randn(4, 8)).square().mean().backward(); opt.step()
"""


@pytest.fixture(scope="module")
def run(check: Callable[..., Checked]) -> Checked:
    return check(SETS, "--run-to-end")


@pytest.fixture(scope="module")
def settings(run: Checked) -> dict[str, dict[str, Any]]:
    table = load(open_recording(run.recording)).table("settings")
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    return {row["name"]: row for row in rows}


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("env.NCCL_DEBUG", "WARN", 3),
        ("dynamo.suppress_errors", "True", 4),
        ("cudnn.conv.fp32_precision", "ieee", 5),
        ("cuda.matmul.fp32_precision", "tf32", 6),
        ("cudnn.benchmark", "True", 7),
        ("sdp.flash", "False", 8),
        ("anomaly_mode", "True", 9),
    ],
)
def test_what_the_script_set_has_its_line(settings: dict[str, Any], name: str, value: str, line: int) -> None:
    row = settings[name]
    assert (row["value"], row["source"], row["file"], row["line"]) == (value, "script", "train.py", line)


def test_what_the_environment_set_and_what_nobody_set_is_told_apart(settings: dict[str, Any]) -> None:
    assert settings["num_threads"]["source"] == "environment"
    assert settings["env.OMP_NUM_THREADS"]["source"] == "environment"
    assert settings["sdp.math"]["source"] == "default"
    assert settings["deterministic_algorithms"]["source"] == "default"
    assert settings["dynamo.automatic_dynamic_shapes"]["source"] == "default"


def test_flags_that_refuse_to_be_read_after_the_new_precision_api_are_left_out(
    settings: dict[str, Any], run: Checked
) -> None:
    assert "float32_matmul_precision" not in settings
    assert "cuda.matmul.allow_tf32" not in settings
    assert "cudnn.deterministic" in settings
    assert "Warning" not in run.err
