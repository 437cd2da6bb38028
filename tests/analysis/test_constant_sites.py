"""Which lines of a script build the same tensor in host memory each time and move it: read from the source alone."""

from __future__ import annotations

import textwrap

import pytest

from gpudoctor.analysis import constant_sites

HEAD = """
import math
import random
import numpy as np
import torch
import torch.nn as nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""


def sites(text: str) -> list[tuple[str, str]]:
    """(role, the line's text) of each site."""
    whole = HEAD + textwrap.dedent(text)
    lines = whole.splitlines()
    return [(row["role"], lines[row["line"] - 1].strip()) for row in constant_sites.rows({"train.py": whole})]


def in_forward(line: str, setup: str = "pass") -> str:
    return f"""
    class Net(nn.Module):
        def __init__(self, weights):
            super().__init__()
            {setup}
        def forward(self, x, lengths, labels):
            b, t = x.shape
            {line}
    """


SAME = [
    "mask = torch.full((t, t), float('-inf')).triu(1).to(x.device)",
    "mask = torch.triu(torch.ones(t, t), diagonal=1).bool().cuda()",
    "mask = (torch.triu(torch.ones(t, t)) == 1).transpose(0, 1).to(device)",
    "mask = nn.Transformer.generate_square_subsequent_mask(t).to(x.device)",
    "pos = torch.arange(x.size(1), dtype=torch.long).unsqueeze(0).to(device=x.device)",
    "pos = torch.arange(t).to(self.device, non_blocking=True)",
    "size = torch.tensor([x.shape[2], x.shape[3]] * 2, dtype=x.dtype).to(x.device)",
    "mean = torch.tensor([0.485, 0.456, 0.406], device=x.device).view(1, 3, 1, 1)",
    "mean = x.new_tensor([0.485, 0.456, 0.406])",
    "eye = torch.eye(len(x)).type_as(x)",
    "h0 = torch.zeros(2, b, 64).to(x.device)",
    "grid = torch.tensor([[i, j] for i in range(7) for j in range(7)]).to(x.device)",
    "scale = torch.FloatTensor([1.0 / math.sqrt(64)]).cuda()",
    "table = torch.from_numpy(np.outer(np.arange(32), np.arange(4)).astype(np.float32)).to(x.device)",
    "freq = (1.0 / 10000 ** (torch.arange(0, 64, 2).float() / 64)).to(x.device)",
]


@pytest.mark.parametrize("line", SAME)
def test_constants_and_sizes_that_are_moved_are_sites(line: str) -> None:
    assert sites(in_forward(line)) == [("built", line)]


OTHERS = [
    "mask = torch.full((t, t), float('-inf'), device=x.device).triu(1)",  # made on its device
    "h0 = torch.zeros(2, b, 64, device=device)",
    "h0 = torch.zeros_like(x)",
    "noise = torch.randn(b, t).to(x.device)",  # never the same
    "drop = torch.empty(b).bernoulli_(0.5).to(x.device)",
    "y = torch.tensor(labels).to(x.device)",  # the data
    "y = torch.tensor([label + 1 for label in labels], device=x.device)",
    "n = torch.tensor([len(row) for row in labels], device=x.device)",
    "n = torch.tensor(lengths.max().item(), device=x.device)",
    "idx = torch.tensor(random.randrange(9), device=x.device)",
    "fill = torch.full((b,), lengths).to(x.device)",
    "pos = torch.arange(t)",  # not moved
    "pos = torch.arange(t).to(torch.float32)",
    "pos = torch.arange(t).to('cpu')",
    "pos = torch.arange(int(lengths[0]), int(lengths[1])).to(x.device)",
    "w = torch.tensor(self.weights, device=x.device)",  # assigned by nobody that we see
    "y = (x + 2.0).to(x.device)",
]


@pytest.mark.parametrize("line", OTHERS)
def test_what_is_made_on_its_device_or_depends_on_data_is_none(line: str) -> None:
    assert sites(in_forward(line)) == []


def test_attributes_that_only_constructors_store_are_constant() -> None:
    line = "w = torch.tensor(self.weights, device=x.device)"
    assert sites(in_forward(line, "self.weights = weights")) == [("built", line)]
    text = in_forward(line, "self.weights = weights")
    assert sites(text + "        def adapt(self):\n            self.weights = [2.0]\n") == []
    assert sites(text + "        def adapt(self):\n            self.weights[0] *= 2.0\n") == []
    assert sites(text + "        def adapt(self):\n            self.weights.append(1.0)\n") == []


def test_a_tensor_that_is_moved_on_another_line_is_one_site_with_two_places() -> None:
    text = in_forward("size = torch.tensor([t, t])\n            return x / size.to(x.device)")
    assert sites(text) == [("built", "size = torch.tensor([t, t])"), ("moved", "return x / size.to(x.device)")]


def test_a_tensor_that_is_filled_before_it_moves_is_none() -> None:
    fill = "mask = torch.zeros(b, t)\n            {}\n            mask = mask.to(x.device)"
    assert sites(in_forward(fill.format("pass"))) != []
    for change in ("mask[0, :3] = 1", "mask += x", "mask.fill_(2)", "paint(mask, labels)", "mask[0].copy_(x)"):
        assert sites(in_forward(fill.format(change))) == [], change


def test_a_helper_of_the_users_that_makes_the_mask_is_followed() -> None:
    text = """
    def causal(size):
        return torch.full((size, size), -math.inf).triu(1)

    def step(model, x):
        return model(x, causal(x.shape[1]).to(device))
    """
    assert sites(text) == [
        ("built", "return torch.full((size, size), -math.inf).triu(1)"),
        ("moved", "return model(x, causal(x.shape[1]).to(device))"),
    ]


LOOP = """
weights = {value}
for x, y in loader:
    {before}
    w = torch.tensor(weights).to(device)
    loss = criterion(model(x), y, w)
    loss.backward()
"""


@pytest.mark.parametrize("value", ["[0.3, 0.7]", "[1 / n for n in counts]", "json.load(open('weights.json'))"])
def test_a_name_bound_before_the_training_loop_is_constant_in_it(value: str) -> None:
    text = LOOP.format(value=value, before="pass")
    assert sites(text) == [("built", "w = torch.tensor(weights).to(device)")]
    function = "def main(loader, counts):\n" + textwrap.indent(text, "    ")
    assert sites(function) == [("built", "w = torch.tensor(weights).to(device)")]


@pytest.mark.parametrize(
    "before", ["weights = [float(y[0])]", "weights[0] += 1", "weights.append(1)", "shuffle(weights)"]
)
def test_a_name_that_the_loop_may_change_is_not(before: str) -> None:
    assert sites(LOOP.format(value="[0.3, 0.7]", before=before)) == []


def test_batches_cut_from_arrays_are_not_constant() -> None:
    text = """
    data = np.arange(10000)
    def batch():
        at = np.random.randint(0, 9000, 8)
        return torch.stack([torch.from_numpy(data[i : i + 64]) for i in at]).to(device)
    for step in range(100):
        x = torch.from_numpy(data[step : step + 8]).to(device)
        t = torch.tensor(step, device=device)
        model(x, batch()).backward()
    """
    assert sites(text) == []


def test_a_tensor_made_once_and_moved_in_the_loop_is_not_rebuilt() -> None:
    text = """
    mask = torch.ones(8, 8)
    for x in loader:
        model(x, mask.to(device)).backward()
    """
    assert sites(text) == []


def test_the_device_that_is_the_cpu_is_no_place_to_move_to() -> None:
    text = """
    my_device = torch.device("cpu")
    other_device = "cpu"
    def forward(x):
        return x + torch.ones(3).to(my_device) + torch.ones(3).to(other_device)
    """
    assert sites(text) == []


def test_a_default_device_or_a_context_makes_factories_build_there() -> None:
    line = "mask = torch.ones(t, t).to(x.device)"
    assert sites("torch.set_default_device(device)\n" + textwrap.dedent(in_forward(line))) == []
    assert sites(in_forward(f"with torch.device(device): {line}")) == []
    copies = "mean = torch.tensor([0.5], device=x.device)"
    assert sites("torch.set_default_device(device)\n" + textwrap.dedent(in_forward(copies))) == [("built", copies)]


def test_a_script_without_a_gpu_in_its_words_says_so() -> None:
    text = "import torch\ndef f(x):\n    return x + torch.ones(3).to(x.device)\n"
    assert [row["names_gpu"] for row in constant_sites.rows({"a.py": text})] == [False]
    other = {"a.py": text, "b.py": "device = 'cuda'"}
    assert [row["names_gpu"] for row in constant_sites.rows(other)] == [True]


def test_files_that_do_not_parse_have_no_sites() -> None:
    assert constant_sites.rows({"a.py": "def f(:", "cell 1": "%time x", "b.py": ""}) == []


def test_two_tensors_of_one_line_are_one_site() -> None:
    text = in_forward("y = torch.ones(t).to(x.device) + torch.arange(t).to(x.device)")
    rows = constant_sites.rows({"train.py": HEAD + textwrap.dedent(text)})
    assert {row["site"] for row in rows} == {0}
    assert {row["op"] for row in rows} == {"aten::ones", "aten::arange"}


@pytest.mark.parametrize(
    ("made", "chosen"), [("args.device", True), ("config['device']", True), ("'cpu'", False), ("CPU", False)]
)
def test_a_device_that_is_the_runs_choice_can_be_a_gpu(made: str, chosen: bool) -> None:
    text = f"import torch\ndevice = torch.device({made})\ndef f(x):\n    return x + torch.ones(3).to(x.device)\n"
    assert [row["names_gpu"] for row in constant_sites.rows({"a.py": text})] == [chosen]
