"""`gpudoctor fix`: apply the certain remedies of a diagnosis to the files that it is about."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpudoctor.cli.output import say, standard_output
from gpudoctor.errors import InputError, UsageError

if TYPE_CHECKING:
    from gpudoctor.config import Config
    from gpudoctor.diagnosis import Diagnosis
    from gpudoctor.engine.rule import Rule
    from gpudoctor.fix import Plan

HELP = """Show, as a diff, the fixes of the newest recording that are certain; with --apply, make them.

Run it in the folder in which the run was recorded. A file that changed since then is an error, and so is, with --apply,
one with changes that git has not committed: commit them first, so that the fix can be told from them. The diff is
printed, and kept beside the recording, before a file is changed."""


def fix(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Recording folder, or a diagnosis.json.")] = Path(
        ".gpudoctor/latest"
    ),
    rule: Annotated[
        list[str] | None,
        typer.Option("--rule", metavar="RULE", help="Only these rules: ids, names, beginnings of ids. Repeatable."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply/--dry-run", help="Change the files, or only show what would change.")
    ] = False,
    allow_dirty: Annotated[
        bool, typer.Option("--allow-dirty", help="Change files that have uncommitted changes as well.")
    ] = False,
    preview: Annotated[bool, typer.Option("--preview", help="Apply fixes of preview rules as well.")] = False,
) -> int:
    """See HELP."""
    from dataclasses import replace

    from gpudoctor import patching
    from gpudoctor.config import load_config
    from gpudoctor.engine.rulefile import load_rules
    from gpudoctor.engine.run import select_rules
    from gpudoctor.fix import plan

    folder = Path.cwd()
    config = load_config(folder)
    rules = load_rules(config.rule_dirs)
    words = tuple(part for word in rule or () for part in word.replace(",", " ").split())
    chosen = {one.id for one in select_rules(rules, replace(config, select=words))} if words else None
    found = plan(
        _diagnosis(path, config, rules),
        rules,
        lambda name: patching.read(folder, name),
        chosen=lambda finding: chosen is None or finding.rule in chosen,
        previews=preview or config.preview,
    )
    if found.stale:
        raise UsageError(_stale(found, path))
    if apply:
        _check(folder, found, allow_dirty)
    diff = "".join(patch.diff for patch in found.patches)
    with standard_output() as stream:
        stream.write(diff)
    if apply and found.patches:
        saved = _saved(diff, path)
        patching.write(folder, found.patches)
        if saved is not None:
            say(f"gpudoctor: the diff is kept: `git apply -R {shlex.quote(saved)}` takes it back")
    _summary(found, rules, apply)
    return 0


def _check(folder: Path, found: Plan, allow_dirty: bool) -> None:
    """Raises UsageError where a file must not be changed."""
    from gpudoctor import patching
    from gpudoctor.reporters.wording import one_line
    from gpudoctor.uncommitted import uncommitted

    dirty = {} if allow_dirty else uncommitted(folder, [patch.file for patch in found.patches])
    if dirty:
        said = "; ".join(f"{one_line(name)}: {one_line(reason)}" for name, reason in dirty.items())
        raise UsageError(f"{said}. Commit or stash them, or pass --allow-dirty. Nothing was written")
    patching.check_writable(folder, found.patches)


def _saved(diff: str, path: Path) -> str | None:
    """Puts the diff beside the recording, before a file is changed; where, or None when there is no place for it."""
    if not path.is_dir():
        return None
    path = _lasting(path)
    for number in range(1, 1000):
        target = path / ("fix.patch" if number == 1 else f"fix-{number}.patch")
        try:
            with target.open("x", encoding="utf-8", newline="") as file:
                file.write(diff)
            return str(target)
        except FileExistsError:
            continue
        except OSError:
            return None
    return None


def _lasting(path: Path) -> Path:
    """The folder by the name that it keeps: a link such as `latest` leads elsewhere after the next run."""
    real, here = path.resolve(), Path.cwd().resolve()
    return real.relative_to(here) if real.is_relative_to(here) else real


def _diagnosis(path: Path, config: Config, rules: tuple[Rule, ...]) -> Diagnosis:
    """The stored diagnosis; that of a recording without one is made."""
    from gpudoctor.diagnosis import from_json
    from gpudoctor.recording import is_recording

    stored = path / "diagnosis.json" if path.is_dir() else path
    if stored.is_file():
        try:
            return from_json(stored.read_bytes(), str(stored))
        except OSError as error:
            raise InputError(f"{stored}: cannot be read ({error.strerror or error})") from None
    if is_recording(path):
        from gpudoctor.diagnose import diagnose
        from gpudoctor.ingest import open_path

        return diagnose(open_path(path), rules, config)
    raise InputError(
        f"{path}: no recording and no diagnosis; {_above(path) or 'record a run with `gpudoctor check train.py`'}"
    )


def _above(path: Path) -> str | None:
    """Where the recordings of a folder above are, for somebody who stands in a sub-folder of the same git work tree.

    Further up, or without git, they may be somebody else's.
    """
    from gpudoctor.recording import HOME

    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), None)
    if path.parts[:1] != (HOME,) or root is None:
        return None
    for levels, folder in enumerate(here.parents, start=1):
        if not folder.is_relative_to(root):
            break
        if (folder / path).exists():
            return f"{'../' * levels}{HOME} has recordings: run this in {folder}"
    return None


def _stale(found: Plan, path: Path) -> str:
    from gpudoctor.recording import HOME
    from gpudoctor.reporters.wording import one_line

    said = "; ".join(f"{one_line(stale.file)} {one_line(stale.reason)}" for stale in found.stale)
    home = next((above.parent for above in path.resolve().parents if above.name == HOME), None)
    elsewhere = home is not None and home != Path.cwd().resolve()
    how = f"run this in {home}" if elsewhere else "run `gpudoctor check` again"
    return f"{said}, so its lines may be others now; {how}. Nothing was written"


def _summary(found: Plan, rules: tuple[Rule, ...], applied: bool) -> None:
    """What was done and what was left alone, on standard error: standard output is the diff."""
    from gpudoctor.fix import counted
    from gpudoctor.fixable import remedy_of
    from gpudoctor.reporters.wording import one_line, place
    from gpudoctor.units import plural

    by_id = {rule.id: rule for rule in rules}
    for patch in found.patches:
        for finding in patch.findings:
            remedy = remedy_of(finding, by_id.get(finding.rule))
            risk = one_line(remedy.risk) if remedy is not None and remedy.risk else "none known"
            say(f"gpudoctor: {finding.rule} {place(finding.where)}: risk: {risk}")
    for left in found.left:
        rule = one_line(left.finding.rule)
        say(f"gpudoctor: left alone: {rule} {place(left.finding.where)}: {one_line(left.reason)}")
    number = sum(counted(found.patches).values())
    if not number:
        say("gpudoctor: there is nothing that can be fixed with certainty")
    elif applied:
        files = plural(len(found.patches), "file")
        say(f"gpudoctor: {plural(number, 'fix', 'fixes')} applied to {files}; check again to see what they are worth")
    else:
        say(f"gpudoctor: {plural(number, 'fix', 'fixes')} can be applied: `gpudoctor fix --apply`")
