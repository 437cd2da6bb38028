"""Diagnoses to render: one as a real run gives it, and ones that no run should give but some will."""

from __future__ import annotations

from dataclasses import replace

from gpudoctor.diagnosis import (
    Budget,
    BudgetShare,
    Compilation,
    CompiledFrame,
    CriticalPath,
    Diagnosis,
    Evidence,
    Finding,
    GeneratedKernel,
    KernelLine,
    Location,
    NotMeasured,
    Passed,
    PathShare,
    Remedy,
    Replay,
    Run,
    Saving,
    SourceLine,
    StepTime,
)

TRAIN = """\
class Net(nn.Module):
    def forward(self, x):
        h = F.relu(self.fc1(x))
        if h.mean().item() > 0:
            h = self.fc2(h)
        return self.head(h)


model = torch.compile(Net())
loader = DataLoader(Digits(), batch_size=64, num_workers=0)
optimizer = torch.optim.Adam(model.parameters(), foreach=False)

for epoch in range(3):
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
""".splitlines()


def excerpt(line: int) -> tuple[SourceLine, ...]:
    numbered = enumerate(TRAIN, start=14)
    return tuple(SourceLine(n, text, n == line) for n, text in numbered if abs(n - line) <= 3)


def graph_break() -> Finding:
    return Finding(
        rule="GD101",
        name="graph-break",
        title="torch.compile breaks the graph inside the step",
        severity="error",
        message="Dynamo breaks `Net.forward` at a data-dependent branch: 2 graphs run where 1 would do, and the branch "
        "costs 1.61 ms a step.",
        where=Location("train.py", 17, "call", "Net.forward", "model", "break"),
        locations=(
            Location("train.py", 22, "call", None, None, "torch.compile"),
            Location("train.py", 29, "call", None, None, "caller"),
        ),
        count=1,
        saving=Saving(1_610_000, 0.314, "estimated"),
        evidence=(
            Evidence(
                "Graph breaks by line",
                ("reason", "id", "graphs", "time (µs/step)"),
                (
                    ("Data-dependent branching: if h.mean().item() > 0", "GB0170", "2", "1 412"),
                    ("Tensor.item() call with capture_scalar_outputs=False", "GB0124", "2", "198"),
                ),
            ),
        ),
        remedy=Remedy(
            "torch.where",
            "Choose with a tensor, not with a Python branch. `torch.where` keeps both sides in one graph:\n\n"
            "```python\nh = torch.where(h.mean() > 0, self.fc2(h), h)\n```\n\nWhen the branch must stay, move it "
            "out of the compiled function.",
            "--- a/train.py\n+++ b/train.py\n@@ -16,3 +16,2 @@\n         h = F.relu(self.fc1(x))\n"
            "-        if h.mean().item() > 0:\n-            h = self.fc2(h)\n"
            "+        h = torch.where(h.mean() > 0, self.fc2(h), h)\n",
            "Both sides are computed: `fc2` now runs on every step.",
        ),
        excerpt=excerpt(17),
        children=("c41d00000001",),
        fingerprint="a1f09c3e77d2",
        when_wrong="The break is outside the hot path on your real data, e.g. a branch that is taken in the first "
        "epoch only.",
    )


def read_in_the_branch() -> Finding:
    """Explained by `graph_break`."""
    return Finding(
        rule="GD301",
        name="host-sync",
        title="The host reads a tensor's value inside the step",
        severity="info",
        message="`.item()` in the branch is read once a step.",
        where=Location("train.py", 17, "call", "Net.forward"),
        fingerprint="c41d00000001",
        explained_by="a1f09c3e77d2",
        because="the read is what breaks the graph",
    )


def loader_stall() -> Finding:
    return Finding(
        rule="GD601",
        name="loader-stall",
        title="The step waits for the next batch",
        severity="warning",
        message="The loop waits 724 µs a step (14 % of it) for `DataLoader` to make a batch in the main process; "
        "92 % of that is `Digits.__getitem__`.",
        where=Location("train.py", 23, "call", None, None, "DataLoader"),
        locations=(Location("data/digits.py", 41, "def", "Digits.__getitem__", None, "dataset"),),
        count=18,
        saving=Saving(724_000, 0.141, "estimated", "upper bound: the whole wait"),
        evidence=(
            Evidence(
                "Where a batch's time goes",
                ("part", "µs/batch", "share"),
                (("__getitem__", "666", "92 %"), ("collate", "46", "6.4 %"), ("sampler and queue", "12", "1.7 %")),
            ),
            Evidence("Loader", ("setting", "value"), (("num_workers", "0"), ("cores", "16"), ("batch_size", "64"))),
        ),
        remedy=Remedy(
            "workers",
            "Let worker processes make batches while the step runs: `num_workers=4, persistent_workers=True`.\n\n"
            "- Start with one worker for every four cores.\n- Keep `persistent_workers=True`, or each epoch pays for "
            "their start.",
            None,
            "Random augmentation draws from another stream of random numbers in each worker.",
        ),
        excerpt=excerpt(23),
        fingerprint="77b2e0aa1c9f",
        when_wrong="The dataset holds open handles that do not survive a fork.",
    )


def optimizer_loop() -> Finding:
    return Finding(
        rule="GD203",
        name="unfused-optimizer",
        title="The optimizer updates parameters one by one",
        severity="warning",
        message="`Adam(foreach=False)` runs 212 operators a step for 6 parameters: 391 µs, 7.6 % of the step.",
        where=Location("train.py", 24),
        count=212,
        saving=Saving(391_000, 0.076, "simulated", "replayed with one fused update"),
        evidence=(
            Evidence(
                "Optimizer operators",
                ("operator", "calls/step", "µs/step"),
                (("aten::lerp_", "36", "92"), ("aten::addcdiv_", "36", "81"), ("aten::sqrt", "36", "66")),
            ),
        ),
        remedy=Remedy(
            "fused",
            "Use the fused update.",
            "--- a/train.py\n+++ b/train.py\n@@ -24 +24 @@\n"
            "-optimizer = torch.optim.Adam(model.parameters(), foreach=False)\n"
            "+optimizer = torch.optim.Adam(model.parameters(), fused=True)\n",
        ),
        excerpt=excerpt(24),
        fingerprint="09d2c3aa55e1",
    )


def recompile() -> Finding:
    return Finding(
        rule="GD102",
        name="recompile-shape",
        title="A new tensor shape recompiles the model",
        severity="warning",
        message="The last batch of the epoch has 29 samples instead of 64: `Net.forward` was compiled again, 1.24 s.",
        where=Location("train.py", 29, "call"),
        count=1,
        remedy=Remedy("drop_last", "Drop that batch with `drop_last=True`, or call `torch.compile(dynamic=True)`."),
        excerpt=excerpt(29),
        fingerprint="5d4e8b1c0a37",
    )


def host_read() -> Finding:
    return Finding(
        rule="GD301",
        name="host-sync",
        title="The loop reads the loss on the host in every step",
        severity="info",
        message="`loss.item()` runs once a step. It costs nothing on a CPU; on a GPU it would wait for the device.",
        where=Location("train.py", 32),
        count=1,
        remedy=Remedy("detach", "Keep `loss.detach()` and read the list once an epoch."),
        excerpt=excerpt(32),
        fingerprint="e6a0b9d1f3c4",
    )


def accepted() -> Finding:
    return Finding(
        rule="GD401",
        name="full-precision-matmul",
        title="Matrix products run in full float32",
        severity="info",
        message="All 9 matrix products run in float32.",
        where=Location("train.py", 3),
        fingerprint="1234567890ab",
        accepted='the code asks for it: torch.set_float32_matmul_precision("highest")',
    )


def step_times() -> tuple[StepTime, ...]:
    times = []
    for step in range(30):
        compile_ns = {0: 2_214_000_000, 13: 1_243_000_000}.get(step, 0)
        observation = "bare"
        if step in (17, 18, 19, 21, 22, 23):
            observation = "light"
        elif step == 20:
            observation = "detail"
        elif step in (16, 24):
            observation = "disturbed"
        base = {"bare": 5_120_000, "light": 5_690_000, "detail": 11_300_000, "disturbed": 9_400_000}[observation]
        jitter = (step * 7919 % 23 - 11) * 14_000
        times.append(StepTime(step, base + jitter + compile_ns, observation, step < 3, compile_ns))
    return tuple(times)


def realistic() -> Diagnosis:
    no_gpu = "this run has no GPU activity"
    gpu = "run `gpudoctor check` on a machine with a GPU, or `gpudoctor analyze` on a trace recorded with one"
    return Diagnosis(
        run=Run(
            script="train.py",
            argv=("--epochs", "3", "--out", "runs/first try"),
            torch="2.9.1+cpu",
            device="CPU",
            started="2026-11-30T14:52:07+00:00",
            steps=30,
            step_source="optimizer",
            step_ns=5_124_000,
            step_spread_ns=83_000,
            step_count=17,
            profiled_step_ns=5_690_000,
            stopped="the first epoch after warm-up ended",
            integrity=(
                "2 of 30 steps held gpudoctor's own work and are not timed.",
                "The detail step ran 2.2 times as long as a bare one; its stacks are used, its times are not.",
            ),
            environment={
                "python": "3.11.9",
                "torch": "2.9.1+cpu",
                "platform": "Linux-6.8.0-x86_64-with-glibc2.36",
                "cpu": "AMD EPYC 9554 64-Core Processor",
                "cores": "16",
                "OMP_NUM_THREADS": "16",
            },
        ),
        verdict="A step takes 5.12 ms. Up to 1.61 ms of it can be won back at one line: a graph break at train.py:17.",
        budget=Budget(
            17,
            5_690_000,
            "main thread",
            (
                BudgetShare("matmul", 1_802_000, 1_802_000 / 5_690_000),
                BudgetShare("framework", 1_304_000, 1_304_000 / 5_690_000),
                BudgetShare("operators", 986_000, 986_000 / 5_690_000),
                BudgetShare("input", 724_000, 724_000 / 5_690_000),
                BudgetShare("optimizer", 512_000, 512_000 / 5_690_000),
                BudgetShare("python", 362_000, 362_000 / 5_690_000),
            ),
        ),
        counters={"graphs": 3, "graph_breaks": 1, "recompiles": 1, "operators_per_step": 1204, "kernels": None},
        findings=(
            graph_break(),
            loader_stall(),
            optimizer_loop(),
            recompile(),
            host_read(),
            read_in_the_branch(),
            accepted(),
        ),
        not_measured=(
            NotMeasured("GD201", "small-kernel-storm", no_gpu, gpu),
            NotMeasured("GD202", "launch-bound", no_gpu, gpu),
            NotMeasured("GD302", "pageable-h2d", no_gpu, gpu),
            NotMeasured("GD303", "exposed-h2d", no_gpu, gpu),
            NotMeasured(
                "GD603",
                "workers-respawned",
                "one epoch was seen, the rule needs two",
                "let the run reach a second epoch: `gpudoctor check --budget 120 train.py`",
            ),
        ),
        passed=(
            Passed("GD103", "recompile-value", "A changed Python value recompiles the model"),
            Passed("GD108", "compile-has-no-effect", "torch.compile compiled nothing that the step runs"),
            Passed("GD109", "compile-called-in-loop", "torch.compile is called again within steps"),
            Passed("GD505", "grads-zeroed-not-dropped", "Gradients are zeroed where they could be dropped"),
            Passed("GD704", "debug-mode-left-on", "A debugging mode is left on"),
        ),
        step_times=step_times(),
        gpudoctor="0.1.0",
    )


def replayed() -> Diagnosis:
    """A run whose steps were replayed: ranges, what fixes add to each other, and a critical path."""
    basis = "upper bound: 6 profiled steps replayed without it"
    first = Saving(1_610_000, 0.314, "simulated", basis, 1_200_000, 1_900_000, 1_610_000)
    second = Saving(724_000, 0.141, "simulated", basis, 724_000, 724_000, 210_000, memory_bytes=1 << 30)
    base, where = realistic(), Location("train.py", 17)
    shares = [
        PathShare("host", None, None, None, 1_900_000, 0.35),
        PathShare("device", "gemm", where, 7, 1_100_000, 0.2),
        PathShare("call", "cudaLaunchKernel", Location("model/a_long_folder_name/blocks.py", 210), None, 600_000, 0.1),
        PathShare("wait", "cudaStreamSynchronize", Location("train.py", 32), None, 400_000, 0.07),
        PathShare("device", "communication", None, 20, 400_000, 0.07),
        PathShare("host", "autograd::engine::evaluate_function: AddmmBackward0", None, None, 390_000, 0.07),
        PathShare("latency", None, None, 7, 300_000, 0.05),
        *(PathShare("host", f"aten::op{n}", where, None, 50_000, 0.01) for n in range(12)),
    ]
    return replace(
        base,
        replay=Replay(
            6, 0.0002, 0.004, 0.003, together=Saving(1_820_000, 0.355, "simulated", basis, 1_410_000, 2_110_000)
        ),
        critical_path=CriticalPath(5, 5_690_000, tuple(shares)),
        findings=(
            replace(graph_break(), saving=first),
            replace(loader_stall(), saving=second),
            read_in_the_branch(),
            recompile(),
            replace(host_read(), saving=Saving(0, 0.0, memory_bytes=3 << 29)),
        ),
    )


TRITON = """\
@triton.jit
def triton_poi_fused_relu_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_ptr0 + (xindex), xindex < xnumel)
    tl.store(out_ptr0 + (xindex), triton_helpers.maximum(0, tmp0), xindex < xnumel)"""


def compiled() -> Diagnosis:
    """A run that Inductor made kernels of: with code, with some of it, and with none."""
    frame = CompiledFrame("Net.forward", Location("train.py", 15), versions=1, graphs=1, operators=9, kernels=3)
    line = KernelLine("train.py", 16, "h = F.relu(self.fc1(x))")
    head = KernelLine("train.py", 19, "return self.head(h)")
    return replace(
        replayed(),
        compilation=Compilation(1, 0, 0, 2_214_000_000, 400_000_000, 1_814_000_000, 0, frames=(frame,)),
        generated=(
            GeneratedKernel(
                "triton_poi_fused_relu_0", "triton", "forward", "relu", (line,), 1 << 20, 41_000, TRITON, 5
            ),
            GeneratedKernel(
                "triton_per_fused_sum_1", "triton", "forward", "sum", (line, head), code=TRITON, code_lines=90
            ),
            GeneratedKernel("triton_red_fused_2", "triton", "backward", None, code_lines=33),
        ),
        generated_left_out=4,
    )


def clean() -> Diagnosis:
    """A healthy run: nothing found, everything judged."""
    return Diagnosis(
        run=Run("train.py", torch="2.9.1", device="NVIDIA H200", steps=40, step_ns=61_900_000, step_count=30),
        verdict="A step takes 61.9 ms. Nothing was found.",
        counters={"graph_breaks": 0, "recompiles": 0},
        passed=(Passed("GD101", "graph-break", "torch.compile breaks the graph inside the step"),),
        gpudoctor="0.1.0",
    )


def empty() -> Diagnosis:
    """Nothing is known but the script's name."""
    return Diagnosis(run=Run("train.py"))


HOSTILE = (
    "</script><b>&\"'[red]bold[/red] {{ 7*7 }} {% raw %} `x`"
    + " \u202egnp.exe \x1b[31m\x07 שלום мир 模型 🏷\udcff\nnext line"
)


def hostile() -> Diagnosis:
    """Strings that try to leave their place in HTML, in a terminal and in the layout."""
    long = "very/" * 60 + "deep_" * 40 + ".py"
    wall = "x" * 400
    bad = Finding(
        rule="GD101",
        name=HOSTILE,
        title=HOSTILE + " " + wall,
        severity="error",
        message=HOSTILE + " " + wall,
        where=Location(long, 10**9, "def", HOSTILE, HOSTILE, HOSTILE),
        locations=tuple(Location(long + HOSTILE, n, "call", HOSTILE) for n in range(3)),
        saving=Saving(10**15, 99.0, "measured", HOSTILE),
        evidence=(
            Evidence(HOSTILE, (HOSTILE, wall, "µs"), ((HOSTILE, wall, "1"), ("short row",))),
            Evidence("no rows", (), ()),
        ),
        remedy=Remedy(
            HOSTILE,
            HOSTILE + "\n\n```\n</pre></script>\n[link](javascript:alert(1))\n```\n\n[link](javascript:alert(1)) "
            "![image](https://example.com/x.png) <img src=x onerror=alert(1)>\n\n# heading\n\n" + wall,
            "--- a\n+++ b\n@@ -1 +1 @@\n-" + wall + "</pre>\n+" + HOSTILE,
            HOSTILE,
        ),
        excerpt=(SourceLine(9, "\t" + wall), SourceLine(10**9, HOSTILE, True), SourceLine(11, "")),
        children=(HOSTILE,),
        fingerprint='" onmouseover="alert(1)',
        when_wrong=HOSTILE,
    )
    return Diagnosis(
        run=Run(
            long,
            (HOSTILE, "--x"),
            HOSTILE,
            HOSTILE,
            HOSTILE,
            steps=3,
            step_ns=1,
            step_spread_ns=0,
            step_count=1,
            profiled_step_ns=0,
            integrity=(HOSTILE, wall),
            environment={HOSTILE: HOSTILE, wall: wall},
        ),
        verdict=HOSTILE + wall,
        replay=Replay(0, 99.0, 1e9, -1.0, HOSTILE + wall, Saving(0, 0.0, "simulated", HOSTILE, 0, 10**15)),
        critical_path=CriticalPath(
            -1,
            3,
            (
                PathShare("host", HOSTILE + wall, Location(long, 10**9), None, 2, 2 / 3),
                PathShare(HOSTILE, None, Location(HOSTILE, 1), 10**12, 1, 1 / 3),
            ),
        ),
        compilation=Compilation(1, 0, 0, 1, 1, 0, 0, frames=(CompiledFrame(HOSTILE, Location(long, 1)),)),
        generated=(
            GeneratedKernel(
                HOSTILE + wall,
                HOSTILE,
                HOSTILE,
                HOSTILE + wall,
                (KernelLine(long, 10**9, HOSTILE + wall),),
                10**15,
                10**15,
                HOSTILE + "</pre>" + wall,
                1,
            ),
        ),
        budget=Budget(0, 3, HOSTILE, (BudgetShare(HOSTILE, 2, 2 / 3), BudgetShare(wall, 1, 1 / 3))),
        counters={"graph_breaks": None, "recompiles": 10**12},
        findings=(
            bad,
            bad,
            Finding("GD102", "bare", "no more than the least", "warning", "message"),
            Finding("GD301", HOSTILE, HOSTILE, "info", HOSTILE, explained_by=bad.fingerprint, because=HOSTILE),
        ),
        not_measured=(NotMeasured(HOSTILE, HOSTILE, HOSTILE, HOSTILE), NotMeasured("GD1", "n", wall, wall)),
        passed=(Passed(HOSTILE, HOSTILE, wall),),
        step_times=(
            StepTime(0, 0, HOSTILE, True, 5),
            StepTime(1, 10**15, "bare", False, 0),
            StepTime(2, 7, "light", False, 9),
        ),
        gpudoctor=HOSTILE,
    )


def many(findings: int = 500, steps: int = 12_000) -> Diagnosis:
    """A long run with a finding on every line."""
    base = realistic()
    step = StepTime(0, 5_000_000, "bare", False, 0)
    return Diagnosis(
        run=base.run,
        verdict="A step takes 5.12 ms.",
        budget=base.budget,
        counters=base.counters,
        findings=tuple(
            Finding(
                rule=f"GD{100 + n % 7}",
                name="graph-break",
                title="torch.compile breaks the graph inside the step",
                severity="warning",
                message=f"Break number {n} costs time.",
                where=Location(f"model/layer_{n}.py", n + 1),
                saving=Saving(1_000_000 - n, 0.1),
                remedy=graph_break().remedy,
                excerpt=excerpt(17),
                evidence=graph_break().evidence,
                fingerprint=f"{n:012x}",
            )
            for n in range(findings)
        ),
        passed=base.passed,
        step_times=tuple(
            StepTime(n, step.ns + n % 50 * 10_000 + (400_000_000 if n == 0 else 0), "bare", n < 3, 0)
            for n in range(steps)
        ),
        gpudoctor="0.1.0",
    )


ALL = {
    "realistic": realistic,
    "replayed": replayed,
    "compiled": compiled,
    "clean": clean,
    "empty": empty,
    "hostile": hostile,
    "many": many,
}
