from __future__ import annotations

from pathlib import Path

import pytest

from gpudoctor.recorder import machine


@pytest.mark.parametrize(
    ("capability", "architectures", "says"),
    [
        ((9, 0), ["sm_80", "sm_90"], "in the build"),
        ((8, 6), ["sm_80", "sm_90"], "in the build"),  # code for 8.0 runs on 8.6
        ((9, 0), ["sm_90a"], "in the build"),
        ((12, 0), ["sm_80", "compute_90"], "PTX"),
        ((12, 0), ["sm_80", "sm_100"], "cannot run"),
        ((7, 0), ["sm_75", "compute_80"], "cannot run"),
        ((9, 0), ["gfx942"], "cannot run"),
        ((9, 0), [], "cannot run"),
    ],
)
def test_a_build_has_code_for_a_gpu_or_not(capability: tuple[int, int], architectures: list[str], says: str) -> None:
    assert says in machine.kernels_for(capability, architectures)


def test_limits_of_a_container_are_read(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text(f"{8 << 30}\n")
    assert machine.cpu_limit(tmp_path) == "1.5 cores"
    assert machine.memory_limit(tmp_path) == "8.0 GiB"
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.cpu_limit(tmp_path) is None
    assert machine.memory_limit(tmp_path) is None
