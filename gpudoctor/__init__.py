"""gpudoctor: why a PyTorch training step is slow, with evidence from that very run.

The package is light to import: nothing here pulls in torch, pandas or duckdb before it is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpudoctor.stepping import step

if TYPE_CHECKING:
    from gpudoctor.api import analyze, check, load, record

__version__ = "0.1.0"
__all__ = ["__version__", "analyze", "check", "load", "record", "step"]


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gpudoctor` in a notebook: adds the cell magic `%%gpudoctor`."""
    from gpudoctor import magic

    magic.register(shell)


def __getattr__(name: str) -> Any:
    if name in {"analyze", "check", "load", "record"}:
        from gpudoctor import api

        return getattr(api, name)
    raise AttributeError(f"module 'gpudoctor' has no attribute {name!r}")
