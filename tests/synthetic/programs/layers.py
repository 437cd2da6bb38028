"""Layers that are written badly, and well: attention, activations, normalisation, widths."""

from __future__ import annotations

from dataclasses import replace

from tests.synthetic import BFLOAT16, FLOAT, Tensor, Torch
from tests.synthetic.programs.training import learn

WIDTH = 2048


def matrices(count: int, rows: int = WIDTH, columns: int = WIDTH) -> list[Tensor]:
    return [Tensor((rows, columns), BFLOAT16, parameter=True) for _ in range(count)]


def attending(torch: Torch, fused: bool, samples: int = 8, heads: int = 16, length: int = 1024) -> None:
    width = heads * 64
    weights = matrices(8, width, width)

    def split(x: Tensor) -> Tensor:
        return torch.view(x, (samples, heads, length, 64), "transpose")

    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if fused:
            return torch.scaled_dot_product_attention(q, k, v)
        scores = torch.matmul(q, torch.view(k, (samples, heads, 64, length), "transpose"))
        weights = torch.softmax(torch.pointwise("div", scores))  # problem: GD204
        return torch.matmul(weights, v)

    def forward(x: Tensor) -> Tensor:
        for at in range(0, len(weights), 4):
            q, k, v = (split(torch.linear(x, weight)) for weight in weights[at : at + 3])
            x = torch.linear(torch.view(attention(q, k, v), (samples, length, width)), weights[at + 3])
        return x

    learn(torch, weights, (samples, length, width), forward)


def activating(torch: Torch, fused: bool, batch: int = 16_384) -> None:
    weights = matrices(8)

    def gelu(x: Tensor) -> Tensor:
        """As a formula: 0.5 x (1 + tanh(0.8 (x + 0.04 x³)))."""
        cube = torch.pointwise("mul", torch.pointwise("mul", x, x), x)  # problem: GD208
        inner = torch.pointwise("add", x, torch.pointwise("mul", cube))  # problem: GD208
        return torch.pointwise("mul", x, torch.pointwise("add", torch.pointwise("tanh", inner)))  # problem: GD208

    def forward(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.linear(x, weight)
            x = torch.pointwise("gelu", x) if fused else gelu(x)
        return x

    learn(torch, weights, (batch, WIDTH), forward)


def normalising(torch: Torch, to_and_fro: bool) -> None:
    weights, scales = matrices(8), [Tensor((WIDTH,), BFLOAT16, parameter=True) for _ in range(8)]

    def norm(x: Tensor, scale: Tensor) -> Tensor:
        if not to_and_fro:
            return torch.layer_norm(x, scale)
        wide = torch.layer_norm(torch.to(x, FLOAT), torch.to(scale, FLOAT))  # problem: GD403
        return torch.to(wide, BFLOAT16)  # problem: GD403

    def forward(x: Tensor) -> Tensor:
        for weight, scale in zip(weights, scales, strict=True):
            x = norm(torch.linear(x, weight), scale)
        return x

    learn(torch, [*weights, *scales], (16_384, WIDTH), forward)


def widening(torch: Torch, width: int, dtype: str = BFLOAT16, reads_loss: bool = True) -> None:
    """Pairs of layers, out to a width and back; half of them are as wide as the tensor cores like it."""
    sizes = [(width, WIDTH), (WIDTH, width), (WIDTH, WIDTH), (WIDTH, WIDTH)] * 2
    weights = [Tensor(size, dtype, parameter=True) for size in sizes]

    def forward(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.linear(x, weight)  # problem: GD407
        return x

    learn(torch, weights, (8192, WIDTH), forward, dtype, reads_loss)


def slicing(torch: Torch, leave_out: int) -> None:
    """Layers that do without the first columns of what the one before made: rows begin behind them."""
    weights = matrices(8)

    def forward(x: Tensor) -> Tensor:
        for weight in weights:
            x = replace(torch.view(x, (8192, WIDTH), "slice"), offset=leave_out)
            x = torch.linear(x, weight)  # problem: GD207
        return x

    learn(torch, weights, (8192, WIDTH), forward)


def weighing(torch: Torch, rows: int) -> None:
    """Takes the softmax of few long rows, or of many short ones."""
    weights = matrices(4)

    def forward(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.linear(x, weight)
            x = torch.view(x, (rows, 4096 * WIDTH // rows), "reshape")
            x = torch.softmax(x)  # problem: GD205
            x = torch.view(x, (4096, WIDTH), "reshape")
        return x

    learn(torch, weights, (4096, WIDTH), forward)


def averaging(torch: Torch) -> None:
    """Keeps a running mean of each weight, in a loop by hand: kernels of one size on tensors of their own."""
    weights = matrices(8)
    means = [Tensor(weight.shape, BFLOAT16) for weight in weights]

    def forward(x: Tensor) -> Tensor:
        with torch.no_grad():
            for mean in means * 4:
                torch.pointwise("mul", mean)
            for mean, weight in zip(means * 4, weights * 4, strict=True):
                torch.pointwise("add", mean, weight)
        for weight in weights:
            x = torch.linear(x, weight)
        return x

    learn(torch, weights, (1024, WIDTH), forward)
