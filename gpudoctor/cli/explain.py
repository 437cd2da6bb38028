"""`gpudoctor explain RULE…`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(
    rules: Annotated[list[str], typer.Argument(help="Rules by id or name, e.g. GD101 or graph-break.", metavar="RULE")],
) -> None:
    """Explain rules: what each finds, why that costs time, how to fix it, and when it is wrong."""
    from rich.console import Console
    from rich.markdown import Markdown

    from gpudoctor.config import load_config
    from gpudoctor.engine.docs import rule_page
    from gpudoctor.engine.rulefile import find_rule, load_rules

    known = load_rules(load_config(Path.cwd()).rule_dirs)
    found = [find_rule(known, word) for word in rules]
    console = Console()
    for rule in found:
        console.print(Markdown(rule_page(rule), hyperlinks=False))
