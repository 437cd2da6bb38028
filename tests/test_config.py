from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.config import Config, load_config
from gpudoctor.errors import UsageError


def write(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    assert load_config(tmp_path) == Config()


def test_every_key_is_read_from_the_nearest_file(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
[tool.gpudoctor]
rule-dirs = ["tools/rules"]
select = ["GD1"]
ignore = ["GD505"]
fail-on = "warning"
budget = 120
preview = true
[tool.gpudoctor.rules.gd601]
max_wait_ratio = 0.1
""",
    )
    (tmp_path / "src").mkdir()
    config = load_config(tmp_path / "src")
    assert config.path == tmp_path / "pyproject.toml"
    assert config.rule_dirs == (tmp_path / "tools/rules",)
    assert (config.select, config.ignore, config.fail_on) == (("GD1",), ("GD505",), "warning")
    assert (config.budget_s, config.preview) == (120.0, True)
    assert config.thresholds == {"GD601": {"max_wait_ratio": 0.1}}


def test_a_file_without_our_table_is_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "[tool.gpudoctor]\npreview = true\n")
    inner = tmp_path / "inner"
    inner.mkdir()
    write(inner, "[tool.other]\nx = 1\n")
    assert load_config(inner).preview


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("fail_on = 'error'", "'fail-on'"),
        ("ingore = []", "'ignore'"),
        ("zzz = 1", "'zzz'"),
        ("fail-on = 'warn'", "fail-on"),
        ("budget = -1", "budget"),
        ("budget = true", "budget"),
        ("budget = nan", "finite"),
        ("budget = inf", "finite"),
        (f"budget = {10**400}", "finite"),
        ("rules = { GD101 = { min_share = nan } }", "rules.GD101.min_share is nan; it must be a finite number"),
        ("rules = { GD101 = { min_share = -inf } }", "finite"),
        (f"rules = {{ GD101 = {{ min_share = {2**63} }} }}", "within 64 bits"),
        ("preview = 'yes'", "preview"),
        ("select = 'GD101'", "select"),
        ("rules = 3", "rules"),
        ("rules = { GD101 = 3 }", "rules.GD101"),
        ("rules = { GD101 = { a = [] } }", "rules.GD101.a"),
    ],
)
def test_a_wrong_key_or_value_is_an_error_that_names_it_and_the_file(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(UsageError) as error:
        load_config(write(tmp_path, f"[tool.gpudoctor]\n{text}\n"))
    assert named in str(error.value)
    assert "pyproject.toml" in str(error.value)


@pytest.mark.parametrize("text", ["[tool", "tool.gpudoctor = 3", "x = 1" + "0" * 5000, "x = " + "[" * 5000])
def test_a_file_that_cannot_be_used_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=r"pyproject\.toml"):
        load_config(write(tmp_path, text))
