from __future__ import annotations

from typing import Any

import pytest

from gpudoctor.ingest.setting_sites import placed

SOURCE = """import os, torch
os.environ["NCCL_DEBUG"] = "WARN"
if torch._dynamo.config.suppress_errors == True: pass
torch._dynamo.config.suppress_errors = True
torch._inductor.config.triton.cudagraphs = True
# torch._dynamo.config.recompile_limit = 3
torch._dynamo.config.optimize_ddp = False
torch._dynamo.config.optimize_ddp = True
"""


def row(name: str, source: str = "changed") -> dict[str, Any]:
    return {"name": name, "value": "x", "file": None, "line": None, "source": source}


@pytest.mark.parametrize(
    ("name", "line"),
    [("env.NCCL_DEBUG", 2), ("dynamo.suppress_errors", 4), ("inductor.triton.cudagraphs", 5)],
)
def test_the_only_line_that_assigns_a_changed_setting_is_its_place(name: str, line: int) -> None:
    (found,) = placed([row(name)], {"train.py": SOURCE})
    assert (found["file"], found["line"], found["source"]) == ("train.py", line, "script")


@pytest.mark.parametrize(
    "setting",
    [
        row("dynamo.recompile_limit"),  # only in a comment
        row("dynamo.optimize_ddp"),  # two lines: which one counts is not known
        row("dynamo.suppress_errors", "default"),
        row("env.NCCL_DEBUG", "environment"),
        row("cudnn.benchmark"),
    ],
)
def test_other_settings_stay_as_they_are(setting: dict[str, Any]) -> None:
    assert placed([setting], {"train.py": SOURCE}) == [setting]
