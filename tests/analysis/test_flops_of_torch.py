"""Costs from real traces: FLOPs as PyTorch's own counter has them, and every argument where we look for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gpudoctor.analysis.flops import cost, kind, owners

torch = pytest.importorskip("torch")
functional = torch.nn.functional
flop_counter = pytest.importorskip("torch.utils.flop_counter")


def recorded(run: Callable[[], Any], folder: Path) -> pd.DataFrame:
    """The operators of a run as Kineto writes them, with their caller by containment in time."""
    path = folder / "trace.json"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    profiler.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    events.sort(key=lambda e: (e["tid"], e["ts"], -e["dur"]))
    rows: list[dict[str, Any]] = []
    stack: list[tuple[int, float, int]] = []
    for op, event in enumerate(events):
        while stack and (stack[-1][0] != event["tid"] or event["ts"] >= stack[-1][1]):
            stack.pop()
        rows.append({"op": op, "parent": stack[-1][2] if stack else None, "name": event["name"], **event["args"]})
        stack.append((event["tid"], event["ts"] + event["dur"], op))
    return pd.DataFrame(rows)


def counted(run: Callable[[], Any], folder: Path) -> int | None:
    ops = recorded(run, folder)
    total = 0
    for row in ops[owners(ops)].to_dict("records"):
        found = cost(row["name"], row["Input Dims"], row["Input type"], row["Concrete Inputs"])
        assert found is not None
        assert found.flops is not None, row
        total += found.flops
    return total


def reference(run: Callable[[], Any]) -> int:
    with flop_counter.FlopCounterMode(display=False) as counter:
        run()
    return int(counter.get_total_flops())


def leaf(*shape: int, dtype: Any = None) -> Any:
    return torch.ones(*shape, dtype=dtype, requires_grad=True)


def _from_parts(query: Any) -> Any:
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(query, query, query)


def backward(run: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: run().sum().backward()


X, W, V = leaf(4, 6, 12, 12), leaf(8, 6, 3, 3), leaf(6, 8, 3, 3)
Q = leaf(2, 3, 16, 8)
RUNS: dict[str, Callable[[], Any]] = {
    "mm": lambda: leaf(3, 5) @ leaf(5, 7),
    "addmm": lambda: torch.addmm(leaf(7), leaf(3, 5), leaf(5, 7)),
    "bmm": lambda: torch.bmm(leaf(2, 3, 5), leaf(2, 5, 7)),
    "baddbmm": lambda: torch.baddbmm(leaf(2, 3, 7), leaf(2, 3, 5), leaf(2, 5, 7)),
    "matmul that broadcasts": lambda: leaf(4, 2, 3, 5) @ leaf(2, 5, 7),
    "linear": lambda: functional.linear(leaf(2, 3, 5), leaf(7, 5), leaf(7)),
    "einsum": lambda: torch.einsum("bij,bkj->bik", leaf(2, 3, 5), leaf(2, 7, 5)),
    "float64 mm": lambda: leaf(3, 5, dtype=torch.float64) @ leaf(5, 7, dtype=torch.float64),
    "bfloat16 mm": lambda: leaf(32, 16, dtype=torch.bfloat16) @ leaf(16, 8, dtype=torch.bfloat16),
    "conv1d": lambda: functional.conv1d(leaf(4, 6, 20), leaf(8, 6, 3), leaf(8), padding=1),
    "conv2d": lambda: functional.conv2d(X, W, leaf(8), stride=2, padding=1),
    "conv2d, dilated": lambda: functional.conv2d(X, W, dilation=2),
    "conv2d, same": lambda: functional.conv2d(X, W, padding="same"),
    "conv3d": lambda: functional.conv3d(leaf(2, 3, 6, 6, 6), leaf(4, 3, 3, 3, 3), stride=(1, 2, 1)),
    "conv_transpose2d": lambda: functional.conv_transpose2d(X, V, stride=2, output_padding=1),
    "float64 conv2d": lambda: functional.conv2d(
        leaf(2, 3, 8, 8, dtype=torch.float64), leaf(4, 3, 3, 3, dtype=torch.float64)
    ),
    "attention from parts": lambda: _from_parts(Q),
}


@pytest.mark.parametrize("name", RUNS)
def test_forward_flops_are_those_of_pytorchs_counter(name: str, tmp_path: Path) -> None:
    assert counted(RUNS[name], tmp_path) == reference(RUNS[name]) > 0


@pytest.mark.parametrize("name", RUNS)
def test_backward_flops_are_those_of_pytorchs_counter(name: str, tmp_path: Path) -> None:
    run = backward(RUNS[name])
    assert counted(run, tmp_path) == reference(run) > 0


def test_a_frozen_weight_saves_its_gradient(tmp_path: Path) -> None:
    frozen = W.detach()
    run = backward(lambda: functional.conv2d(X, frozen))
    trained = backward(lambda: functional.conv2d(X, W))
    forward = reference(lambda: functional.conv2d(X, W))
    assert counted(run, tmp_path) == reference(run) == 2 * forward
    assert counted(trained, tmp_path) == 3 * forward


K = leaf(2, 3, 24, 8)


@pytest.mark.parametrize("key", [Q, K])
@pytest.mark.parametrize("masked", [False, True])
def test_fused_attention_has_the_flops_of_the_counters_formula(key: Any, masked: bool, tmp_path: Path) -> None:
    mask = torch.ones(16, key.shape[2]) if masked else None

    def run() -> Any:
        return functional.scaled_dot_product_attention(Q, key, key, attn_mask=mask)

    # the counter's table has no entry for the CPU's operator, its formula is that of every backend
    forward = flop_counter.sdpa_flop_count(Q.shape, key.shape, key.shape)
    grads = flop_counter.sdpa_backward_flop_count(Q.shape, Q.shape, key.shape, key.shape)
    assert counted(run, tmp_path) == forward
    assert counted(backward(run), tmp_path) == forward + grads


def test_a_causal_mask_halves_what_the_counter_has(tmp_path: Path) -> None:
    run = backward(lambda: functional.scaled_dot_product_attention(Q, Q, Q, is_causal=True))
    whole = backward(lambda: functional.scaled_dot_product_attention(Q, Q, Q))
    found = counted(whole, tmp_path)
    assert found is not None
    assert counted(run, tmp_path) == found * (16 * 17 // 2) // 256


def test_a_training_step_has_the_counters_flops(tmp_path: Path) -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 64, 16),
        torch.nn.GELU(),
        torch.nn.LayerNorm(16),
        torch.nn.Linear(16, 4),
    )
    data, labels = torch.ones(2, 3, 8, 8), torch.tensor([0, 1])

    def step() -> None:
        functional.cross_entropy(model(data), labels).backward()

    assert counted(step, tmp_path) == reference(step) > 0


def _outputs() -> dict[str, tuple[Callable[[], Any], str]]:
    x, y, half, ids = torch.ones(6, 8), torch.ones(6, 8), torch.ones(6, 8).half(), torch.tensor([[1, 2], [3, 1]])
    weight, mask = torch.ones(8), torch.ones(6, 8, dtype=torch.bool)
    return {
        "relu": (lambda: torch.relu(x), "aten::clamp_min"),
        "gelu": (lambda: functional.gelu(x), "aten::gelu"),
        "add that broadcasts": (lambda: x + weight, "aten::add"),
        "mixed add": (lambda: x + half, "aten::add"),
        "compare": (lambda: x > y, "aten::gt"),
        "where": (lambda: torch.where(mask, x, y), "aten::where"),
        "clamp": (lambda: x.clamp(0, 1), "aten::clamp"),
        "sum": (lambda: x.sum(), "aten::sum"),
        "sum over a dimension": (lambda: x.sum(1), "aten::sum"),
        "sum in float64": (lambda: x.sum(0, dtype=torch.float64), "aten::sum"),
        "amax": (lambda: x.amax(-1, keepdim=True), "aten::amax"),
        "argmax": (lambda: x.argmax(1), "aten::argmax"),
        "all": (lambda: mask.all(), "aten::all"),
        "max over a dimension": (lambda: x.max(1), "aten::max"),
        "var": (lambda: x.var(0), "aten::var"),
        "norm": (lambda: torch.linalg.vector_norm(x, dim=1), "aten::linalg_vector_norm"),
        "softmax": (lambda: torch.softmax(x, 1), "aten::_softmax"),
        "cumsum": (lambda: x.cumsum(0), "aten::cumsum"),
        "index_select": (lambda: x.index_select(1, torch.tensor([1, 1, 2])), "aten::index_select"),
        "embedding": (lambda: functional.embedding(ids, x), "aten::index_select"),
        "matrix product": (lambda: x @ y.T, "aten::mm"),
        "convolution": (lambda: functional.conv1d(x[None], torch.ones(3, 6, 2)), "aten::_slow_conv2d_forward"),
    }


@pytest.mark.parametrize("name", _outputs())
def test_bytes_are_those_of_the_tensors(name: str, tmp_path: Path) -> None:
    run, operator = _outputs()[name]
    made: list[Any] = []
    ops = recorded(lambda: made.append(run()), tmp_path)
    own = ops[owners(ops) & (ops["name"] == operator)]
    assert len(own) == 1
    row = own.iloc[0]
    found = cost(row["name"], row["Input Dims"], row["Input type"], row["Concrete Inputs"])
    assert found is not None
    results = made[0] if isinstance(made[0], tuple) else (made[0],)
    written = sum(result.nbytes for result in results)
    types = {"float": 4, "c10::Half": 2, "bool": 1, "long int": 8}
    dims_types = zip(row["Input Dims"], row["Input type"], strict=True)
    if operator == "aten::index_select":  # of the table, the rows that are asked for
        read = written + next(
            8 * d[0] for d, dtype in zip(row["Input Dims"], row["Input type"], strict=True) if dtype == "long int"
        )
    else:
        read = sum(torch.Size(dims).numel() * types[dtype] for dims, dtype in dims_types if dtype in types)
    assert found.bytes_min == read + written


def test_operators_of_a_training_step_are_known(tmp_path: Path) -> None:
    """The part of the operators' names in an ordinary step that have a formula, without views and allocations."""
    model = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    data = torch.ones(2, 5, 16)

    def step() -> None:
        model(data).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    names = set(recorded(step, tmp_path)["name"])
    heavy = {"aten::addmm", "aten::mm", "aten::native_layer_norm", "aten::native_layer_norm_backward", "aten::add_"}
    heavy |= {"aten::_fused_adamw_", "aten::copy_", "aten::relu"}
    assert heavy <= {name for name in names if kind(name) is not None}
