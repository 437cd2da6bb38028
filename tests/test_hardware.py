from __future__ import annotations

import pytest

from gpudoctor import hardware
from gpudoctor.hardware import find, known

GIB = 2**30


@pytest.mark.parametrize(
    ("reported", "board"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM4 80GB"),
        ("A100-SXM4-40GB", "A100 SXM4 40GB"),
        ("A100-SXM-80GB", "A100 SXM4 80GB"),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100 PCIe 40GB"),
        ("Tesla V100-SXM2-32GB", "V100 SXM2 32GB"),
        ("Tesla V100-SXM2-16GB", "V100 SXM2 16GB"),
        ("Tesla V100-PCIE-16GB", "V100 PCIe 16GB"),
        ("Tesla V100-DGXS-32GB", "V100 DGXS 32GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA H200 NVL", "H200 NVL"),
        ("NVIDIA B200", "B200"),
        ("NVIDIA GB200", "GB200"),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("GeForce RTX 4090", "GeForce RTX 4090"),
        ("NVIDIA GeForce RTX 5090", "GeForce RTX 5090"),
        ("AMD Instinct MI210", "Instinct MI210"),
        ("AMD Instinct MI250X", "Instinct MI250X (one die)"),
        ("AMD Instinct MI300X", "Instinct MI300X"),
        ("AMD Instinct MI300X OAM", "Instinct MI300X"),
        ("AMD Instinct(TM) MI325X", "Instinct MI325X"),
    ],
)
def test_a_name_that_names_a_board_finds_it(reported: str, board: str) -> None:
    found = find(reported)
    assert found is not None
    assert found.name == board


@pytest.mark.parametrize(
    "reported",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "GRID A100-10C",
        "NVIDIA A100X",
        "NVIDIA L40",
        "NVIDIA GH200 480GB",
        "NVIDIA H20",
        "NVIDIA H800",
        "NVIDIA B300",
        "NVIDIA H100 64GB HBM2",
        "Tesla V100S-PCIE-32GB",
        "Tesla V100-SXM3-32GB",
        "AMD Radeon Graphics",
        "AMD Instinct MI300A",
        "NVIDIA Graphics Device",
        "Intel(R) Data Center GPU Max 1550",
        "4090",
        "",
    ],
)
def test_a_variant_or_an_unknown_device_matches_nothing(reported: str) -> None:
    assert find(reported) is None


@pytest.mark.parametrize(
    ("reported", "memory_bytes", "sms", "board"),
    [
        # as recorded traces have them
        ("NVIDIA A100-PG509-200", 42297524224, 108, "A100 SXM4 40GB"),
        ("NVIDIA A100-PG509-200", 42505273344, 108, "A100 SXM4 40GB"),
        ("NVIDIA A100 80GB PCIe", 84990623744, 108, "A100 PCIe 80GB"),
        ("NVIDIA A100-PCIE-40GB", 42346610688, 108, "A100 PCIe 40GB"),
        ("Tesla V100-DGXS-32GB", 34084028416, 80, "V100 DGXS 32GB"),
        ("Tesla V100-SXM2-32GB", 34079637504, 80, "V100 SXM2 32GB"),
        ("AMD Instinct MI210", 68702699520, 104, "Instinct MI210"),
        ("AMD Instinct MI300X", 206141652992, 304, "Instinct MI300X"),
        ("", 206141652992, 304, "Instinct MI300X"),
        ("AMD Radeon Graphics", 206141652992, 304, "Instinct MI300X"),
        ("NVIDIA B200", int(178.35 * GIB), 148, "B200"),
        # the number of multiprocessors tells what the name does not
        ("NVIDIA H100", int(79.2 * GIB), 114, "H100 PCIe"),
        ("NVIDIA H100", int(79.2 * GIB), 132, "H100 SXM"),
        ("Tesla T4", int(14.56 * GIB), 40, "T4"),
    ],
)
def test_memory_and_multiprocessors_tell_variants_apart(reported: str, memory_bytes: int, sms: int, board: str) -> None:
    found = find(reported, memory_bytes, sms)
    assert found is not None
    assert found.name == board


@pytest.mark.parametrize(
    ("reported", "memory_bytes", "sms"),
    [
        ("NVIDIA A100-PG509-200", None, None),  # 40 or 80 GB
        ("NVIDIA A100", 42297524224, 108),  # SXM4 or PCIe
        ("NVIDIA H100", None, None),
        ("NVIDIA H100", 102085492736, 132),  # a 96 GB board whose bandwidth nobody states
        ("AMD Instinct MI300X", 206141652992 // 8, 38),  # one partition of eight
        ("NVIDIA A100-SXM4-80GB", None, 42),  # a slice that does not say so in its name
        ("AMD Radeon Graphics", 68702699520, 104),  # an MI210, or one die of an MI250
        ("AMD Radeon Graphics", 2 * GIB, 2),  # the graphics inside a CPU
        ("AMD Radeon Graphics", 206141652992, None),
    ],
)
def test_what_stays_open_is_not_guessed(reported: str, memory_bytes: int | None, sms: int | None) -> None:
    assert find(reported, memory_bytes, sms) is None


def test_every_board_is_found_by_its_own_name() -> None:
    for gpu in known():
        name = gpu.name.replace(" (one die)", "").replace("H100 SXM", "H100 SXM5")
        assert find(name, gpu.memory_bytes, gpu.sms) == gpu


def test_figures_are_plausible_and_have_a_source() -> None:
    for gpu in known():
        assert gpu.sources, gpu.name
        assert all(source.title and source.url.startswith("https://") for source in gpu.sources)
        assert 200e9 < gpu.memory_bytes_per_s < 10e12
        assert 1 <= gpu.vector_flops["fp32"] / 1e12 < 200
        for dtype in set(gpu.vector_flops) & set(gpu.matrix_flops):
            assert gpu.matrix_flops[dtype] >= gpu.vector_flops[dtype], (gpu.name, dtype)


def test_half_the_bits_are_at_least_as_fast() -> None:
    narrowing = ("fp64", "tf32", "fp16", "fp8", "fp4")
    for gpu in known():
        peaks = [gpu.matrix_flops[dtype] for dtype in narrowing if dtype in gpu.matrix_flops]
        assert peaks == sorted(peaks), gpu.name


def test_vector_peaks_agree_with_the_clock_that_they_imply() -> None:
    lanes = {"sm_70": 64, "sm_75": 64, "sm_80": 64, "gfx90a": 64, "gfx942": 128}  # FP32 multiply-adds a clock and SM
    for gpu in known():
        clock_ghz = gpu.vector_flops["fp32"] / (2 * lanes.get(gpu.arch, 128) * gpu.sms) / 1e9
        assert 1.2 < clock_ghz < 2.6, gpu.name


def test_a_product_without_a_matrix_unit_is_measured_against_the_vector_units() -> None:
    h100 = find("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert h100.matmul_flops("tf32") == 494.7e12
    assert h100.matmul_flops("fp32") == 66.9e12
    assert h100.matmul_flops("fp4") is None
    v100 = find("Tesla V100-SXM2-32GB")
    assert v100 is not None
    assert v100.matmul_flops("bf16") is None


def test_the_bandwidth_of_a_variant_is_its_own() -> None:
    bandwidths = {gpu.name: gpu.memory_bytes_per_s for gpu in known()}
    assert bandwidths["A100 SXM4 40GB"] == 1555e9
    assert bandwidths["A100 PCIe 80GB"] == 1935e9
    assert bandwidths["A100 SXM4 80GB"] == 2039e9


def test_two_dies_make_the_card() -> None:
    die = find("AMD Instinct MI250X")
    assert die is not None
    assert die.devices_per_card == 2
    assert die.matrix_flops["fp16"] * die.devices_per_card == 383e12
    assert die.memory_bytes * die.devices_per_card == 128 * GIB


def test_links_are_per_direction() -> None:
    h100 = find("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert h100.link == hardware.Link("NVLink 4", 450e9)
    assert h100.host_link == hardware.Link("PCIe 5.0 x16", 64e9)
