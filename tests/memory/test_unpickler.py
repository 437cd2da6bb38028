"""Pickles of plain data are read as the standard library reads them; nothing else is, and nothing is run."""

from __future__ import annotations

import collections
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.ingest.snapshot import unpickler
from gpudoctor.ingest.snapshot.unpickler import UnpicklingError, UnsafePickleError, load

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner) | st.tuples(inner),
    max_leaves=30,
)


@given(PLAIN, st.integers(2, 5))
def test_plain_data_is_read_as_the_standard_library_reads_it(value: Any, protocol: int) -> None:
    assert load(pickle.dumps(value, protocol)) == value


def test_lists_of_shared_objects_are_read_by_reference() -> None:
    frames = [{"name": str(number)} for number in range(400)]
    value = [[frames[number % 400], frames[number * 7 % 400]] for number in range(3000)] + [frames]
    assert load(pickle.dumps(value)) == value


class Runs:
    """Would run a command when it is unpickled by a pickle machine that calls things."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", range(1, 6))
def test_a_pickle_that_wants_a_command_run_is_refused_and_runs_nothing(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "ran"
    with pytest.raises(UnsafePickleError, match=r"posix\.system|nt\.system"):
        load(pickle.dumps({"segments": [Runs(str(target))]}, protocol))
    assert not target.exists()


@pytest.mark.parametrize(
    "hostile",
    [
        b"cos\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.",
        b"(ios\nsystem\n.",
        b"\x80\x02(U\x04truecposix\nsystem\no.",
        b"\x80\x02\x82\x01.",
        b"Pname\n.",
        b"\x80\x04NQ.",
        b"\x80\x05\x97.",
        pickle.dumps(collections.OrderedDict(a=1)),
        pickle.dumps(Path()),
    ],
)
def test_everything_that_imports_or_calls_is_refused(hostile: bytes) -> None:
    with pytest.raises(UnsafePickleError, match="nothing of it was run"):
        load(hostile)


@pytest.mark.parametrize("cut", [0, 1, 2, 20, 60, 150])
def test_a_cut_file_is_said_to_be_damaged(cut: int) -> None:
    whole = pickle.dumps({"segments": [{"address": 1 << 40, "blocks": [1.5, "text", None, (1, 2)]}]})
    with pytest.raises(UnpicklingError):
        load(whole[:-1][:cut] if cut else b"")


@given(st.binary(max_size=60))
def test_any_bytes_end_in_a_value_or_in_one_error(data: bytes) -> None:
    try:
        load(data)
    except UnpicklingError:
        return


def test_an_endless_integer_is_refused() -> None:
    with pytest.raises(UnpicklingError, match="integer of 200 bytes"):
        load(b"\x80\x02\x8a\xc8" + b"\x01" * 200 + b".")


def test_what_the_receiver_makes_of_a_dictionary_stands_in_its_place_wherever_it_is_referred_to() -> None:
    inner = {"action": 1}
    read = load(pickle.dumps([inner, inner, {"other": inner}]), lambda each: "taken" if "action" in each else each)
    assert read == ["taken", "taken", {"other": "taken"}]
    assert unpickler.MAX_INTEGER_BYTES >= 9  # addresses take nine bytes with their sign
