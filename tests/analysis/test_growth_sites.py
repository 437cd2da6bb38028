"""Where the source adds to what grows, and whether it takes out of it or begins anew."""

from __future__ import annotations

import pytest

from gpudoctor.analysis.growth_sites import GrowthSites, Site

LOOP = """\
kept = []
for x in loader:
    loss = step(x)
    {}
print(len(kept))
"""


def variable(text: str, name: str = "kept", function: str | None = None) -> Site | None:
    return GrowthSites({"train.py": text}).variable("train.py", function, name)


def attribute(text: str, name: str = "kept") -> Site | None:
    return GrowthSites({"train.py": text}).attribute(name)


@pytest.mark.parametrize(
    "statement",
    [
        *("kept.append(loss)", "kept += [loss]", "kept += loss", "kept = kept + loss", "kept.extend((loss, x))"),
        *(
            "kept[len(kept)] = loss",
            "kept['a'].append(loss)",
            "kept.setdefault('a', []).append(loss)",
            "kept['a'] += loss",
        ),
        *("kept = torch.cat([kept, loss])", "kept.add_(loss)", "kept.appendleft(loss)", "kept.update({x: loss})"),
    ],
)
def test_the_statement_that_adds(statement: str) -> None:
    site = variable(LOOP.format(statement))
    assert site == Site("train.py", 4, None, (), bounded=False, emptied=False)


@pytest.mark.parametrize("statement", ["kept = loss", "print(kept)", "kept.sort()", "y = kept[0]", "lost.append(kept)"])
def test_other_statements_do_not(statement: str) -> None:
    assert variable(LOOP.format(statement)) is None


@pytest.mark.parametrize(
    "statement",
    [
        "kept.pop(0)",
        "kept.popleft()",
        "del kept[0]",
        "del kept[:-5]",
        "kept = kept[-5:]",
        "kept[n % 10] = loss",
        "kept.remove(x)",
    ],
)
def test_what_is_taken_out_of_is_bounded(statement: str) -> None:
    site = variable(LOOP.format(f"kept.append(loss)\n    {statement}"))
    assert site is not None
    assert (site.line, site.bounded) == (4, True)


def test_what_is_made_anew_in_an_outer_loop_is_emptied() -> None:
    text = "for epoch in range(3):\n    kept, n = [], 0\n    for x in loader:\n        kept.append(x)\n"
    site = variable(text)
    assert site is not None
    assert site.emptied
    assert (site2 := variable(text.replace("kept, n = [], 0", "pass"))) is not None
    assert not site2.emptied


@pytest.mark.parametrize("emptying", ["kept.clear()", "kept = []", "kept: list = []"])
def test_what_is_emptied_now_and_then(emptying: str) -> None:
    site = variable(LOOP.format(f"kept.append(loss)\n    if full:\n        {emptying}"))
    assert site is not None
    assert site.emptied


def test_a_variable_of_a_function_that_is_called_for_each_epoch_ends_with_the_call() -> None:
    text = "def epoch():\n    kept = []\n    for x in loader:\n        kept.append(x)\n{}"
    once = variable(text.format("epoch()\n"), function="epoch")
    often = variable(text.format("for n in range(3):\n    epoch()\n"), function="epoch")
    assert once is not None
    assert often is not None
    assert (once.emptied, often.emptied) == (False, True)


def test_a_function_inside_adds_to_a_variable_of_the_one_around_it() -> None:
    text = "def main():\n    kept = []\n    def hook(m, i, o):\n        kept.append(o)\n    train()\n"
    site = variable(text, function="main")
    assert site is not None
    assert (site.line, site.function, site.emptied) == (4, "main.hook", False)


def test_a_name_of_another_function_is_another_variable() -> None:
    text = "def other(kept):\n    kept.append(1)\ndef main():\n    kept = []\n    for x in y:\n        kept.append(x)\n"
    site = variable(text, function="main")
    assert site is not None
    assert (site.line, site.others) == (6, ())


def test_an_attribute_is_found_in_any_method_and_built_up_in_none() -> None:
    text = """\
class Trainer:
    def __init__(self):
        self.kept = []
        self.kept.append(0)

    def step(self, x):
        self.kept.append(x)
"""
    site = attribute(text)
    assert site is not None
    assert (site.line, site.function, site.emptied) == (7, "Trainer.step", False)
    reset = attribute(text + "\n    def on_epoch_end(self):\n        self.kept = []\n")
    assert reset is not None
    assert reset.emptied


def test_several_statements_are_counted() -> None:
    site = variable(LOOP.format("kept.append(loss)\n    kept.append(x)"))
    assert site is not None
    assert (site.line, site.others) == (4, (5,))


def test_a_file_that_does_not_parse_tells_nothing() -> None:
    assert GrowthSites({"train.py": "kept.append("}).variable("train.py", None, "kept") is None
