"""A headless browser for the report's page; its tests are skipped, with the reason, where there is none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.reporters import html

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SCRIPT = Path(__file__).parents[2] / "scripts" / "screenshot.py"


@pytest.fixture(scope="session")
def screenshot() -> ModuleType:
    """scripts/screenshot.py as a module."""
    spec = importlib.util.spec_from_file_location("screenshot", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def browser(screenshot: ModuleType) -> Iterator[Browser]:
    try:
        opened = screenshot.browser()
        running = opened.__enter__()
    except screenshot.NoBrowserError as error:
        pytest.skip(str(error))
    yield running
    opened.__exit__(None, None, None)


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Diagnosis], str]:
    """Writes a diagnosis' page to a file and gives its address."""
    folder = tmp_path_factory.mktemp("reports")

    def write(diagnosis: Diagnosis) -> str:
        file = folder / f"{len(list(folder.iterdir()))}.html"
        file.write_text(html.render(diagnosis), encoding="utf-8")
        return file.as_uri()

    return write
