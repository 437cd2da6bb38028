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
