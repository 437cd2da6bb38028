"""Writes docs/diagnosis.schema.json, the JSON Schema of a Diagnosis; --check only says whether it is up to date."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from gpudoctor.diagnosis import SCHEMA, json_schema

PATH = Path(__file__).resolve().parent.parent / "docs" / "diagnosis.schema.json"


def schema_text() -> str:
    """The schema as it is published: draft and title first, two spaces, a newline at the end."""
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"gpudoctor diagnosis, schema {SCHEMA}",
        **json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the file; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="do not write; exit 1 when the file is out of date")
    parser.add_argument("--path", type=Path, default=PATH, help="file to write or check")
    args = parser.parse_args(argv)
    wanted = schema_text()
    if args.check:
        if args.path.is_file() and args.path.read_text(encoding="utf-8") == wanted:
            return 0
        print(f"{args.path.name} is out of date; run `make docs` and commit the result", file=sys.stderr)
        return 1
    args.path.write_text(wanted, encoding="utf-8")
    print(f"wrote {args.path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
