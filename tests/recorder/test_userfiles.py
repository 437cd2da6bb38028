from __future__ import annotations

import json
from pathlib import Path

import jinja2

import gpudoctor
from gpudoctor.userfiles import UserFiles


def test_files_below_the_working_folder_are_shown_relative_to_it(tmp_path: Path) -> None:
    script = tmp_path / "pkg" / "train.py"
    script.parent.mkdir()
    script.write_text("x = 1\n")
    assert UserFiles(str(tmp_path)).name(str(script)) == "pkg/train.py"


def test_a_user_file_elsewhere_keeps_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    other = tmp_path / "lib.py"
    other.write_text("")
    assert UserFiles(str(tmp_path / "a")).name(str(other)) == str(other)


def test_libraries_the_interpreter_and_gpudoctor_are_not_the_users(tmp_path: Path) -> None:
    files = UserFiles(str(tmp_path))
    assert files.name(json.__file__) is None
    assert files.name(jinja2.__file__) is None
    assert files.name(gpudoctor.__file__) is None
    assert files.name("<frozen runpy>") is None
    assert files.name(str(tmp_path / "not_there.py")) is None


def test_on_another_machine_nothing_is_looked_up_on_disk() -> None:
    files = UserFiles("/home/a/proj", foreign=["/usr/lib/python3.12/"], here=False)
    assert files.name("/home/a/proj/model.py") == "model.py"
    assert files.name("model.py") == "model.py"
    assert files.name("/usr/lib/python3.12/json/__init__.py") is None
    assert files.name("/home/a/env/lib/python3.12/site-packages/torch/nn/modules/module.py") is None


def test_sources_hold_what_was_asked_for_and_skip_generated_giants(tmp_path: Path) -> None:
    small, giant = tmp_path / "small.py", tmp_path / "giant.py"
    small.write_text("a = 'ü'\n", encoding="utf-8")
    giant.write_text("#" * 600_000)
    files = UserFiles(str(tmp_path))
    files.name(str(small))
    files.name(str(giant))
    files.save_sources(tmp_path)
    saved = json.loads((tmp_path / "sources.json").read_text())
    assert saved["small.py"] == "a = 'ü'\n"
    assert "giant.py" not in saved
