"""Reads one side of a comparison: a recording, a folder of recordings, a trace, or diagnoses in JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpudoctor.config import Config
from gpudoctor.diagnose import diagnose
from gpudoctor.diagnosis import Diagnosis, from_json, is_diagnosis
from gpudoctor.engine.rule import Rule
from gpudoctor.errors import InputError
from gpudoctor.ingest import open_path
from gpudoctor.recording import is_recording


@dataclass(frozen=True, slots=True)
class SideInput:
    """One revision as it was read.

    Attributes:
        diagnoses: of its runs.
        sources: text of the user's files by path; empty where only a diagnosis is there.
    """

    diagnoses: tuple[Diagnosis, ...]
    sources: Mapping[str, str] = field(default_factory=dict)


def read(path: Path, rules: Sequence[Rule], config: Config) -> SideInput:
    """Reads one side.

    Raises:
        InputError: there is no such path, nothing that can be read, or runs of several scripts.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; record a run with `gpudoctor check train.py`")
    many = sorted(child for child in path.iterdir() if _readable(child)) if _is_plain_folder(path) else []
    if not many:
        return _one(path, rules, config)
    sides = [_one(child, rules, config) for child in many]
    scripts = {one.diagnoses[0].run.script for one in sides}
    if len(scripts) > 1:
        names = ", ".join(sorted(scripts))
        raise InputError(f"{path}: recordings of several scripts ({names}); name one of them")
    return SideInput(tuple(one.diagnoses[0] for one in sides), sides[0].sources)


def _is_plain_folder(path: Path) -> bool:
    return path.is_dir() and not is_recording(path)


def _readable(path: Path) -> bool:
    return not path.is_symlink() and (is_recording(path) if path.is_dir() else is_diagnosis(path))


def _one(path: Path, rules: Sequence[Rule], config: Config) -> SideInput:
    if is_diagnosis(path):
        return SideInput((from_json(path.read_bytes(), str(path)),))
    profile = open_path(path)
    return SideInput((diagnose(profile, rules, config),), profile.sources)
