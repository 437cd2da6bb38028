"""Networks of convolutions: memory layouts, and sizes that change."""

from __future__ import annotations

from dataclasses import replace

from tests.synthetic import BFLOAT16, FLOAT, Tensor, Torch
from tests.synthetic.programs.training import learn

CHANNELS, SIZE, SAMPLES = 64, 56, 64


def convolving(
    torch: Torch, channels_last: bool, benchmark: bool = False, sizes: int = 1, dtype: str = BFLOAT16
) -> None:
    """Six convolutions; of `sizes` sizes of images each step has the next one."""
    kernels = [Tensor((CHANNELS, CHANNELS, 3, 3), dtype, parameter=True) for _ in range(6)]
    scales = [Tensor((CHANNELS,), dtype, parameter=True) for _ in range(6)]
    if dtype == FLOAT:
        torch.conv_tf32 = False
    if benchmark:
        torch.set("cudnn.benchmark", "True")  # problem: GD410
    seen = 0

    def forward(x: Tensor) -> Tensor:
        nonlocal seen
        x = replace(x, channels_last=channels_last)
        if sizes > 1:
            side = SIZE - 8 * (seen % sizes)
            x = torch.view(x, (SAMPLES, CHANNELS, side, side), "slice")
            seen += 1
        for kernel, scale in zip(kernels, scales, strict=True):
            x = torch.conv2d(x, kernel)  # problem: GD408
            x = torch.pointwise("relu", torch.batch_norm(x, scale))
        return x

    learn(torch, [*kernels, *scales], (SAMPLES, CHANNELS, SIZE, SIZE), forward, dtype)


def normalising_together(torch: Torch, sync: bool) -> None:
    """24 convolutions, each with a batch norm that takes its statistics from all ranks (`sync`) or from its own."""
    kernels = [Tensor((CHANNELS, CHANNELS, 3, 3), BFLOAT16, parameter=True) for _ in range(24)]
    scales = [Tensor((CHANNELS,), BFLOAT16, parameter=True) for _ in range(24)]

    def forward(x: Tensor) -> Tensor:
        x = replace(x, channels_last=True)
        for number, (kernel, scale) in enumerate(zip(kernels, scales, strict=True)):
            x = torch.conv2d(x, kernel)
            with torch.host.module(f"norms.{number}", "SyncBatchNorm" if sync else "BatchNorm2d"):
                if sync:
                    torch.collective("all_gather", 2 * CHANNELS + 1)  # problem: GD808
                x = torch.batch_norm(x, scale)
            x = torch.pointwise("relu", x)
        return x

    learn(torch, [*kernels, *scales], (SAMPLES, CHANNELS, SIZE, SIZE), forward, BFLOAT16)
