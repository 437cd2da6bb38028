"""The tables of a Profile, declared once, by theme."""

from __future__ import annotations

from gpudoctor.schema import (
    autograd,
    code,
    compiling,
    core,
    devices,
    generated,
    growth,
    inputs,
    loop,
    memory,
    patterns,
    precision,
    replay,
)
from gpudoctor.schema.declare import Column, Table

__all__ = ["SCHEMA_VERSION", "TABLES", "Column", "Table"]

SCHEMA_VERSION = 6
"""Bumped when a table or column changes its meaning: a Parquet cache of another version is rebuilt."""

_THEMES = (
    *(core, devices, inputs, compiling, generated, code, patterns, precision, autograd),
    *(loop, growth, memory, replay),
)

TABLES: dict[str, Table] = {table.name: table for theme in _THEMES for table in theme.TABLES}
