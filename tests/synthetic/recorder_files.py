"""Writes what gpudoctor's recorder would have left behind of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.synthetic import kineto
from tests.synthetic.hardware import Gpu
from tests.synthetic.host import PROCESS
from tests.synthetic.loop import Torch
from tests.synthetic.training import DataLoader

_ZERO_UNIX_NS = 1_796_085_829_941_530_787


def write(torch: Torch, folder: Path, gpu: Gpu) -> None:
    """Writes a recording's folder."""
    rank = folder / "rank0"
    rank.mkdir(parents=True)
    _write_parts(torch, rank, gpu)
    manifest = {"schema": 1, "gpudoctor": "0.1.0", "command": ["train.py"], "script": "train.py", "argv": []}
    manifest |= {"started": "2026-11-30T12:00:00+00:00", "wall_s": torch.host.now / 1e9, "script_exit": 0}
    (folder / "recording.json").write_text(json.dumps(manifest))


def _write_parts(torch: Torch, rank: Path, gpu: Gpu) -> None:
    bursts = []
    for number, burst in enumerate(torch.bursts):
        detail = burst.label == "detail"
        file = f"trace.{number}.{burst.label}.json"
        kineto.write(rank / file, kineto.document(burst.events, gpu, stacks=detail, shapes=detail))
        bursts.append({"label": burst.label, "steps": len(burst.steps), "after": 0, "file": file, "taken": burst.steps,
                       "compiled": [], "marked": burst.label == "detail"})  # fmt: skip
    sources = {name: Path(path).read_text(encoding="utf-8") for name, path in torch.host.files.items()}
    parts: dict[str, Any] = {
        "begun": {"zero_unix_ns": _ZERO_UNIX_NS, "pid": PROCESS, "torch": "2.13.0+cu126", "root": "/work",
                  "foreign": [], "compile_log": True},
        "bursts": bursts,
        "run": {"zero_unix_ns": _ZERO_UNIX_NS, "steps": len(torch.steps), "signal": "optimizer",
                "stopped": "the script ended", "stopped_by_gpudoctor": False, "notes": [],
                "observed_ns": torch.host.now, "event_cost_ns": 400, "memory_snapshot": None},
        "settings": _settings(torch, gpu),
        "sources": sources,
        "lines": torch.host.lines,
        "modules": torch.host.paths,
        "names": {name: name for name in sources},
        "host": [],
    }  # fmt: skip
    for name, content in parts.items():
        (rank / f"{name}.json").write_text(json.dumps(content))
    rows = [["L", _loader(number, loader)] for number, loader in enumerate(torch.loaders)]
    rows += sorted(torch.watch_rows, key=lambda row: row[1])
    (rank / "watch.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


_DEFAULTS = {
    "float32_matmul_precision": "highest", "cuda.matmul.allow_tf32": "False", "cudnn.enabled": "True",
    "cudnn.allow_tf32": "True", "cudnn.benchmark": "False", "cudnn.deterministic": "False",
    "deterministic_algorithms": "False", "anomaly_mode": "False", "autograd_profiler": "False", "sdp.flash": "True",
    "sdp.mem_efficient": "True", "sdp.math": "True", "default_dtype": "float32", "gc.enabled": "True",
}  # fmt: skip


def _settings(torch: Torch, gpu: Gpu) -> dict[str, Any]:
    rows = []
    for name, default in _DEFAULTS.items():
        value, file, line = torch.settings.get(name, (default, None, None))
        source = "script" if file else "default"
        rows.append({"name": name, "value": value, "file": file, "line": line, "source": source})
    for name, (value, file, line) in torch.settings.items():
        if name not in _DEFAULTS:
            rows.append({"name": name, "value": value, "file": file, "line": line, "source": "script"})
    rows.append({"name": "env.CUDA_LAUNCH_BLOCKING", "value": None, "source": None})
    environment = {"torch": "2.13.0+cu126", "python": "3.11.7", "gpu": gpu.name, "cuda": "12.6", "cores": "16"}
    return {"settings": rows, "environment": environment}


def _loader(number: int, loader: DataLoader) -> dict[str, Any]:
    place, loop = loader.place, loader.loop
    return {
        "loader": number,
        "file": place.file if place else None, "line": place.line if place else None,
        "function": place.function if place else None,
        "for_file": loop.file if loop else None, "for_line": loop.line if loop else None,
        "batch_size": loader._shapes[0][0][0], "num_workers": loader.workers, "pin_memory": loader.pin_memory,
        "persistent_workers": False, "drop_last": True, "prefetch_factor": 2 if loader.workers else None,
        "dataset": "Made", "dataset_file": None, "dataset_line": None, "samples": 100_000, "cores": 16,
    }  # fmt: skip
