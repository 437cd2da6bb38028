from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.engine.editfields import read_edit
from gpudoctor.engine.remedy import make_diff
from gpudoctor.engine.rule import Edit

DROP_LAST = read_edit(
    {"call": "DataLoader", "set": {"drop_last": "True"}, "max_positional": 8, "unless": ["batch_sampler"]}, "edit"
)
ZERO_GRAD = read_edit({"call": "zero_grad", "drop": ["set_to_none"]}, "edit")
DETACH = read_edit({"kind": "method", "attribute": "item", "to": "detach"}, "edit")
DYNAMIC = read_edit({"call": "compile", "set": {"dynamic": "True"}}, "edit")


def diff_of(edit: Edit, text: str, line: int = 1, path: str = "train.py") -> str | None:
    return make_diff(edit.kind, edit.values, path, text, line)


def applied(folder: Path, path: str, text: str, diff: str, tool: str) -> str:
    """The text after the tool applied the diff in a folder that is no repository."""
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(text.encode())
    command = ["git", "apply", "-"] if tool == "git" else ["patch", "-p1", "--binary", "-s"]
    subprocess.run(command, input=diff.encode(), cwd=folder, check=True, timeout=30)
    return target.read_bytes().decode()


CASES = {
    "one line": (
        DROP_LAST,
        "a = DataLoader(ds, batch_size=4)\nb = 1\n",
        1,
        "a = DataLoader(ds, batch_size=4, drop_last=True)\nb = 1\n",
    ),
    "no end of line at the end": (DROP_LAST, "a = DataLoader(ds)", 1, "a = DataLoader(ds, drop_last=True)"),
    "windows line ends": (
        DROP_LAST,
        "x = 1\r\na = DataLoader(\r\n    ds,\r\n    batch_size=4,\r\n)\r\n",
        3,
        "x = 1\r\na = DataLoader(\r\n    ds,\r\n    batch_size=4,\r\n    drop_last=True,\r\n)\r\n",
    ),
    "tabs and no trailing comma": (
        DROP_LAST,
        "if x:\n\ta = DataLoader(\n\t\tds,\n\t\tbatch_size=4\n\t)\n",
        2,
        "if x:\n\ta = DataLoader(\n\t\tds,\n\t\tbatch_size=4,\n\t\tdrop_last=True\n\t)\n",
    ),
    "a comment behind the last argument": (
        DROP_LAST,
        "a = DataLoader(\n    ds,\n    4  # size\n)\n",
        1,
        "a = DataLoader(\n    ds,\n    4,  # size\n    drop_last=True\n)\n",
    ),
    "unicode": (
        DROP_LAST,
        "é = 'ü\u2028'; a = DataLoader(ds)\nñ = 1\n",
        1,
        "é = 'ü\u2028'; a = DataLoader(ds, drop_last=True)\nñ = 1\n",
    ),
    "a literal is replaced": (
        DROP_LAST,
        "a = torch.utils.data.DataLoader(ds, drop_last=False, num_workers=n)\n",
        1,
        "a = torch.utils.data.DataLoader(ds, drop_last=True, num_workers=n)\n",
    ),
    "aligned arguments": (
        DROP_LAST,
        "a = DataLoader(ds,\n               batch_size=4)\n",
        2,
        "a = DataLoader(ds,\n               batch_size=4,\n               drop_last=True)\n",
    ),
    "a form feed and a byte order mark": (
        DROP_LAST,
        "\ufeffb = 1\n\x0c\na = DataLoader(ds)\n\x0cc = 1\n",
        3,
        "\ufeffb = 1\n\x0c\na = DataLoader(ds, drop_last=True)\n\x0cc = 1\n",
    ),
    "a decorator": (
        DYNAMIC,
        "@torch.compile(dynamic=False)\ndef f(x): return x\n",
        1,
        "@torch.compile(dynamic=True)\ndef f(x): return x\n",
    ),
    "the only argument goes": (ZERO_GRAD, "o.zero_grad(\n    set_to_none=False,\n)\n", 1, "o.zero_grad()\n"),
    "the last of two goes": (ZERO_GRAD, "o.zero_grad(a, set_to_none=False)\n", 1, "o.zero_grad(a)\n"),
    "a method is renamed": (DETACH, "total += loss.item() * 2\n", 1, "total += loss.detach() * 2\n"),
}


@pytest.mark.parametrize("tool", ["git", "patch"])
@pytest.mark.parametrize(("edit", "text", "line", "after"), CASES.values(), ids=CASES.keys())
def test_the_diff_applies_and_changes_only_the_call(
    edit: Edit, text: str, line: int, after: str, tool: str, tmp_path: Path
) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    diff = diff_of(edit, text, line)
    assert diff is not None
    assert applied(tmp_path, "train.py", text, diff, tool) == after


@pytest.mark.parametrize("path", ["src/my train.py", "src/größe.py", "a\\b.py"])
def test_odd_paths_apply_with_git(path: str, tmp_path: Path) -> None:
    text = "a = DataLoader(ds)\n"
    diff = diff_of(DROP_LAST, text, path=path)
    assert diff is not None
    assert "drop_last" in applied(tmp_path, path.replace("\\", "/"), text, diff, "git")


@pytest.mark.parametrize(
    ("edit", "text", "line"),
    [
        (DROP_LAST, "a = Loader(ds)\n", 1),
        (DROP_LAST, "a = DataLoader(ds)\nb = 1\n", 2),
        (DROP_LAST, "a = DataLoader(x), DataLoader(y)\n", 1),
        (DROP_LAST, "a = DataLoader(DataLoader(x))\n", 1),
        (DROP_LAST, "a = DataLoader(ds, **options)\n", 1),
        (DROP_LAST, "a = DataLoader(*args)\n", 1),
        (DROP_LAST, "a = DataLoader(ds, drop_last=args.drop)\n", 1),
        (DROP_LAST, "a = DataLoader(ds, drop_last=True)\n", 1),
        (DROP_LAST, "a = DataLoader(ds, batch_sampler=s)\n", 1),
        (DROP_LAST, "a = DataLoader(ds, 1, 2, 3, 4, 5, 6, 7, False)\n", 1),
        (DROP_LAST, "a = DataLoader(\n", 1),
        (DROP_LAST, "", 1),
        (ZERO_GRAD, "o.zero_grad(False)\n", 1),
        (ZERO_GRAD, "o.zero_grad(set_to_none=False  # keep\n)\n", 1),
        (DETACH, "x = a.item() + b.item()\n", 1),
        (DETACH, "x = a.item(0)\n", 1),
        (DETACH, "x = item()\n", 1),
    ],
)
def test_where_the_change_is_not_certain_there_is_no_diff(edit: Edit, text: str, line: int) -> None:
    assert diff_of(edit, text, line) is None


@pytest.mark.parametrize("path", ["/abs/train.py", "../train.py", "C:/train.py"])
def test_a_file_outside_the_working_folder_gets_no_diff(path: str) -> None:
    assert diff_of(DROP_LAST, "a = DataLoader(ds)\n", path=path) is None


@given(st.text(max_size=60), st.integers(1, 4))
def test_any_text_gives_a_diff_or_none(text: str, line: int) -> None:
    diff = diff_of(DROP_LAST, text + "\nDataLoader(x)\n", line)
    assert diff is None or diff.startswith("--- a/train.py\n")
