"""docs/gallery shows what the four recordings give now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "gallery.py"


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["host-sync", "loader-stall", "exposed-communication", "out-of-memory"])
def test_a_page_is_up_to_date_and_small(gallery: ModuleType, name: str) -> None:
    file = gallery.FOLDER / f"{name}.html"
    assert file.read_text(encoding="utf-8") == gallery.render(name), "run python scripts/gallery.py"
    assert file.stat().st_size < 250_000


def test_nothing_else_lies_there(gallery: ModuleType) -> None:
    assert {file.stem for file in gallery.FOLDER.glob("*.html")} == set(gallery.PAGES)
