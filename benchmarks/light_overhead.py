"""Does the light burst, its cost per event taken off, predict the step without a profiler? On steps of 10 ms and more.

    python benchmarks/light_overhead.py [--repeats 5]

Checks the same transformer again and again in new processes and prints predicted and measured step, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer({width}, 4, {width} * 4, batch_first=True, dropout=0.0)
net = nn.Sequential(nn.Embedding(256, {width}), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False))
optimizer = torch.optim.AdamW(net.parameters())
for i in range(60):
    optimizer.zero_grad()
    net(torch.randint(0, 256, (8, 64))).square().mean().backward()
    optimizer.step()
"""


def main() -> None:
    """Prints one line a run and the medians."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    for width in (64, 128, 256):
        ratios = []
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "train.py").write_text(SCRIPT.format(width=width), encoding="utf-8")
            for _ in range(repeats):
                words = [
                    sys.executable,
                    "-m",
                    "gpudoctor",
                    "check",
                    "--run-to-end",
                    "--output-format",
                    "json",
                    "train.py",
                ]
                out = subprocess.run(
                    words,
                    cwd=name,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                run = json.loads(out)["run"]
                ratios.append(run["predicted_step_ns"] / run["step_ns"])
                figures = {"measured": "step_ns", "light": "profiled_step_ns", "predicted": "predicted_step_ns"}
                shown = ", ".join(f"{title} {run[key] / 1e6:.2f} ms" for title, key in figures.items())
                print(f"width {width}: {shown}, ratio {ratios[-1]:.3f}")
        print(f"width {width}: median ratio {median(ratios):.3f} (must lie within 0.95 to 1.05)")


if __name__ == "__main__":
    main()
