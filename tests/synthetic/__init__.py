"""A synthetic machine that trains synthetic programs and writes recordings of them, as torch.profiler would on a GPU.

Rules that need a GPU are proven with it where there is none. It knows what really happened, so a test can ask whether a
finding says the truth: which line, how many, and how long the step takes without the problem.

**A program** is a function that takes `torch` and reads like a training script. Its own functions are the stack, its
own lines are the lines that findings must name:

    from tests.synthetic import LONG, Tensor, Torch, trace

    def training_step(torch, weights, optimizer, x, y):
        for weight in weights:
            x = torch.pointwise("relu", torch.linear(x, weight))
        loss = torch.cross_entropy(x, y)
        optimizer.zero_grad()
        torch.backward(loss)
        optimizer.step()
        print(torch.item(loss))                                     # GD301 in a launch-bound step

    def train(torch):
        weights = [Tensor((256, 256), parameter=True) for _ in range(4)]
        optimizer = torch.AdamW(weights, style="fused")             # loop, foreach (default) or fused
        loader = torch.DataLoader([((64, 256), "float"), ((64,), LONG)], workers=2, make_ns=200_000, pin_memory=True)
        for x, y in loader:                                         # ends by itself
            training_step(torch, weights, optimizer, torch.cuda(x, non_blocking=True), torch.cuda(y))

**Running it**:

    run = trace(train, path)            # three profiled steps, with stacks and shapes, as a Kineto trace
    run = trace(train, path, light=True)   # without stacks; whole_us=True for the whole microseconds of old torch
    run = recording(train, folder)      # as `gpudoctor check` does: unprofiled, light and detailed steps, exact lines
    run = bare(train)                   # no profiler: `run.step_ns()` is how long a step really takes

`run.steps`, `run.calls` (runtime calls with line and time waited) and `run.activities` (device) are what happened.
In a trace a finding's line is the first line of the function (put what is wrong into a function of its own, called from
the loop); in a recording it is the very line.

**What `torch` has** (`operators.py`, `transfers.py`, `training.py`): `linear, matmul, conv2d,
scaled_dot_product_attention, pointwise(name, …), softmax, layer_norm, batch_norm, reduce(name, …), cross_entropy,
embedding, view, contiguous, cat, zeros, fill_, to(x, dtype), autocast, no_grad, backward`; `cuda, cpu, cpu_async, item,
nonzero, tensor, pin_memory, numpy_work, synchronize, empty_cache, allocate, collect_garbage, copy_stream,
wait_for_copies, graph_replay, collective`; `DataLoader, AdamW, SGD, DistributedDataParallel,
set_float32_matmul_precision, set(setting, value)`. `torch.host.think(ns)` is Python that takes time,
`torch.host.module(path, class)` a module's call, `torch.machine.launch(Kernel(…))` inside
`torch.op("mine::op", [x])` an operator of one's own. dtypes are Kineto's names (`float`, `c10::BFloat16`, `long int`).

**The machine**: one host thread runs at a time (autograd's works while main waits). An operator costs the host
microseconds, more under a profiler; a launch reaches the device a little later; activities of a stream run in order,
kernels that fill the device exclude each other, copies and collectives run beside them; at most 1,022 launches are
outstanding. Kernels take what their FLOPs and bytes need on that GPU. Copies from pageable memory hold the host up.
All that varies comes from `seed`: the same program and seed give the same trace, byte for byte.
"""

from __future__ import annotations

from tests.synthetic.hardware import A100, H100, MS, US, Gpu, Kernel
from tests.synthetic.loop import Torch
from tests.synthetic.run import Program, Run, bare, recording, trace
from tests.synthetic.tensors import BFLOAT16, DOUBLE, FLOAT, HALF, LONG, Tensor

__all__ = [
    "A100", "BFLOAT16", "DOUBLE", "FLOAT", "H100", "HALF", "LONG", "MS", "US",
    "Gpu", "Kernel", "Program", "Run", "Tensor", "Torch", "bare", "recording", "trace",
]  # fmt: skip
