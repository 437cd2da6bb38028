"""The timeline: what is packed is what the tables have, and a browser can search, walk, zoom and sum it."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gpudoctor import timeline as packing
from gpudoctor.diagnosis import Diagnosis, Location, Timeline, from_json, to_json
from gpudoctor.reporters import html
from gpudoctor.timeline import timeline

from . import diagnoses
from .test_page import LOW_CONTRAST, OVERFLOWING, opened
from .timelines import STEP_NS, busy, large, step

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Report = Callable[[Diagnosis], str]


def unpacked(made: Timeline) -> list[dict[str, Any]]:
    data = zlib.decompress(base64.b64decode(made.columns))
    count = made.events
    wide = np.frombuffer(data[: 16 * count], "<u4").reshape(4, count)
    small = np.frombuffer(data[16 * count :], "u1").reshape(3, count)
    return [
        {
            "lane": made.lanes[small[0][at]].name,
            "row": int(small[1][at]),
            "kind": made.kinds[small[2][at]],
            "start": int(wide[0][at]) * made.unit_ns,
            "length": int(wide[1][at]) * made.unit_ns,
            "name": made.names[wide[2][at]],
            "place": made.places[wide[3][at] - 1] if wide[3][at] else None,
        }
        for at in range(count)
    ]


def test_every_event_is_there_with_its_lane_time_kind_and_line() -> None:
    made = timeline(busy())
    assert made is not None and (made.step, made.step_ns, made.left_out) == (3, STEP_NS, 0)
    events = {(event["lane"], event["name"]): event for event in unpacked(made)}
    assert [lane.name for lane in made.lanes] == ["phases", "main thread", "thread 2", "stream 7", "GPU idle"]
    linear = events["main thread", "aten::linear"]
    assert (linear["start"], linear["length"], linear["row"], linear["place"]) == (500_000, 2_000_000, 0, "train.py:43")
    assert events["main thread", "aten::addmm"]["row"] == 1 and events["main thread", "aten::addmm"]["place"] is None
    assert (events["stream 7", "ampere_sgemm"]["kind"], events["stream 7", "Memcpy HtoD"]["kind"]) == ("gemm", "memcpy")
    assert events["GPU idle", "idle: launch"]["length"] == 1_000_000
    phases = [event["name"] for event in unpacked(made) if event["lane"] == "phases"]
    assert phases == ["forward", "backward", "optimizer"]
    assert made.memory[-1] == (1_049_000, 49 << 20)


def test_events_of_a_row_follow_each_other_in_time() -> None:
    made = timeline(large(5000))
    assert made is not None
    keys = [(event["lane"], event["row"]) for event in unpacked(made)]
    assert len(set(keys)) == sum(keys[at] != keys[at - 1] for at in range(len(keys)))
    times = [event["start"] for event in unpacked(made) if event["lane"] == "main thread"]
    assert times == sorted(times)


def test_of_too_many_events_the_shortest_are_left_out_and_the_page_stays_small() -> None:
    made = timeline(large(packing.MOST_EVENTS + 5000))
    assert made is not None and made.events == packing.MOST_EVENTS
    assert 5000 <= made.left_out <= 5010
    assert len(html.render(replace(diagnoses.realistic(), timeline=made)).encode()) < 2_000_000


def test_a_step_of_hours_is_packed_in_coarser_units() -> None:
    hours = 3 * 3600 * 10**9
    made = timeline(step(ops=[{"name": "aten::mm", "start_ns": 1_000_000, "dur_ns": hours, "phase": "forward"}]))
    assert made is not None and made.unit_ns > 1
    assert unpacked(made)[-1]["length"] == pytest.approx(hours, rel=1e-6)


def test_without_a_profiled_step_there_is_none() -> None:
    assert timeline(step()) is None


def test_json_leaves_the_timeline_out() -> None:
    made = replace(diagnoses.realistic(), timeline=timeline(busy()))
    assert from_json(to_json(made)) == diagnoses.realistic()


def drawn() -> Diagnosis:
    return replace(diagnoses.realistic(), timeline=timeline(busy()))


def test_a_search_counts_and_a_selection_sums(browser: Browser, report: Report) -> None:
    with opened(browser, report(drawn())) as page:
        page.wait_for_selector("#tl[data-ready]")
        page.fill("#tl-search", "addmm")
        assert (
            page.locator("#tl-said").inner_text() == "2 events named like this, 4 ms in sum (nested ones count again)"
        )
        page.fill("#tl-search", "nothing like it")
        assert page.locator("#tl-said").inner_text() == "no event is named like this"
        page.locator("#tl").scroll_into_view_if_needed()
        edge = page.locator("#tl canvas").bounding_box()
        assert edge is not None
        page.keyboard.down("Shift")
        page.mouse.move(edge["x"] + 0.1 * edge["width"], edge["y"] + 30)
        page.mouse.down()
        page.mouse.move(edge["x"] + 0.5 * edge["width"], edge["y"] + 30, steps=4)
        page.mouse.up()
        page.keyboard.up("Shift")
        said = page.locator("#tl-said").inner_text()
        assert said.startswith("4 ms selected. main thread 1.5 ms (forward 1.5 ms)")
        assert "stream 7 4 ms (gemm 4 ms)" in said


def test_keys_walk_from_event_to_event_and_escape_lets_go(browser: Browser, report: Report) -> None:
    with opened(browser, report(drawn())) as page:
        page.wait_for_selector("#tl[data-ready]")
        page.focus("#tl")
        page.keyboard.press(".")
        assert (
            page.locator("#tl-said").inner_text().startswith("main thread: aten::linear · 2 ms · forward · train.py:43")
        )
        page.keyboard.press(".")
        assert "Optimizer.step#SGD" in page.locator("#tl-said").inner_text()
        page.keyboard.press("Escape")
        assert page.locator("#tl-said").inner_text() == ""


def test_a_finding_leads_to_its_events_and_an_event_to_its_findings(browser: Browser, report: Report) -> None:
    base = diagnoses.realistic()
    first = replace(base.findings[0], where=Location("train.py", 43))
    made = replace(base, findings=(first, *base.findings[1:]), timeline=timeline(busy()))
    with opened(browser, report(made)) as page:
        page.wait_for_selector("#tl[data-ready]")
        button = page.locator("button.on-timeline:visible").first
        button.click()
        said = page.locator("#tl-said")
        assert "2 events at train.py:43; the longest: ampere_sgemm" in said.inner_text()
        said.locator("a").first.click()
        assert page.evaluate("location.hash").startswith("#f-")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read(browser: Browser, report: Report, theme: str) -> None:
    with opened(browser, report(drawn()), 420, theme) as page:
        page.wait_for_selector("#tl[data-ready]")
        assert page.evaluate(OVERFLOWING) == []
        assert page.evaluate(LOW_CONTRAST) == []


def test_names_that_would_break_out_are_text(browser: Browser, report: Report) -> None:
    bad = "</script><img src=x onerror=alert(1)>\u202e" + "x" * 10_000
    op = {"name": bad, "start_ns": 2_000_000, "dur_ns": 9_000_000, "phase": bad, "file": bad, "line": 1}
    with opened(browser, report(replace(diagnoses.empty(), timeline=timeline(step(ops=[op]))))) as page:
        page.wait_for_selector("#tl[data-ready]")
        page.focus("#tl")
        page.keyboard.press(".")
        assert "</script><img src=x onerror=alert(1)>\\u202exxx" in page.locator("#tl-said").inner_text()
        assert page.locator("img").count() == 0


@pytest.mark.parametrize("name", ["realistic", "with a timeline", "empty", "compiled"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_violation(browser: Browser, report: Report, name: str, theme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is a development dependency")
    made = {
        "realistic": diagnoses.realistic,
        "with a timeline": drawn,
        "empty": diagnoses.empty,
        "compiled": diagnoses.compiled,
    }[name]()
    with opened(browser, report(made), theme=theme) as page:
        if made.timeline is not None:
            page.wait_for_selector("#tl[data-ready]")
        page.evaluate("document.querySelectorAll('details').forEach((item) => { item.open = true; })")
        found = axe.Axe().run(page).response["violations"]
        serious = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], rule["nodes"][0]["html"]) for rule in serious] == []
