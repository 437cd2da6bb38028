"""`gpudoctor fix`: apply the certain remedies of a diagnosis to the files that it is about."""

from __future__ import annotations

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
one with changes that git has not committed: commit them first, so that the fix can be told from them."""


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
    previews = {one.id for one in rules if one.status == "preview" and not (preview or config.preview)}
    diagnosis = _diagnosis(path, config, rules)
    found = plan(
        diagnosis,
        lambda name: patching.read_text(folder, name),
        chosen=lambda finding: chosen is None or finding.rule in chosen,
        previews=previews,
    )
    if found.stale:
        raise UsageError(_stale(found, path))
    if apply and found.patches:
        dirty = [] if allow_dirty else patching.uncommitted(folder, [patch.file for patch in found.patches])
        if dirty:
            raise UsageError(
                f"{', '.join(dirty)}: changes that are not committed; commit or stash them, or pass --allow-dirty. "
                "Nothing was written"
            )
        patching.write(folder, found.patches)
    with standard_output() as stream:
        stream.write("".join(patch.diff for patch in found.patches))
    _summary(found, apply)
    return 0


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
    raise InputError(f"{path}: no recording and no diagnosis; record a run with `gpudoctor check train.py`")


def _stale(found: Plan, path: Path) -> str:
    said = "; ".join(f"{stale.file} {stale.reason}" for stale in found.stale)
    home = path.resolve().parent.parent
    elsewhere = path.resolve().parent.name == ".gpudoctor" and home != Path.cwd()
    how = f"run this in {home}" if elsewhere else "run `gpudoctor check` again"
    return f"{said}, so its lines may be others now; {how}. Nothing was written"


def _summary(found: Plan, applied: bool) -> None:
    """What was done and what was left alone, on standard error: standard output is the diff."""
    from gpudoctor.fix import counted
    from gpudoctor.reporters.wording import one_line, place
    from gpudoctor.units import plural

    for patch in found.patches:
        for finding in patch.findings:
            risk = finding.remedy.risk if finding.remedy else None
            say(f"gpudoctor: {finding.rule} {place(finding.where)}: risk: {one_line(risk) if risk else 'none known'}")
    for left in found.left:
        say(f"gpudoctor: left alone: {left.finding.rule} {place(left.finding.where)}: {one_line(left.reason)}")
    number = sum(counted(found.patches).values())
    if not number:
        say("gpudoctor: there is nothing that can be fixed with certainty")
    elif applied:
        files = plural(len(found.patches), "file")
        say(f"gpudoctor: {plural(number, 'fix', 'fixes')} applied to {files}; check again to see what they are worth")
    else:
        say(f"gpudoctor: {plural(number, 'fix', 'fixes')} can be applied: `gpudoctor fix --apply`")
