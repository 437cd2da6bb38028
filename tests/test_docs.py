"""The documents: their links lead somewhere, their commands exist, and nothing in the repository names one machine."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "samples/README.md",
    "docs/decisions.md",
    "docs/casebook.md",
    "docs/pricing.md",
]

LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)")
MACHINE_PATH = re.compile(r"(?<![\w./:-])/(?:root|Users)/[\w.-]+")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def tracked_files() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout, so there is no list of tracked files")
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("command", ["make demo", "make test"])
def test_the_readme_names_the_two_commands_and_the_makefile_has_them(command: str) -> None:
    assert f"    {command}" in read("README.md")
    assert re.search(rf"^{command.removeprefix('make ')}:", read("Makefile"), re.MULTILINE)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_between_files_resolve(document: str) -> None:
    folder = (ROOT / document).parent
    targets = [link for link in LINK.findall(read(document)) if not re.match(r"[a-z]+:", link)]
    assert [target for target in targets if not (folder / target).exists()] == []


def test_make_targets_that_documents_mention_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", read("Makefile"), re.MULTILINE))
    spans = [span for name in DOCUMENTS for span in re.findall(r"`make ([a-z ]+)`", read(name))]
    assert {target for span in spans for target in span.split()} <= targets


def test_every_dependency_has_a_line_that_says_why() -> None:
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = [*project["dependencies"], *(d for extra in project["optional-dependencies"].values() for d in extra)]
    names = {re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0] for requirement in wanted}
    explained = set(re.findall(r"^- \*\*([\w.-]+)\*\* — \S", read("docs/dependencies.md"), re.MULTILINE))
    assert explained == names


def test_no_tracked_file_names_a_path_of_one_machine() -> None:
    here = [str(ROOT), sys.prefix]
    found = []
    for path in tracked_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {match}" for match in MACHINE_PATH.findall(text)]
        found += [f"{path.relative_to(ROOT)}: {name}" for name in here if len(name) > 5 and name in text]
    assert found == []
