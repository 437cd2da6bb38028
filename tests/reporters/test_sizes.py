"""Reports of public recordings stay small: 250 KB usually, 2 MB at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.diagnose import diagnose
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.ingest import open_path
from gpudoctor.reporters import html
from tests.shared_traces import shared_trace

LARGEST = (
    "hta/trace_diff_control__control.json.gz",
    "tbplugin/resnet50_num_workers_0.v3.pt.trace.json.gz",
    "tracelens/mi300__resnet_act_checkpoint.json.gz",
    "memsnap/wedson_medium_128_training.pickle",
)
"""The ones with most events; the others make smaller pages."""


@pytest.mark.parametrize("name", LARGEST)
def test_a_page_of_a_large_recording_is_small(name: str, tmp_path: Path) -> None:
    page = html.render(diagnose(open_path(shared_trace(name)), load_rules(())))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    assert (tmp_path / "page.html").stat().st_size < 500_000
