"""The wheel carries the rules and the report templates, and finds them where it is installed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

WHERE = "import gpudoctor.resources as r; print(r.__file__); print(r.rules_dir()); print(r.templates_dir())"


def run(*command: str, cwd: Path, pythonpath: Path | None = None) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if pythonpath is not None:
        environment["PYTHONPATH"] = str(pythonpath)
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def checkout_files(folder: str) -> set[str]:
    top = ROOT / folder
    return {path.relative_to(top).as_posix() for path in top.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [name for name in ("build", "hatchling") if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"a wheel cannot be built here: {' and '.join(missing)} not installed (make venv)")
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT), cwd=out)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("pip") is None:
        pytest.skip("this environment has no pip to install the wheel with")
    target = tmp_path_factory.mktemp("site")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target))
    run(*pip, str(wheel), cwd=target)
    return target


@pytest.mark.parametrize(
    ("inside", "folder"), [("gpudoctor/_data/rules/", "rules"), ("gpudoctor/_data/templates/", "reports/templates")]
)
def test_wheel_carries_every_data_file_of_the_checkout(wheel: Path, inside: str, folder: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        carried = {name.removeprefix(inside) for name in archive.namelist() if name.startswith(inside)}
    assert carried
    assert carried == checkout_files(folder)


def test_wheel_carries_the_typing_marker_the_kernel_table_the_licence_and_nothing_but_the_package(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        scripts = archive.read(entry_points).decode()
    assert "gpudoctor/py.typed" in names
    assert "gpudoctor/ingest/kernel_classes.toml" in names
    assert "gpudoctor/gpus.toml" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"gpudoctor"}
    assert "gpudoctor = gpudoctor.cli:main" in scripts


def test_an_installed_wheel_uses_its_own_rules_and_templates(installed: Path, tmp_path: Path) -> None:
    module, rules, templates = run(sys.executable, "-c", WHERE, cwd=tmp_path, pythonpath=installed).splitlines()
    data = installed / "gpudoctor" / "_data"
    assert Path(module).is_relative_to(installed)
    assert (Path(rules), Path(templates)) == (data / "rules", data / "templates")


def test_the_checkout_uses_the_folders_at_its_top(tmp_path: Path) -> None:
    module, rules, templates = run(sys.executable, "-c", WHERE, cwd=tmp_path, pythonpath=ROOT).splitlines()
    assert Path(module).is_relative_to(ROOT)
    assert (Path(rules), Path(templates)) == (ROOT / "rules", ROOT / "reports" / "templates")


def test_an_editable_install_uses_the_checkout(tmp_path: Path) -> None:
    module, rules, templates = run(sys.executable, "-c", WHERE, cwd=tmp_path).splitlines()
    if not Path(module).is_relative_to(ROOT):
        pytest.skip("gpudoctor is not installed editable from this checkout here")
    assert (Path(rules), Path(templates)) == (ROOT / "rules", ROOT / "reports" / "templates")
