"""The page as text: structure, escaping, policy, size. What needs a browser is in test_page.py."""

from __future__ import annotations

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from gpudoctor.diagnosis import Change, Diagnosis, Remedy, from_json
from gpudoctor.reporters import html
from gpudoctor.reporters.viewmodel import IN_FULL

from . import diagnoses

BLOCKS = {"p", "dt", "dd", "li", "h1", "h2", "h3", "h4", "th", "td", "summary", "button", "title"}
VOID = {"meta", "link", "br", "hr", "img", "input"}
HEADINGS = ("h1", "h2", "h3", "h4")


class Outline(HTMLParser):
    """Checks that elements nest, and collects ids, headings, links and text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: Counter[str] = Counter()
        self.headings: list[int] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in HEADINGS:
            self.headings.append(int(tag[1]))
        for name, value in attrs:
            self.attributes.append((tag, name, value or ""))
            if name == "id":
                self.ids[value or ""] += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

        if tag in BLOCKS:
            self.text.append(" ")

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.text.append(data)


def outline(page: str) -> Outline:
    parser = Outline()
    parser.feed(page)
    parser.close()
    return parser


def words(page: str) -> str:
    return " ".join("".join(outline(page).text).split())


@pytest.mark.parametrize("name", diagnoses.ALL)
def test_elements_nest_and_ids_are_unique(name: str) -> None:
    parsed = outline(html.render(diagnoses.ALL[name]()))
    assert parsed.open == []
    assert [id_ for id_, count in parsed.ids.items() if count > 1] == []
    assert all(re.fullmatch(r"[A-Za-z][\w.-]*", id_) for id_ in parsed.ids)


@pytest.mark.parametrize("name", diagnoses.ALL)
def test_headings_descend_one_level_at_a_time(name: str) -> None:
    levels = outline(html.render(diagnoses.ALL[name]())).headings
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


@pytest.mark.parametrize("name", diagnoses.ALL)
def test_nothing_is_loaded_styled_or_run_but_what_the_policy_hashes(name: str) -> None:
    page = html.render(diagnoses.ALL[name]())
    parsed = outline(page)
    for tag, attribute, value in parsed.attributes:
        assert attribute not in ("style", "src", "srcset", "background", "poster", "action"), f"<{tag} {attribute}>"
        assert not attribute.startswith("on")
        if attribute == "href":
            assert value.startswith(("#", "https://"))
    policy = next(v for tag, name, v in parsed.attributes if tag == "meta" and name == "content" and "default-src" in v)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for element in ("style", "script"):
        (inline,) = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy


def test_the_parts_come_in_order() -> None:
    text = words(html.render(diagnoses.realistic()))
    parts = [
        "gpudoctor train.py --epochs 3",
        "Up to 1.61 ms of it can be won back",
        "Step time",
        "Where the time goes",
        "What limits these numbers",
        "Findings 1 error, 3 warnings, 2 info",
        "torch.compile breaks the graph inside the step",
        "The step waits for the next batch",
        "Step times",
        "Accepted",
        "Not measured",
        "Passed",
        "Counts",
        "kernels not measured",
        "Environment",
        "Written by gpudoctor 0.1.0",
    ]
    at = 0
    for part in parts:
        at = text.index(part, at)


def test_a_finding_brings_everything_it_knows() -> None:
    text = words(
        html.render(replace(diagnoses.realistic(), findings=(diagnoses.graph_break(), diagnoses.read_in_the_branch())))
    )
    for part in (
        "error GD101 graph-break train.py:17",
        "≤ 1.61 ms/step estimated (upper bound)",
        "Dynamo breaks Net.forward at a data-dependent branch",
        "break, in Net.forward, module model",
        "17 ▶ if h.mean().item() > 0:",
        "train.py:22 torch.compile",
        "+ h = torch.where(h.mean() > 0, self.fc2(h), h)",
        "Risk Both sides are computed",
        "31 % of the step",
        "GB0170",
        "This explains",
        "Explained: the read is what breaks the graph.",
        "When this is wrong",
        "gpudoctor check train.py --select GD101 -- --epochs 3 --out 'runs/first try'",
        "# gpudoctor: ignore[GD101] reason",
        "#f-a1f09c3e77d2",
    ):
        assert part in text


def test_a_certain_change_comes_with_the_command_that_shows_and_applies_it() -> None:
    one = diagnoses.graph_break()
    change = Change("keywords", "train.py", 17, {}, "0" * 64)
    certain = replace(one, remedy=Remedy("a", "b", "--- a/train.py\n", change=change))
    run = diagnoses.realistic().run
    command = "gpudoctor fix --rule GD101 --dry-run"
    assert command in html.render(Diagnosis(run, findings=(certain,)))
    for run_, finding in (
        (run, one),
        (run, replace(certain, accepted="why")),
        (replace(run, source="trace"), certain),
    ):
        assert "gpudoctor fix" not in html.render(Diagnosis(run_, findings=(finding,)))


def test_the_first_three_findings_are_open() -> None:
    page = html.render(diagnoses.realistic())
    heads = re.findall(r"<details class=\"finding \w+\" id=\"[^\"]+\"( open)?>", page)
    assert heads == [" open", " open", " open", "", ""]


def test_strings_of_the_run_never_become_elements() -> None:
    page = html.render(diagnoses.hostile())
    parsed = outline(page)
    tags = {tag for tag, _, _ in parsed.attributes}
    assert "img" not in tags
    assert page.count("</script>") == 2
    assert "<b>&" not in page
    assert "javascript:" not in [v[:11] for _, name, v in parsed.attributes if name == "href"]
    assert "{{ 7*7 }}" in words(page)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", page)
    page.encode("utf-8")


@pytest.mark.parametrize("name", ["realistic", "clean", "empty"])
def test_the_data_reads_back_as_the_diagnosis(name: str) -> None:
    diagnosis = diagnoses.ALL[name]()
    page = html.render(diagnosis)
    (data,) = re.findall(r'<script type="application/json" id="diagnosis">(.*?)</script>', page, re.DOTALL)
    assert "<" not in data
    assert from_json(data) == diagnosis


def test_a_typical_page_is_small_and_the_largest_can_be_mailed() -> None:
    assert len(html.render(diagnoses.realistic()).encode()) < 250_000
    assert len(html.render(diagnoses.many()).encode()) < 2_000_000


def test_findings_past_the_limit_get_a_line_each() -> None:
    page = html.render(diagnoses.many())
    assert page.count('<details class="finding') == IN_FULL
    assert "Break number 499 costs time." in page
    assert "read it in diagnosis.json" in page


def test_empty_states_say_what_is_missing() -> None:
    text = words(html.render(diagnoses.empty()))
    for part in (
        "Inconclusive: no training step was seen.",
        "Step time not measured",
        "Graph breaks not measured",
        "Not measured: no profiled step shows it.",
        "No rule could be judged on this run, so nothing can be said.",
        "No step was seen, so there is nothing to draw.",
        "No finding was accepted.",
        "The recording says nothing about the machine.",
    ):
        assert part in text


def test_a_clean_page_says_on_how_many_rules_nothing_was_found() -> None:
    assert "Nothing found on the 1 rule judged." in words(html.render(diagnoses.clean()))


def test_what_was_not_measured_is_told_with_its_reason_and_remedy() -> None:
    text = words(html.render(diagnoses.realistic()))
    assert "GD201 small-kernel-storm GD202 launch-bound" in text
    assert "Why this run has no GPU activity How to get it run gpudoctor check on a machine with a GPU" in text


def test_the_same_diagnosis_gives_the_same_page() -> None:
    assert html.render(diagnoses.realistic()) == html.render(diagnoses.realistic())


def test_the_critical_path_and_what_all_fixes_save_are_on_the_page() -> None:
    base = diagnoses.replayed()
    text = words(html.render(base))
    assert "What the step hangs on Step 5, 5.69 ms: no fix elsewhere makes it shorter." in text
    assert "1.10 ms 20 % GPU: gemm, stream 7 train.py:17 600 µs" in text
    assert "900 µs 16 % 13 smaller owners 6 steps replayed unchanged: < 0.1 % off" in text
    assert (
        "Fixed together, the 2 findings that a replay can price save "
        "1.41 to 2.11 ms/step, 28 to 41 % of the step, simulated (upper bound)." in text
    )
    assert "14 % of the step; 210 µs of it on top of the findings above · simulated" in text
    assert "≤ 1.50 GiB of memory · estimated" in text
    assert text.count("replayed unchanged") == 1
    assert words(html.render(replace(base, critical_path=None))).count("replayed unchanged") == 1


def test_a_refused_replay_limits_the_numbers() -> None:
    base = diagnoses.replayed()
    assert base.replay is not None
    text = words(html.render(replace(base, replay=replace(base.replay, refused="half is missing", together=None))))
    assert "no saving was simulated: half is missing" in text
    assert "replayed unchanged" not in text
