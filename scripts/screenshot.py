"""Takes a picture of a report in a headless Chromium, without a network.

python scripts/screenshot.py REPORT.html OUT.png [--width 1280] [--height 900] [--theme light|dark] [--full]
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BROWSERS = ("chromium", "chromium-browser", "google-chrome")

_FLAGS = (
    "--no-sandbox",  # containers rarely allow the sandbox; the page is our own file
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowserError(Exception):
    """No browser, or no Playwright to drive it; the text says what to install."""


def find_browser() -> str:
    """Path of the first of `BROWSERS` on the PATH.

    Raises:
        NoBrowserError: none is there.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        raise NoBrowserError(f"no browser found on PATH (looked for {', '.join(BROWSERS)}); install Chromium")
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless browser, closed at the end.

    Raises:
        NoBrowserError: no browser, or no Playwright.
    """
    executable = find_browser()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NoBrowserError("Playwright is not installed: pip install 'gpudoctor[dev]'") from None
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=executable, args=list(_FLAGS))
        try:
            yield opened
        finally:
            opened.close()


def main(argv: list[str] | None = None) -> int:
    """Takes the picture; 2 when there is no report or no browser."""
    parser = argparse.ArgumentParser(description="Takes a picture of a report.")
    parser.add_argument("report", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--width", type=int, default=1280, help="pixels (default 1280)")
    parser.add_argument("--height", type=int, default=900, help="pixels (default 900)")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--full", action="store_true", help="the whole page, however long")
    arguments = parser.parse_args(argv)
    if not arguments.report.is_file():
        print(f"screenshot: no file {arguments.report}", file=sys.stderr)
        return 2
    try:
        with browser() as opened:
            page = opened.new_page(
                viewport={"width": arguments.width, "height": arguments.height},
                color_scheme=arguments.theme,
                offline=True,
            )
            page.goto(arguments.report.resolve().as_uri())
            page.screenshot(path=arguments.picture, full_page=arguments.full)
    except NoBrowserError as error:
        print(f"screenshot: {error}", file=sys.stderr)
        return 2
    print(arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
