"""`gpudoctor explain RULE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def explain(rule: Annotated[str, typer.Argument(help="A rule's id or name, e.g. GD101 or graph-break.")]) -> None:
    """Explain a rule: what it finds, why that costs time, how to fix it, and when it is wrong."""
    from rich.console import Console
    from rich.markdown import Markdown

    from gpudoctor.config import load_config
    from gpudoctor.engine.docs import rule_page
    from gpudoctor.engine.rulefile import find_rule, load_rules

    found = find_rule(load_rules(load_config(Path.cwd()).rule_dirs), rule)
    Console().print(Markdown(rule_page(found), hyperlinks=False))
