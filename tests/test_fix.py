"""`gpudoctor fix`: several remedies in one file, files that changed, and what is left alone."""

from __future__ import annotations

import os
import stat
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpudoctor import patching
from gpudoctor.cli import app
from gpudoctor.diagnosis import Change, Diagnosis, Finding, Location, Remedy, Run, to_json
from gpudoctor.engine.editing import digest
from gpudoctor.engine.rule import Rule
from gpudoctor.engine.rulefile import load_rules
from gpudoctor.errors import GpuDoctorError, InputError, UsageError
from gpudoctor.fix import Plan, moved, plan
from gpudoctor.fixable import Read

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
RULES = load_rules(())
PIN = ("GD302", "pin")
WORKERS = ("GD601", "workers")
COLLECT = ("GD306", "collect_less")
ZERO = ("GD505", "drop")
TF32 = ("GD401", "high")


def finding(
    remedy: tuple[str, str], line: int, text: str = TEXT, file: str = "train.py", column: str = "2", **more: Any
) -> Finding:
    """A finding as the rule makes it of a row whose columns hold `column`."""
    rule = next(one for one in RULES if one.id == remedy[0])
    edit = rule.remedies[remedy[1]].edit
    assert edit is not None
    values = {
        key: {name: one if "{{" not in one else column for name, one in value.items()}
        if isinstance(value, dict)
        else value
        for key, value in edit.values.items()
    }
    where = Location(file, line, role=edit.at)
    change = more.pop("change", Change(edit.kind, file, line, values, digest(text)))
    done = Remedy(remedy[1], "Do.", change=change)
    return Finding(rule.id, rule.name, rule.title, "warning", "It is slow.", where, remedy=done, **more)


def planned(*findings: Finding, text: str = TEXT, rules: tuple[Rule, ...] = RULES, **options: Any) -> Plan:
    diagnosis = Diagnosis(Run("train.py"), findings=findings)
    return plan(diagnosis, rules, lambda name: Read(name, name, text), previews=True, **options)


def test_several_fixes_of_a_file_are_one_patch() -> None:
    found = planned(finding(COLLECT, 9), finding(PIN, 4), finding(TF32, 8), finding(WORKERS, 4), finding(ZERO, 10))
    (patch,) = found.patches
    assert found.left == ()
    assert len(patch.findings) == 5
    assert patch.after == TEXT.replace("    gc.collect()\n", "").replace(
        "import gc\nimport torch\n", 'import torch\n\ntorch.set_float32_matmul_precision("high")\n'
    ).replace(
        "batch_size=4,\n", "batch_size=4,\n    pin_memory=True,\n    num_workers=2,\n    persistent_workers=True,\n"
    ).replace("(set_to_none=False)", "()")


def test_where_two_fixes_disagree_the_first_one_holds() -> None:
    found = planned(finding(WORKERS, 4), finding(WORKERS, 4, column="4"))
    assert "num_workers=2" in found.patches[0].after
    assert "says otherwise" in found.left[0].reason


def test_the_same_fix_twice_is_made_once() -> None:
    found = planned(finding(PIN, 4), finding(("GD602", "pin"), 4))
    assert found.patches[0].after.count("pin_memory") == 1
    assert found.left == ()


def test_a_line_that_another_fix_took_is_left_alone() -> None:
    found = planned(finding(COLLECT, 9), finding(COLLECT, 9))
    assert "another fix changes the same lines" in found.left[0].reason


def test_the_import_goes_with_the_last_of_several_calls() -> None:
    text = "import gc\nimport torch\n\ndef end():\n    gc.collect()\n\nfor x in loader:\n    gc.collect()\n"
    (patch,) = planned(finding(COLLECT, 8, text), finding(COLLECT, 5, text), text=text).patches
    assert "gc" not in patch.after


def test_what_is_left_alone_has_a_reason() -> None:
    preview = replace(next(one for one in RULES if one.id == "GD505"), id="XY001", status="preview")
    decision = Finding("GD101", "a", "b", "info", "c", Location("train.py", 4), remedy=Remedy("fullgraph", "Do."))
    found = plan(
        Diagnosis(
            Run("train.py"),
            findings=(
                finding(PIN, 4, accepted="on purpose"),
                replace(finding(ZERO, 10), rule="XY001"),
                replace(finding(ZERO, 10), rule="XY002"),
                decision,
                finding(PIN, 9),
                finding(ZERO, 10, file="/elsewhere/train.py"),
                finding(ZERO, 10, file="cell 3"),
                finding(ZERO, 10, file="a\nb.py"),
                finding(ZERO, 9, change=None),
            ),
        ),
        (*RULES, preview),
        lambda name: Read(name, name, TEXT),
    )
    assert found.patches == ()
    said = (
        "accepted: on purpose",
        "`--preview`",
        "no such rule",
        "a decision of yours; `gpudoctor explain GD101`",
        "no calls of DataLoader",
        "outside",
        "notebook",
        "outside",
        "no certain change: no calls of zero_grad on the line",
    )
    for left, words in zip(found.left, said, strict=True):
        assert words in left.reason


def test_an_edit_of_several_lines_is_made_on_all_of_them() -> None:
    text = "a = Conv2d(3, 4, 3)\nb = 1\nc = Conv1d(3, 4, 3)\n"
    one = finding(("GD409", "no_bias"), 1, text)
    assert one.remedy is not None and one.remedy.change is not None
    change = replace(one.remedy.change, also=(3,))
    second = Location("train.py", 3, role=one.where.role if one.where else None)
    one = replace(one, locations=(second,), remedy=replace(one.remedy, change=change))
    (patch,) = planned(one, text=text).patches
    assert patch.after == text.replace("4, 3)", "4, 3, bias=False)")


STRANGE: dict[str, tuple[tuple[str, str], dict[str, Any]]] = {
    "a statement": (TF32, {"values": {"statement": "import os; os.abort()", "place": "imports"}}),
    "another kind": (ZERO, {"kind": "insert", "values": {"statement": "exit()", "place": "before"}}),
    "code for a number": (WORKERS, {"column": "__import__('os').abort()"}),
    "a name for a number": (WORKERS, {"column": "evil"}),
    "a number with more behind it": (WORKERS, {"column": "2\n"}),
    "more keywords": (ZERO, {"drop": ("set_to_none", "other")}),
    "another line": (ZERO, {"line": 9}),
    "another file": (ZERO, {"file": "other.py"}),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_change_that_the_rule_does_not_make_is_refused(name: str) -> None:
    remedy, other = STRANGE[name]
    one = finding(remedy, 4 if remedy == WORKERS else 10, column=other.pop("column", "2"))
    assert one.remedy is not None and one.remedy.change is not None
    change = one.remedy.change
    values = {**change.values, **other.pop("values", {}), **({"drop": other.pop("drop")} if "drop" in other else {})}
    one = replace(one, remedy=replace(one.remedy, change=replace(change, values=values, **other)))
    with pytest.raises(InputError, match="does not make"):
        planned(one)


def test_two_names_of_a_file_are_one_file() -> None:
    findings = (finding(PIN, 4), finding(ZERO, 10, file="./train.py"))
    found = plan(Diagnosis(Run("train.py"), findings=findings), RULES, lambda name: Read("train.py", 7, TEXT))
    (patch,) = found.patches
    assert len(patch.findings) == 2


def test_only_the_chosen_findings_are_spoken_of() -> None:
    found = planned(finding(PIN, 4), finding(COLLECT, 9), chosen=lambda one: one.rule == "GD302")
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
    store(tmp_path, finding(PIN, 4), finding(ZERO, 10))
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
    store(folder, finding(PIN, 4, text="\ufeff" + text))
    code, _, err = run(folder, "diagnosis.json", "--apply")
    assert code == 0
    assert (folder / "train.py").read_bytes().startswith(b"\xef\xbb\xbfimport gc\r\n")
    assert b"    pin_memory=True,\r\n" in (folder / "train.py").read_bytes()
    assert stat.S_IMODE((folder / "train.py").stat().st_mode) == 0o751
    assert "1 fix applied to 1 file" in err
    assert "GD302 train.py:4: risk: pinned memory" in err
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
    with pytest.raises(InputError, match=r"no-such: no recording and no diagnosis; .*`gpudoctor check"):
        run(tmp_path, "no-such")


def test_nothing_to_fix_is_no_error(folder: Path) -> None:
    store(folder, finding(PIN, 4, change=None))
    code, out, err = run(folder, "diagnosis.json", "--apply")
    assert (code, out) == (0, "")
    assert "nothing that can be fixed with certainty" in err
    assert "left alone: GD302 train.py:4: no certain change" in err


# git, links, modes, encodings


def commit(folder: Path, *names: str) -> None:
    git(folder, "init", "-q")
    git(folder, "add", *names)
    git(folder, "commit", "-qm", "a")


def refused(folder: Path, words: str, *options: str) -> None:
    """`--apply` is an error that says so, and no file is changed."""
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    with pytest.raises(UsageError, match=words):
        run(folder, "diagnosis.json", "--apply", *options)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_where_git_does_not_answer_a_file_counts_as_changed(folder: Path) -> None:
    commit(folder, "train.py")
    (folder / ".git" / "config").write_text("[core\n")
    refused(folder, "train.py: git cannot say .* --allow-dirty")
    run(folder, "diagnosis.json", "--apply", "--allow-dirty")
    assert "pin_memory" in (folder / "train.py").read_text()


def test_a_repository_of_somebody_else_counts_as_changed(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    commit(folder, "train.py")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 4321, 4321)
    refused(folder, "git cannot say .*dubious ownership")


def test_git_is_asked_about_the_real_file_in_its_own_repository(folder: Path) -> None:
    inner = folder / "lib"
    inner.mkdir()
    (inner / "real.py").write_text("old\n")
    commit(inner, "real.py")
    (inner / "real.py").write_text(TEXT)
    (folder / "train.py").unlink()
    (folder / "train.py").symlink_to("lib/real.py")
    refused(folder, "lib/real.py: it has changes that are not committed")
    git(inner, "commit", "-qam", "b")
    _, out, _ = run(folder, "diagnosis.json", "--apply")
    assert out.startswith("--- a/lib/real.py")
    assert "pin_memory" in (inner / "real.py").read_text()
    assert (folder / "train.py").is_symlink()


def test_a_hard_link_stays_one_and_both_names_are_one_file(folder: Path) -> None:
    os.link(folder / "train.py", folder / "copy.py")
    store(folder, finding(PIN, 4), finding(ZERO, 10, file="copy.py"))
    _, out, err = run(folder, "diagnosis.json", "--apply")
    assert out.count("--- a/") == 1
    assert "2 fixes applied to 1 file" in err
    assert (folder / "train.py").samefile(folder / "copy.py")
    assert "pin_memory" in (folder / "copy.py").read_text()


def test_the_owner_stays(folder: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(folder / "train.py", 4321, 4322)
    run(folder, "diagnosis.json", "--apply")
    found = (folder / "train.py").stat()
    assert (found.st_uid, found.st_gid) == (4321, 4322)
    assert "pin_memory" in (folder / "train.py").read_text()


def test_a_read_only_file_is_one_clear_error(folder: Path) -> None:
    (folder / "train.py").chmod(0o444)
    refused(folder, "^train.py: read-only; .*Nothing was written$")


def test_a_file_in_another_encoding_is_left_alone_and_that_is_said(folder: Path) -> None:
    content = b"# -*- coding: latin-1 -*-\n# caf\xe9\n" + TEXT.encode()
    (folder / "train.py").write_bytes(content)
    store(folder, finding(ZERO, 12, change=None))
    _, out, err = run(folder, "diagnosis.json", "--apply")
    assert out == ""
    assert "left alone: GD505 train.py:12: no certain change: the file is no UTF-8 text" in err
    assert (folder / "train.py").read_bytes() == content


def test_lines_that_end_in_a_carriage_return_alone_are_left_alone(folder: Path) -> None:
    text = TEXT.replace("\n", "\r")
    (folder / "train.py").write_bytes(text.encode())
    store(folder, finding(ZERO, 10, text=text))
    _, out, err = run(folder, "diagnosis.json", "--apply")
    assert out == ""
    assert "carriage return alone" in err
    assert (folder / "train.py").read_bytes() == text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"schema": 1}',
        b'{"schema": 2, "findings": []}',
        b'{"schema": 1, "run": {"script": "\xff"}}',
        b"[" * 100_000,
        b'{"results": [{"file": "train.py"}]}',
    ],
)
def test_what_is_no_diagnosis_is_an_input_error(folder: Path, content: bytes) -> None:
    (folder / "diagnosis.json").write_bytes(content)
    with pytest.raises(InputError, match="diagnosis"):
        run(folder, "diagnosis.json", "--apply")
    assert (folder / "train.py").read_text() == TEXT


def test_a_diagnosis_that_was_changed_is_an_input_error_and_none_of_it_is_applied(folder: Path) -> None:
    text = (folder / "diagnosis.json").read_text()
    (folder / "diagnosis.json").write_text(text.replace('"pin_memory": "True"', '"pin_memory": "print(1)"'))
    with pytest.raises(InputError, match="GD302"):
        run(folder, "diagnosis.json", "--apply")
    assert (folder / "train.py").read_text() == TEXT


def test_the_diff_is_kept_beside_the_recording_and_takes_the_fix_back(folder: Path) -> None:
    recording = folder / ".gpudoctor" / "20261201-a"
    recording.mkdir(parents=True)
    (folder / "diagnosis.json").rename(recording / "diagnosis.json")
    (recording.parent / "latest").symlink_to(recording.name)
    _, out, err = run(folder, "--apply")
    assert (recording / "fix.patch").read_text() == out
    assert "`git apply -R .gpudoctor/20261201-a/fix.patch` takes it back" in err  # `latest` leads elsewhere some day
    subprocess.run(["git", "apply", "-R", ".gpudoctor/20261201-a/fix.patch"], cwd=folder, check=True, timeout=60)
    assert (folder / "train.py").read_text() == TEXT


def test_in_a_sub_folder_the_error_says_where_the_recordings_are(folder: Path) -> None:
    (folder / ".gpudoctor").mkdir()
    (folder / "diagnosis.json").rename(folder / ".gpudoctor" / "latest")
    (folder / ".git").mkdir()
    below = folder / "src" / "model"
    below.mkdir(parents=True)
    with pytest.raises(InputError, match=r"\.\./\.\./\.gpudoctor has recordings: run this in "):
        run(below)
    with pytest.raises(UsageError, match=f"run this in {folder}"):
        run(below, "../../.gpudoctor/latest")
    (folder / "src" / ".git").mkdir()  # another repository: what lies above it is somebody else's
    with pytest.raises(InputError, match="record a run with"):
        run(below)
