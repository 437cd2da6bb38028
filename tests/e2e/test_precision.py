"""What `check` records of autocast and gradient scalers."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e.conftest import SAMPLES, Checked

SKIPS = """import torch, torch.nn as nn
net = nn.Linear(32, 4); opt = torch.optim.SGD(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
torch.amp.GradScaler("cpu", enabled=False)
for i in range(40):
    x = torch.randn(64, 32)
    if i % 10 == 5: x[0, 0] = float("inf")
    with torch.autocast("cpu", dtype=torch.float16):
        loss = net(x).float().square().mean()
    opt.zero_grad(); scaler.scale(loss).backward()
    scaler.step(opt); scaler.update()
print("scale", scaler.get_scale())
"""


def test_the_scale_that_follows_from_the_skips_is_the_scalers_own(check: Callable[..., Checked]) -> None:
    run = check(SKIPS, "--run-to-end")
    steps = run.table("scaler_steps")
    assert steps["skipped"].tolist() == [i % 10 == 5 for i in range(40)]
    grew = bool(steps["grew"].iloc[-1])
    last = float(steps["scale"].iloc[-1]) * (2 if grew else 1)
    assert f"scale {last}" in run.err
    assert run.table("scalers")[["line", "enabled"]].values.tolist() == [[3, True], [4, False]]


def test_backward_calls_under_autocast_have_their_line(check: Callable[..., Checked]) -> None:
    calls = check(SAMPLES / "autocast-around-backward" / "train.py").table("backward_calls")
    assert set(calls["autocast"]) == {"bfloat16"}
    assert set(calls["line"]) == {36}
    calls = check(SAMPLES / "autocast-around-backward" / "train_fixed.py").table("backward_calls")
    assert calls["autocast"].isna().all()


def test_clipping_is_seen_before_or_behind_the_scalers_division(check: Callable[..., Checked]) -> None:
    assert set(check(SAMPLES / "gradscaler-misuse" / "train.py").table("clips")["unscaled"]) == {False}
    assert set(check(SAMPLES / "gradscaler-misuse" / "train_fixed.py").table("clips")["unscaled"]) == {True}
