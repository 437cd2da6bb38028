"""What goes to the host and comes back, by the user's source; and which copies of a run fit that."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from gpudoctor.analysis import host_flow, round_trips
from gpudoctor.profile import frame


def lines(text: str) -> set[tuple[int, int]]:
    """First lines of the calls out and back; the first line of a text is 1."""
    return {(flow.out[0], flow.back[0]) for flow in host_flow.flows({"train.py": dedent(text).lstrip("\n")})}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x = x.cpu()\nx = x * 2\nx = x.to(device)", {(1, 3)}),
        ("host = x.to('cpu')\nhost = np.fft.fft(host.numpy())\nx = torch.from_numpy(host).cuda()", {(1, 3)}),
        ("x = torch.from_numpy(filter(x.cpu().numpy())).to(x.device)", {(1, 1)}),
        ("a = x.detach().cpu().numpy()\ny = torch.tensor(a[:, ::-1].copy(), device='cuda')", {(1, 2)}),
        ("out = []\nfor x in xs:\n    out.append(x.cpu())\ny = torch.stack(out).to(device)", {(3, 4)}),
        ("self.x = x.cpu()\ny = self.x.to(device)", {(1, 2)}),
        ("if flip:\n    x = x.cpu()\nx = x.to(device)", {(2, 3)}),
        ("def half(a):\n    return a / 2\ny = half(x.cpu()).to(device)", {(3, 3)}),
        ("def step(x):\n    x = x.to(torch.device('cpu'))\n    x = x.to(torch.float16)\n    return x.cuda()", {(2, 4)}),
    ],
)
def test_a_value_that_goes_to_the_host_and_comes_back_is_found(text: str, wanted: set[tuple[int, int]]) -> None:
    assert lines(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        # an autoencoder: its output is looked at, the next batch has its size
        "for x in loader:\n    x = x.to(device)\n    out = model(x)\n    log.append(out.cpu())",
        "out = model(x.to(device)).cpu()\nsave(out)\nx = next(batches)\nx = x.to(device)",
        "x = x.cpu()\nx = next(batches)\nx = x.to(device)",
        # only a size or a place in a container is shared
        "host = x.cpu()\ny = torch.zeros(host.shape[0], len(host)).to(device)",
        "batch = {'out': out.cpu(), 'x': x}\nx = batch['x'].to(device)",
        "batch['out'] = out.cpu()\nx = batch['x'].to(device)",
        "pair = (x, out.cpu())\nx = pair[0].to(device)",
        # a function that does not give back what it got
        "def logged(a):\n    print(a)\n    return next(batches)\nx = logged(out.cpu()).to(device)",
        # another function's
        "def look(out):\n    return out.cpu()\ndef move(x):\n    return x.to(device)",
        "x = x.cpu()\nx = x.to(torch.float64)",
    ],
)
def test_what_only_looks_like_it_is_not(text: str) -> None:
    assert lines(text) == set()


def copy(kernel: int, direction: str, line: int, start_ns: int, nbytes: int, **more: Any) -> dict[str, Any]:
    made = {"kernel": kernel, "kind": "memcpy", "direction": direction, "file": "train.py", "line": line}
    return {**made, "start_ns": start_ns, "dur_ns": 100, "bytes": nbytes, "device": 0, "launch_step": 3, **more}


def trips(*copies: dict[str, Any]) -> list[tuple[int, int, int]]:
    kernel = {"kernel": 9, "kind": "kernel", "start_ns": 150, "dur_ns": 30, "device": 0, "launch_step": 3}
    sources = {"train.py": "x = x.cpu()\nx = f(x)\nx = x.to(device)"}
    made = round_trips.rows(frame("kernels", [kernel, *copies]), sources)
    return list(made[["out_kernel", "back_kernel", "idle_ns"]].itertuples(index=False, name=None))


def test_copies_of_a_step_are_paired_and_the_kernels_between_taken_off() -> None:
    assert trips(copy(0, "d2h", 1, 0, 4096), copy(1, "h2d", 3, 500, 8192)) == [(0, 1, 570)]


@pytest.mark.parametrize(
    "back",
    [
        copy(1, "h2d", 3, 500, 100),  # indices
        copy(1, "h2d", 3, 500, 4096, launch_step=4),
        copy(1, "h2d", 2, 500, 4096),
        copy(1, "h2d", 3, 50, 4096),  # before the copy out was done
    ],
)
def test_copies_that_cannot_be_a_trip_are_not(back: dict[str, Any]) -> None:
    assert trips(copy(0, "d2h", 1, 0, 4096), back) == []
