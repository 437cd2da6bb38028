from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.units import GROUP, format_bytes, format_count, format_ns, format_share, plural


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (812, "812 ns"),
        (812_000, "812 µs"),
        (61_900_000, "61.9 ms"),
        (1_240_000_000, "1.24 s"),
        (12_345_000_000_000, f"12{GROUP}345 s"),
        (-5_200_000, "-5.20 ms"),
        (0.5, "0.500 ns"),
    ],
)
def test_time_is_shown_in_the_unit_that_fits(ns: float, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(("ns", "text"), [(999_999, "1.00 ms"), (999_600, "1.00 ms"), (999_400, "999 µs")])
def test_rounding_up_moves_to_the_next_unit(ns: int, text: str) -> None:
    assert format_ns(ns) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (3_250_586, "3.10 MiB"), (2**60, "1048576")]
)
def test_size_is_shown_in_binary_units(count: int, text: str) -> None:
    assert format_bytes(count).replace(GROUP, "").startswith(text)


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0 %"), (0.0001, "< 0.1 %"), (0.0341, "3.4 %"), (0.0999, "10 %"), (0.124, "12 %"), (1.5, "150 %")],
)
def test_share_is_shown_as_a_percentage(share: float, text: str) -> None:
    assert format_share(share) == text


def test_count_is_grouped_from_five_digits_on() -> None:
    assert [format_count(n) for n in (4096, 12345, 1.5, 7.3, 0.256, 3.0)] == [
        *("4096", f"12{GROUP}345", "1.5", "7.3", "0.256", "3")
    ]


def test_plural_picks_the_noun() -> None:
    assert plural(1, "graph break") == "1 graph break"
    assert plural(0, "graph break") == "0 graph breaks"
    assert plural(2, "batch", "batches") == "2 batches"


@given(st.integers(-(2**70), 2**70))
def test_a_time_reads_back_to_within_half_a_per_cent(ns: int) -> None:
    number, unit = format_ns(ns).rsplit(" ", 1)
    back = float(number.replace(GROUP, "")) * {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}[unit]
    assert back == pytest.approx(ns, rel=0.0051)


@given(st.floats(0, 10))
def test_every_share_has_a_unit(share: float) -> None:
    assert format_share(share).endswith(" %")
