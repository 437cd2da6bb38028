"""`gpudoctor explain RULE…`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpudoctor.cli.output import print_rich, standard_output, text_width

_WIDTH = 120
"""Widest text: longer lines are hard to read."""


def explain(
    rules: Annotated[list[str], typer.Argument(help="Rules by id or name, e.g. GD101 or graph-break.", metavar="RULE")],
) -> None:
    """Explain rules: what each finds, why that costs time, how to fix it, and when it is wrong."""
    from gpudoctor.config import load_config
    from gpudoctor.engine.docs import rule_page
    from gpudoctor.engine.rulefile import find_rule, load_rules

    known = load_rules(load_config(Path.cwd()).rule_dirs)
    found = [find_rule(known, word) for word in rules]
    width = text_width(_WIDTH)
    if width is None:  # a pipe gets the Markdown as it is: no padding, links in one piece
        with standard_output() as stream:
            stream.write("\n".join(rule_page(rule) for rule in found))
        return
    from rich.markdown import Markdown

    for rule in found:
        print_rich(Markdown(rule_page(rule), hyperlinks=False), width)
