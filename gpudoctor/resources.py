"""Where the rule files and the report templates are: inside a wheel, or at the top of a source checkout."""

from __future__ import annotations

from pathlib import Path

from gpudoctor.errors import GpuDoctorError

_PACKAGE = Path(__file__).resolve().parent


def _find(in_wheel: str, in_checkout: str) -> Path:
    for candidate in (_PACKAGE / "_data" / in_wheel, _PACKAGE.parent / in_checkout):
        if candidate.is_dir():
            return candidate
    raise GpuDoctorError(f"the installation is incomplete: no folder {in_checkout!r} found; reinstall gpudoctor")


def rules_dir() -> Path:
    """The folder of the built-in rule files (`GD101-graph-break.md`, …)."""
    return _find("rules", "rules")


def templates_dir() -> Path:
    """The folder of the report's Jinja templates, style sheet and script."""
    return _find("templates", "reports/templates")
