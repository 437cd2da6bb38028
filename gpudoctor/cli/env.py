"""`gpudoctor env`: what gpudoctor finds on this machine, and what it can measure here."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from gpudoctor.cli.options import OutputFormat

HELP = """Show versions, processor, GPUs and the environment variables that matter, and which instruments work with this
torch. Imports torch, and looks at the GPUs."""


def env(
    output_format: Annotated[OutputFormat, typer.Option("--output-format", help="full or json.")] = OutputFormat.FULL,
) -> int:
    """See HELP."""
    import gpudoctor
    from gpudoctor.recorder import capabilities, machine, settings

    facts = {"gpudoctor": gpudoctor.__version__, **machine.facts(touch_cuda=True)}
    variables = {
        row["name"].removeprefix("env."): row["value"]
        for row in settings.read({})
        if row["name"].startswith("env.") and row["value"] is not None
    }
    instruments = capabilities.probe()
    if output_format is OutputFormat.JSON:
        sys.stdout.write(
            json.dumps({"machine": facts, "variables": variables, "instruments": instruments}, indent=2) + "\n"
        )
        return 0
    width = max(map(len, [*facts, *variables, *instruments]), default=0)
    for title, rows in (("machine", facts), ("environment variables", variables), ("instruments", instruments)):
        sys.stdout.write(f"{title}\n")
        for name, value in rows.items():
            sys.stdout.write(f"  {name:{width}}  {value}\n")
        if not rows:
            sys.stdout.write("  none of those that matter is set\n")
    return 0
