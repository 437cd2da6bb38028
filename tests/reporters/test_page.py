"""The page in a real browser: nothing leaves, nothing overflows, everything can be read and reached."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from gpudoctor.diagnosis import Diagnosis

from . import diagnoses
from .conftest import SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Report = Callable[[Diagnosis], str]

WIDTHS = (420, 800, 1280)
THEMES = ("light", "dark")

LOW_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const channel = (v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0) return color;
    }
    throw new Error("no background");
  };
  const low = [];
  for (const node of document.querySelectorAll("body, body *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest("script, style, title") || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const a = luminance(parse(node.closest("svg") ? style.fill : style.color));
    const b = luminance(ground(node.closest("svg") ? node.closest("div, section") : node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${node.className || node.tagName} ${ratio.toFixed(2)} ${node.textContent.slice(0, 40)}`);
  }
  return low;
}"""

OVERFLOWING = """() => {
  const root = document.documentElement;
  if (root.scrollWidth <= root.clientWidth) return [];
  return [...document.querySelectorAll("body *")]
    .filter((node) => node.getBoundingClientRect().right > root.clientWidth && !node.closest(".scroll, pre, .copy"))
    .map((node) => `${node.tagName}.${node.className.baseVal ?? node.className}`);
}"""


@contextmanager
def opened(browser: Browser, address: str, width: int = 1280, theme: str = "light", **options: Any) -> Iterator[Page]:
    """A page that has recorded every request and console message in `page.seen`."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, offline=True, **options)
    page = context.new_page()
    seen: list[str] = []
    page.on("request", lambda request: seen.append(f"request {request.url}"))
    page.on("console", lambda message: seen.append(f"console {message.text}"))
    page.on("pageerror", lambda error: seen.append(f"error {error}"))
    page.goto(address)
    yield page
    context.close()
    assert [line for line in seen if line != f"request {address}"] == []


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", diagnoses.ALL)
def test_no_request_no_complaint_and_no_sideways_scrolling(
    browser: Browser, report: Report, name: str, width: int, theme: str
) -> None:
    with opened(browser, report(diagnoses.ALL[name]()), width, theme) as page:
        assert page.evaluate(OVERFLOWING) == []
        page.keyboard.press("e")
        assert page.evaluate(OVERFLOWING) == []


@pytest.mark.parametrize("theme", THEMES)
def test_text_has_the_contrast_that_wcag_asks_for(browser: Browser, report: Report, theme: str) -> None:
    with opened(browser, report(diagnoses.realistic()), theme=theme) as page:
        page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        assert page.evaluate(LOW_CONTRAST) == []


def test_without_scripts_everything_is_there_and_opens(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic()), java_script_enabled=False) as page:
        text = " ".join((page.locator("body").text_content() or "").split())
        for finding in diagnoses.realistic().findings:
            assert finding.title in text
        assert "Keep loss.detach() and read the list once an epoch." in text
        closed = page.locator("details.finding").nth(4)
        assert not closed.locator(".body").is_visible()
        closed.locator("summary").click()
        assert closed.locator(".body").is_visible()
        assert not page.locator("#expand").is_visible()
        assert not page.locator("#keys").is_visible()


def test_j_and_k_walk_through_the_findings(browser: Browser, report: Report) -> None:
    focused = "document.activeElement.closest('details')?.id"
    first, second = "f-a1f09c3e77d2", "f-77b2e0aa1c9f"
    with opened(browser, report(diagnoses.realistic())) as page:
        reached = []
        for key in "jjkk":
            page.keyboard.press(key)
            reached.append(page.evaluate(focused))
        assert reached == [first, second, first, first]
        for _ in range(10):
            page.keyboard.press("j")
        assert page.evaluate(focused) == "f-e6a0b9d1f3c4"
        page.keyboard.press("Enter")
        assert page.locator("#f-e6a0b9d1f3c4 .body").is_visible()


def test_e_expands_all_and_then_collapses_all(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic())) as page:
        page.keyboard.press("e")
        assert page.locator("details.finding:not([open])").count() == 0
        assert page.locator("#expand").inner_text() == "Collapse all"
        page.keyboard.press("e")
        assert page.locator("details.finding[open]").count() == 0
        page.locator("#expand").click()
        assert page.locator("details.finding:not([open])").count() == 0


def test_a_permalink_opens_its_finding(browser: Browser, report: Report) -> None:
    address = report(diagnoses.realistic())
    with opened(browser, address) as page:
        page.evaluate("location.hash = '#f-e6a0b9d1f3c4'")
        page.locator("#f-e6a0b9d1f3c4 .body").wait_for(state="visible")


def test_the_first_tab_stop_skips_to_the_findings(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic())) as page:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the findings"
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('#findings') !== null")


def test_focus_can_be_seen(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic())) as page:
        page.keyboard.press("j")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_print_opens_every_finding_and_cuts_no_code(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic()), java_script_enabled=False) as page:
        page.emulate_media(media="print")
        assert page.locator("details.finding .body").evaluate_all("all => all.every(b => b.offsetHeight > 0)")
        assert page.locator("pre").evaluate_all("all => all.every(p => p.scrollWidth <= p.clientWidth)")


def test_landmarks_are_there_and_sections_have_names(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic())) as page:
        for role in ("banner", "main", "contentinfo"):
            assert page.get_by_role(role).count() == 1
        for name in ("Findings", "Step times", "Not measured", "Environment"):
            assert page.get_by_role("region", name=name).count() == 1
        assert page.get_by_role("img", name=re.compile("Bar chart of step times")).count() == 1


def test_severity_is_told_by_word_and_by_shape(browser: Browser, report: Report) -> None:
    with opened(browser, report(diagnoses.realistic())) as page:
        heads = page.locator("details.finding > summary")
        words = [heads.nth(n).locator(".word").inner_text() for n in range(5)]
        shapes = [heads.nth(n).locator("use").get_attribute("href") for n in range(5)]
        assert words == ["error", "warning", "warning", "warning", "info"]
        assert shapes == [f"#mark-{word}" for word in words]


def test_screenshot_writes_a_picture_of_the_asked_size(browser: Browser, report: Report, tmp_path: Path) -> None:
    file = url2pathname(urlsplit(report(diagnoses.clean())).path)
    picture = tmp_path / "out.png"
    options = ["--width", "500", "--height", "300", "--theme", "dark"]
    subprocess.run([sys.executable, SCRIPT, file, picture, *options], check=True, capture_output=True)
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20]), int.from_bytes(head[20:24])) == (500, 300)


def test_screenshot_without_a_report_or_a_browser_says_so(
    screenshot: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert screenshot.main([str(tmp_path / "none.html"), str(tmp_path / "out.png")]) == 2
    assert "no file" in capsys.readouterr().err
    report = tmp_path / "report.html"
    report.write_text("<p>", encoding="utf-8")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert screenshot.main([str(report), str(tmp_path / "out.png")]) == 2
    assert "no browser found on PATH" in capsys.readouterr().err
