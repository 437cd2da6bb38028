"""The report as one self-contained page: no network, a strict content-security policy, every string escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from gpudoctor.diagnosis import Diagnosis
from gpudoctor.reporters import json as json_format
from gpudoctor.reporters.viewmodel import page
from gpudoctor.reporters.wording import BIDI
from gpudoctor.resources import templates_dir

_DATA_LIMIT_BYTES = 600_000
"""The diagnosis rides along as JSON up to this size: a report stays below 2 MB, which mail and CI artifacts take."""

_JSON_ESCAPES = str.maketrans({c: f"\\u{ord(c):04x}" for c in (*"<>&\u2028\u2029", *BIDI)})


def page_of(template: str, view: object, data: str) -> str:
    """A page without a script of its own, by its template.

    Args:
        template: file in the templates' folder.
        view: what it shows, as `page`.
        data: JSON that rides along, unless it is too large.
    """
    folder = templates_dir()
    style = _asset(folder / "style.css")
    text = _escaped(msgspec.json.format(data, indent=-1))
    carried = text if len(text.encode()) <= _DATA_LIMIT_BYTES else None
    policy = f"default-src 'none'; style-src 'sha256-{_hash(style)}'; base-uri 'none'; form-action 'none'"
    made = _environment(folder).get_template(template)
    return made.render(page=view, data=carried, style=Markup(style), policy=policy)


def render(diagnosis: Diagnosis) -> str:
    """The page as text; write it as UTF-8."""
    folder = templates_dir()
    view = page(diagnosis)
    style, script = _asset(folder / "style.css"), _asset(folder / "app.js")
    return (
        _environment(folder)
        .get_template("report.html")
        .render(
            page=view,
            data=_data(diagnosis),
            timeline=_escaped(view.timeline.data) if view.timeline else None,
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
        )
    )


@cache
def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )


@cache
def _asset(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A policy that allows the page's own style and script by their hashes, and nothing else."""
    return (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src 'sha256-{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _data(diagnosis: Diagnosis) -> Markup | None:
    r"""The diagnosis for machines; ``<`` is written ``\u003c``, so that no string in it can end the script element."""
    text = _escaped(msgspec.json.format(json_format.render(diagnosis), indent=-1))
    return text if len(text.encode()) <= _DATA_LIMIT_BYTES else None


def _escaped(text: str) -> Markup:
    return Markup(text.translate(_JSON_ESCAPES))
