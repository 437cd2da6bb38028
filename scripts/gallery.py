"""Writes docs/gallery: the reports of four recordings, the same ones each time.

python scripts/gallery.py [--check]

Three are of programs on the synthetic machine of the tests, one is of an allocator snapshot that the tests build. With
`--check` nothing is written, and the exit code is 1 where a page differs from what the recording gives now.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from gpudoctor.diagnose import diagnose  # noqa: E402
from gpudoctor.engine.rulefile import load_rules  # noqa: E402
from gpudoctor.ingest import open_path  # noqa: E402
from gpudoctor.reporters import html  # noqa: E402
from tests.memory.gallery import full_device  # noqa: E402
from tests.synthetic import recording, trace  # noqa: E402
from tests.synthetic.programs import pairs  # noqa: E402

FOLDER = ROOT / "docs" / "gallery"


def _watched(rule: str) -> Callable[[Path], None]:
    return lambda place: recording(pairs.PAIRS[rule][0], place)  # type: ignore[arg-type,func-returns-value]


PAGES: dict[str, Callable[[Path], object]] = {
    "host-sync": _watched("GD301"),
    "loader-stall": _watched("GD601"),
    "exposed-communication": lambda place: trace(pairs.PAIRS["GD801"][0], place),
    "out-of-memory": full_device,
}
"""Name of the page → what makes its recording at a path."""


def render(name: str) -> str:
    """The page of a recording that is made anew."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / name
        PAGES[name](place)
        return html.render(diagnose(open_path(place), load_rules()))


def main() -> int:
    """Writes or checks the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    checking = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name in PAGES:
        page, file = render(name), FOLDER / f"{name}.html"
        if not file.is_file() or file.read_text(encoding="utf-8") != page:
            stale.append(name)
            if not checking:
                file.write_text(page, encoding="utf-8")
    if stale and checking:
        print(f"docs/gallery is not up to date: {', '.join(stale)}; run python scripts/gallery.py")
        return 1
    print(f"{len(PAGES)} pages, {len(stale)} {'stale' if checking else 'written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
