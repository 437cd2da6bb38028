"""The user's configuration: `[tool.gpudoctor]` in the nearest pyproject.toml that has it.

    [tool.gpudoctor]
    rule-dirs = ["tools/rules"]     # folders of rule files, relative to this pyproject.toml
    select = ["GD1", "loader-stall"] # only these rules: ids, names, or the beginning of an id
    ignore = ["GD505"]              # never these
    fail-on = "warning"             # error, warning, info or never
    budget = 120                    # seconds of steps that `check` watches at most
    preview = true                  # preview rules as well
    total-steps = 100000            # steps of the whole training: one-time costs are spread over them

    [tool.gpudoctor.rules.GD601]
    max_wait_ratio = 0.1            # a threshold of that rule

    [tool.gpudoctor.tolerance]
    operators_per_step = "5%"       # by how much a counter may rise in `compare` and `review`

A key that is not known is an error, so that a typing mistake does not pass as a setting.
"""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

from gpudoctor import counting
from gpudoctor.errors import UsageError

FailOn = Literal["error", "warning", "info", "never"]
Value = int | float | str | bool
_KEYS = ("rule-dirs", "select", "ignore", "fail-on", "budget", "preview", "total-steps", "rules", "tolerance")


@dataclass(frozen=True, slots=True)
class Config:
    """What the user configured; the defaults where nothing is said.

    Attributes:
        path: the pyproject.toml it was read from; None when there is none.
        rule_dirs: folders of further rule files.
        select: ids, names or beginnings of ids; empty means all rules.
        ignore: the same, for rules that are never run.
        fail_on: lowest severity at which the exit code is 1.
        budget_s: seconds of steps that `check` watches at most; None means its default.
        preview: whether preview rules run.
        total_steps: steps of the whole training, over which one-time costs are spread; None: over the steps seen.
        thresholds: threshold values by rule id and threshold name.
        tolerance: by how much a counter may rise before it is worse, as a share, by its name.
    """

    path: Path | None = None
    rule_dirs: tuple[Path, ...] = ()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: FailOn = "never"
    budget_s: float | None = None
    preview: bool = False
    total_steps: int | None = None
    thresholds: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    tolerance: Mapping[str, float] = field(default_factory=dict)


def load_config(start: Path) -> Config:
    """Reads the configuration that holds in a folder.

    Args:
        start: the folder to start from; its parents are searched upwards.

    Returns:
        The configuration of the nearest pyproject.toml with a `[tool.gpudoctor]` table, else the defaults.

    Raises:
        UsageError: the file is not TOML, or has a key or value that is not known.
    """
    folder = start.resolve()
    for candidate in (folder, *folder.parents):
        path = candidate / "pyproject.toml"
        if path.is_file():
            table = _tool_table(path)
            if table is not None:
                return _config(path, table)
    return Config()


def is_setting(value: object) -> TypeGuard[Value]:
    """Whether a value can be a threshold: a text, a boolean, or a number that SQL can compare with.

    Every comparison with NaN is false, and infinity is above everything: with either a rule would be silent or always
    speak, without a word about it.
    """
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def suggestion(word: str, known: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the known word closest to `word`, else an empty text."""
    lower = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), lower, n=1)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""


def _tool_table(path: Path) -> Mapping[str, Any] | None:
    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (ValueError, RecursionError) as error:  # not TOML or UTF-8, numbers of thousands of digits, deep nesting
        raise UsageError(f"{path}: not TOML ({error}); correct the file") from None
    if not isinstance(tool, dict) or "gpudoctor" not in tool:
        return None
    table = tool["gpudoctor"]
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.gpudoctor must be a table, `[tool.gpudoctor]`")
    return table


def _config(path: Path, table: Mapping[str, Any]) -> Config:
    for key in table:
        if key not in _KEYS:
            hint = suggestion(key, _KEYS) or f"; the keys are {', '.join(_KEYS)}"
            raise UsageError(f"{path}: [tool.gpudoctor] has no key {key!r}{hint}")
    return Config(
        path=path,
        rule_dirs=tuple(path.parent / folder for folder in _texts(path, table, "rule-dirs")),
        select=_texts(path, table, "select"),
        ignore=_texts(path, table, "ignore"),
        fail_on=_fail_on(path, table),
        budget_s=_budget(path, table),
        preview=_preview(path, table),
        total_steps=_total_steps(path, table),
        thresholds=_thresholds(path, table),
        tolerance=_tolerance(path, table),
    )


def _texts(path: Path, table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(path, key, value, 'a list of strings, e.g. ["GD101"]')
    return tuple(value)


def _fail_on(path: Path, table: Mapping[str, Any]) -> FailOn:
    value = table.get("fail-on", "never")
    for allowed in get_args(FailOn):
        if value == allowed:
            return value  # type: ignore[no-any-return]
    raise _wrong(path, "fail-on", value, "one of " + ", ".join(get_args(FailOn)))


def _budget(path: Path, table: Mapping[str, Any]) -> float | None:
    value = table.get("budget")
    if value is None:
        return None
    number = is_setting(value) and isinstance(value, int | float) and not isinstance(value, bool)
    if not number or value <= 0:
        raise _wrong(path, "budget", value, "seconds, a finite number above 0")
    return float(value)


def _preview(path: Path, table: Mapping[str, Any]) -> bool:
    value = table.get("preview", False)
    if not isinstance(value, bool):
        raise _wrong(path, "preview", value, "true or false")
    return value


def _total_steps(path: Path, table: Mapping[str, Any]) -> int | None:
    value = table.get("total-steps")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value <= 0):
        raise _wrong(path, "total-steps", value, "a whole number above 0")
    return value


def _thresholds(path: Path, table: Mapping[str, Any]) -> dict[str, dict[str, Value]]:
    """Thresholds by rule id. Whether the rule and the threshold exist is judged where the rules are known."""
    rules = table.get("rules", {})
    if not isinstance(rules, dict):
        raise _wrong(path, "rules", rules, "a table a rule, e.g. [tool.gpudoctor.rules.GD601]")
    for rule, values in rules.items():
        if not isinstance(values, dict):
            raise _wrong(path, f"rules.{rule}", values, "a table of thresholds")
        for name, value in values.items():
            if not is_setting(value):
                expected = "a finite number within 64 bits, a text or a boolean"
                raise _wrong(path, f"rules.{rule}.{name}", value, expected)
    return {rule.upper(): dict(values) for rule, values in rules.items()}


def _tolerance(path: Path, table: Mapping[str, Any]) -> dict[str, float]:
    """Shares by counter; whether the counter exists is judged here, as a typing mistake would tolerate nothing."""
    given = table.get("tolerance", {})
    if not isinstance(given, dict):
        raise _wrong(path, "tolerance", given, 'a table, e.g. operators_per_step = "5%"')
    made: dict[str, float] = {}
    for name, value in given.items():
        if counting.kind(name) is None:
            hint = suggestion(name, counting.COUNTERS) or f"; the counters are {', '.join(counting.COUNTERS)}"
            raise UsageError(f"{path}: [tool.gpudoctor.tolerance] has no counter {name!r}{hint}")
        share = _share(value)
        if share is None:
            raise _wrong(path, f"tolerance.{name}", value, 'a share of 0 or more, e.g. "5%" or 0.05')
        made[name] = share
    return made


def _share(value: object) -> float | None:
    """A share given as a number or as a percentage in a text; None for anything else."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            value = float(value.strip().removesuffix("%")) / 100
        except ValueError:
            return None
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if number and isinstance(value, int | float) and value >= 0 else None


def _wrong(path: Path, key: str, value: object, expected: str) -> UsageError:
    return UsageError(f"{path}: tool.gpudoctor.{key} is {value!r}; it must be {expected}")
