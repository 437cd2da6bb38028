"""`gpudoctor fix`: several remedies in one file, files that changed, and what is left alone."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpudoctor import patching
from gpudoctor.cli import app
from gpudoctor.diagnosis import Change, Diagnosis, Finding, Location, Remedy, Run, to_json
from gpudoctor.engine.editfields import read_edit
from gpudoctor.engine.editing import digest
from gpudoctor.errors import GpuDoctorError, InputError, UsageError
from gpudoctor.fix import Plan, moved, plan

LOADER = {"call": "DataLoader", "max_positional": 1}
TEXT = """\
import gc
import torch

loader = DataLoader(
    data,
    batch_size=4,
)
for x in loader:
    gc.collect()
    opt.zero_grad(set_to_none=False)
"""
PIN = {**LOADER, "set": {"pin_memory": "True"}}
WORKERS = {**LOADER, "set": {"num_workers": "2"}}
MORE_WORKERS = {**LOADER, "set": {"num_workers": "4"}}
COLLECT = {"kind": "delete", "calls": ["gc.collect"]}
ZERO = {"call": "zero_grad", "drop": ["set_to_none"]}
TF32 = {"kind": "insert", "statement": 'torch.set_float32_matmul_precision("high")', "place": "imports"}
RULES = {"GD601": "loader-stall", "GD302": "pageable-h2d", "GD505": "grads-zeroed-not-dropped"}


def finding(table: dict[str, Any] | None, line: int, rule: str = "GD601", text: str = TEXT, **more: Any) -> Finding:
    change = None
    if table is not None:
        edit = read_edit(table, "edit")
        change = Change(edit.kind, more.pop("file", "train.py"), line, dict(edit.values), digest(text))
    where = Location("train.py", line)
    return Finding(
        rule, "a-rule", "Slow.", "warning", "It is slow.", where, remedy=Remedy("a", "Do.", change=change), **more
    )


def planned(*findings: Finding, text: str = TEXT, **options: Any) -> Plan:
    return plan(Diagnosis(Run("train.py"), findings=findings), lambda name: text, **options)


def test_several_fixes_of_a_file_are_one_patch() -> None:
    found = planned(finding(COLLECT, 9), finding(PIN, 4), finding(TF32, 8), finding(WORKERS, 4), finding(ZERO, 10))
    (patch,) = found.patches
    assert found.left == ()
    assert len(patch.findings) == 5
    assert patch.after == TEXT.replace("    gc.collect()\n", "").replace(
        "import torch\n", 'import torch\n\ntorch.set_float32_matmul_precision("high")\n'
    ).replace("batch_size=4,\n", "batch_size=4,\n    pin_memory=True,\n    num_workers=2,\n").replace(
        "(set_to_none=False)", "()"
    )


def test_where_two_fixes_disagree_the_first_one_holds() -> None:
    found = planned(finding(WORKERS, 4), finding(MORE_WORKERS, 4))
    assert "num_workers=2" in found.patches[0].after
    assert "says otherwise" in found.left[0].reason


def test_the_same_fix_twice_is_made_once() -> None:
    found = planned(finding(PIN, 4), finding(PIN, 4, rule="GD302"))
    assert found.patches[0].after.count("pin_memory") == 1
    assert found.left == ()


def test_a_line_that_another_fix_took_is_left_alone() -> None:
    found = planned(finding(COLLECT, 9), finding(COLLECT, 9))
    assert "another fix changes the same lines" in found.left[0].reason


def test_what_is_left_alone_has_a_reason() -> None:
    found = planned(
        finding(PIN, 4, accepted="on purpose"),
        finding(PIN, 4, rule="GD201"),
        finding(None, 4),
        finding(PIN, 9),
        finding(PIN, 4, file="/elsewhere/train.py"),
        previews={"GD201"},
    )
    assert found.patches == ()
    reasons = [left.reason for left in found.left]
    for reason, said in zip(
        reasons, ("accepted: on purpose", "preview", "no certain", "no calls of", "outside"), strict=True
    ):
        assert said in reason


def test_an_edit_of_several_lines_is_made_on_all_of_them() -> None:
    text = "a = Conv2d(3, 4, 3)\nb = 1\nc = Conv1d(3, 4, 3)\n"
    edit = read_edit({"call": "Conv1d|Conv2d", "set": {"bias": "False"}, "max_positional": 7}, "edit")
    change = Change(edit.kind, "train.py", 1, dict(edit.values), digest(text), (3,))
    one = Finding("GD409", "a", "b", "info", "c", remedy=Remedy("a", "b", change=change))
    (patch,) = planned(one, text=text).patches
    assert patch.after == text.replace("4, 3)", "4, 3, bias=False)")


def test_only_the_chosen_findings_are_spoken_of() -> None:
    found = planned(finding(PIN, 4, rule="GD302"), finding(COLLECT, 9), chosen=lambda one: one.rule == "GD302")
    assert [one.rule for one in found.patches[0].findings] == ["GD302"]
    assert found.left == ()


def test_a_file_that_changed_is_stale() -> None:
    (stale,) = planned(finding(PIN, 4), text=TEXT + "# more\n").stale
    assert stale.file == "train.py"


@pytest.mark.parametrize(
    ("after", "line", "now"),
    [
        ("a\nb\nc\n", 2, 2),
        ("x\na\nb\nc\n", 2, 3),
        ("a\n    b\nc\n", 2, 2),
        ("a\nB\nc\n", 2, 2),
        ("a\nc\n", 2, None),
        ("a\nx\ny\nc\n", 2, None),
    ],
)
def test_a_line_is_followed_through_changes(after: str, line: int, now: int | None) -> None:
    assert moved("a\nb\nc\n", after, line) == now


# the command


def run(folder: Path, *words: str) -> tuple[int, str, str]:
    old = Path.cwd()
    os.chdir(folder)
    try:
        result = CliRunner().invoke(app, ["fix", *words], standalone_mode=False)
    finally:
        os.chdir(old)
    if isinstance(result.exception, GpuDoctorError):
        raise result.exception
    assert result.exception is None, result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_bytes(TEXT.encode())
    store(tmp_path, finding(PIN, 4, rule="GD302"), finding(ZERO, 10, rule="GD505"))
    return tmp_path


def store(folder: Path, *findings: Finding) -> None:
    text = to_json(Diagnosis(Run("train.py"), findings=findings))
    (folder / "diagnosis.json").write_text(text, encoding="utf-8")


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    )
    return done.stdout


def test_a_dry_run_prints_a_diff_that_git_applies_and_writes_nothing(folder: Path) -> None:
    code, out, err = run(folder, "diagnosis.json")
    assert code == 0
    assert (folder / "train.py").read_text() == TEXT
    assert "2 fixes can be applied" in err
    subprocess.run(["git", "apply", "-"], input=out.encode(), cwd=folder, check=True, timeout=60)
    assert "pin_memory=True" in (folder / "train.py").read_text()


def test_apply_changes_the_file_and_keeps_its_mode_and_line_ends(folder: Path) -> None:
    text = TEXT.replace("\n", "\r\n")
    (folder / "train.py").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (folder / "train.py").chmod(0o751)
    store(folder, finding(PIN, 4, rule="GD302", text="\ufeff" + text))
    code, _, err = run(folder, "diagnosis.json", "--apply")
    assert code == 0
    assert (folder / "train.py").read_bytes().startswith(b"\xef\xbb\xbfimport gc\r\n")
    assert b"    pin_memory=True,\r\n" in (folder / "train.py").read_bytes()
    assert stat.S_IMODE((folder / "train.py").stat().st_mode) == 0o751
    assert "1 fix applied to 1 file" in err
    assert "risk: none known" in err
    assert sorted(path.name for path in folder.iterdir()) == ["diagnosis.json", "train.py"]


def test_a_rule_can_be_chosen(folder: Path) -> None:
    _, out, _ = run(folder, "diagnosis.json", "--rule", "GD5")
    assert "zero_grad()" in out
    assert "pin_memory" not in out
    with pytest.raises(UsageError, match="GD9999"):
        run(folder, "diagnosis.json", "--rule", "GD9999")


def test_a_changed_file_is_an_error_and_nothing_is_written(folder: Path) -> None:
    (folder / "train.py").write_text(TEXT + "\n")
    with pytest.raises(UsageError, match="not what was recorded"):
        run(folder, "diagnosis.json", "--apply")
    assert (folder / "train.py").read_text() == TEXT + "\n"


def test_a_file_with_uncommitted_changes_is_an_error(folder: Path) -> None:
    git(folder, "init", "-q")
    (folder / "train.py").write_text("old\n")
    git(folder, "add", "train.py")
    git(folder, "commit", "-qm", "a")
    (folder / "train.py").write_text(TEXT)
    index = (folder / ".git" / "index").read_bytes()
    with pytest.raises(UsageError, match="--allow-dirty"):
        run(folder, "diagnosis.json", "--apply")
    assert (folder / "train.py").read_text() == TEXT
    run(folder, "diagnosis.json")
    assert (folder / ".git" / "index").read_bytes() == index
    run(folder, "diagnosis.json", "--apply", "--allow-dirty")
    assert "pin_memory" in (folder / "train.py").read_text()


def test_a_committed_file_is_changed_and_the_index_is_not(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "train.py")
    git(folder, "commit", "-qm", "a")
    index = (folder / ".git" / "index").read_bytes()
    run(folder, "diagnosis.json", "--apply")
    assert (folder / ".git" / "index").read_bytes() == index
    assert git(folder, "diff", "--name-only") == "train.py\n"


def test_a_link_out_of_the_folder_is_not_followed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "train.py"
    outside.write_text(TEXT)
    (folder / "train.py").unlink()
    (folder / "train.py").symlink_to(outside)
    with pytest.raises(UsageError, match="not below this folder"):
        run(folder, "diagnosis.json", "--apply")
    assert outside.read_text() == TEXT


def test_a_file_that_changes_between_reading_and_writing_is_not_written(folder: Path) -> None:
    (patch,) = planned(finding(PIN, 4)).patches
    (folder / "train.py").write_text("other\n")
    with pytest.raises(UsageError, match="changed meanwhile"):
        patching.write(folder, [patch])
    assert (folder / "train.py").read_text() == "other\n"


def test_without_a_recording_the_error_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gpudoctor check"):
        run(tmp_path)


def test_nothing_to_fix_is_no_error(folder: Path) -> None:
    store(folder, finding(None, 4))
    code, out, err = run(folder, "diagnosis.json", "--apply")
    assert (code, out) == (0, "")
    assert "nothing that can be fixed with certainty" in err
    assert "left alone: GD601 train.py:4: no certain change" in err
