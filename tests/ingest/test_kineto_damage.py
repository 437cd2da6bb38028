"""Damaged traces: what is whole is kept exactly, what is lost is said, nothing but an InputError is raised."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from gpudoctor.errors import InputError
from gpudoctor.ingest import kineto
from gpudoctor.ingest.kineto.blocks import MAX_EVENT_BYTES
from tests.ingest import kineto_text as text_of
from tests.ingest.kineto_text import (
    cpu_step,
    decoded,
    document,
    expected,
    found,
    gpu_events,
    gpu_step,
    rows,
    said,
    spans,
    structs,
)

TRACES = {"cpu": cpu_step, "gpu": gpu_step, "compact": lambda: gpu_step(indent=None)}
Read = Callable[..., kineto.Trace]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """`read(text or bytes, name)`: writes a file and reads it."""

    def reads(content: str | bytes, name: str = "trace.json") -> kineto.Trace:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return kineto.read(path)

    return reads


def one(**changes: Any) -> dict[str, Any]:
    """A plain operator."""
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 4.25}
    return {**event, "args": {"External id": 5}, **changes}


def around(event: str) -> str:
    """A trace's text with one event's text between two healthy ones, which differ in their names."""
    before, after = json.dumps(one(name="before")), json.dumps(one(name="after"))
    return f'{{"schemaVersion": 1, "traceEvents": [{before},\n{event},\n{after}], "traceName": "t"}}'


def names(trace: kineto.Trace) -> list[str]:
    """Names of the operators in the order of the file."""
    known = list(trace.columns.names)
    return [known[code] for code in trace.table("ops")["name"]] if len(trace.table("ops")) else []


def times(trace: kineto.Trace, name: str) -> list[tuple[int, int]]:
    """(start_ns, dur_ns) of the operators of a name."""
    table = trace.table("ops")
    code = list(trace.columns.names).index(name)
    picked = table.take(table["name"] == code)
    return list(zip(picked["start_ns"].tolist(), picked["dur_ns"].tolist(), strict=True))


# -- undamaged -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", TRACES)
def test_an_undamaged_trace_reads_as_python_reads_it_and_states_no_loss(read: Read, which: str) -> None:
    text = TRACES[which]()
    trace = read(text)
    assert found(trace) == expected(text)
    assert not text_of.stated(trace)
    assert trace.metadata == {key: value for key, value in json.loads(text).items() if key != "traceEvents"}


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 8])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_layout_changes_nothing(read: Read, indent: int | None, end: str) -> None:
    whole = rows(read(gpu_step()))
    trace = read(gpu_step(indent).replace("\n", end))
    assert {re.sub(r"\\+[rn]| ", "", repr(row)) for row in rows(trace)} == {
        re.sub(r"\\+[rn]| ", "", repr(row)) for row in whole
    }
    assert not text_of.stated(trace)


def test_the_events_may_come_first_and_the_metadata_last(read: Read) -> None:
    events = gpu_events()
    trace = read(json.dumps({"traceEvents": events, **text_of.HEAD, "traceName": "t"}, indent=1))
    assert found(trace) == expected(document(events))
    assert trace.metadata == {**text_of.HEAD, "traceName": "t"}


def test_a_bare_list_and_one_alone_in_its_object_are_traces(read: Read) -> None:
    wanted = expected(document(gpu_events()))
    for whole in (gpu_events(), {"traceEvents": gpu_events()}):
        for indent in (None, 2):
            trace = read(json.dumps(whole, indent=indent))
            assert found(trace) == wanted
            assert not text_of.stated(trace)


def test_metadata_may_speak_of_trace_events(read: Read) -> None:
    head = {"note": 'say "traceEvents": [ twice', "list": ["traceEvents", ": ["], "traceEventsCount": 3}
    trace = read(document(gpu_events(), head=head))
    assert found(trace) == expected(document(gpu_events()))
    assert trace.metadata == {**head, "traceName": "trace.json"}


def test_an_object_inside_the_metadata_may_have_a_list_of_that_name(read: Read) -> None:
    head = {"other": {"traceEvents": [{"not": "an event"}, {"ph": "X"}]}}
    trace = read(document(gpu_events(), head=head))
    assert found(trace) == expected(document(gpu_events()))
    assert trace.metadata == {**head, "traceName": "trace.json"}


# -- the end is missing --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", TRACES)
def test_cut_at_any_byte_every_whole_event_is_kept_and_the_loss_is_said(which: str) -> None:
    text = TRACES[which]()
    data = text.encode()
    events, damage = structs(data)
    ends = [len(text[:end].encode()) for _, end in spans(text)]
    starts = [len(text[:start].encode()) for start, _ in spans(text)]
    assert len(events) == len(ends) and not said(damage)
    first = text.index("[", text.index('"traceEvents"')) + 1
    whole = 0
    for size in range(len(data)):
        if size < first:
            with pytest.raises(InputError):
                structs(data[:size])
            continue
        while whole < len(ends) and ends[whole] <= size:
            whole += 1
        kept, damage = structs(data[:size])
        assert kept == events[:whole], size
        assert damage.bad == 0, size
        in_list = size <= data.rindex(b"]") + 1
        assert damage.truncated if in_list else damage.no_header, size
        if in_list:
            lost = max(0, size - starts[whole]) if whole < len(starts) else 0
            assert damage.lost_bytes == len(data[size - lost : size].rstrip()), size


@pytest.mark.parametrize("which", TRACES)
def test_cut_files_on_disk_give_the_events_that_are_whole(tmp_path: Path, which: str) -> None:
    text = TRACES[which]()
    path = tmp_path / "trace.json"
    path.write_bytes(text.encode())
    events = json.loads(text)["traceEvents"]
    ends = [len(text[:end].encode()) for _, end in spans(text)]
    for size in range(len(text.encode()) - 1, 0, -211):
        os.truncate(path, size)
        whole = sum(end <= size for end in ends)
        if not whole:
            with pytest.raises(InputError, match=r"trace\.json"):
                kineto.read(path)
            continue
        trace = kineto.read(path)
        assert found(trace) == expected(json.dumps(events[:whole]).replace("NaN", "null"))
        assert text_of.stated(trace)


# -- damage inside one event ---------------------------------------------------------------------------------------

RECOVERED = {
    "unescaped quotes": ('"name": "aten::mm"', '"name": "f("x", 1)"', 'f("x", 1)'),
    "a backslash that escapes nothing": ('"name": "aten::mm"', r'"name": "C:\path\mm"', r"C:\path\mm"),
    "a raw newline in a name": ('"name": "aten::mm"', '"name": "aten\n::mm"', "aten ::mm"),
    "a NUL in a name": ('"name": "aten::mm"', '"name": "aten\0::mm"', "aten ::mm"),
    "nan as an argument": ('"External id": 5', '"External id": 5, "est. achieved occupancy %": nan', "aten::mm"),
    "-inf in a list": ('"External id": 5', '"External id": 5, "Concrete Inputs": ["", -inf, inf, NaN]', "aten::mm"),
    "Infinity": ('"External id": 5', '"External id": 5, "memory bandwidth (GB/s)": Infinity', "aten::mm"),
    "a comma after the last member": ('"External id": 5', '"External id": 5, ', "aten::mm"),
}


@pytest.mark.parametrize("what", RECOVERED)
def test_damage_that_is_certain_is_repaired_and_counted(read: Read, what: str) -> None:
    old, new, name = RECOVERED[what]
    healthy = json.dumps(one())
    assert old in healthy
    trace = read(around(healthy.replace(old, new)))
    assert names(trace) == ["before", name, "after"]
    assert times(trace, name) == [(10_500, 4_250)]
    assert (trace.damage.repaired, trace.damage.bad) == (1, 0)
    assert trace.table("ops")["external"].tolist() == [5, 5, 5]


def test_bytes_that_are_no_utf8_are_replaced_and_counted(read: Read) -> None:
    text = around(json.dumps(one(name="caf@"))).encode().replace(b"caf@", b"caf\xe9\xff")
    trace = read(text)
    assert names(trace) == ["before", "caf��", "after"]
    assert trace.damage.repaired == 1


LOST = {
    "a colon is missing": '{"ph": "X", "cat" "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 2}',
    "a backslash before the closing quote": r'{"ph": "X", "cat": "cpu_op", "ts": 1, "dur": 2, "name": "C:\dir\"}',
    "no closing brace": '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 2',
    "a brace too many": '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 2, "ts": 1, "dur": 2}}',
    "text between events": 'lorem ipsum {"ph": "X"',
    "a lone bracket": "[",
    "a number": "17",
    "a string": '"event"',
    "null": "null",
    "a list of events": '[{"ph": "X", "cat": "cpu_op", "name": "inner", "ts": 1, "dur": 2}]',
    "an object that is no event": '{"hello": 1}',
    "an empty object": "{}",
    "a run of NUL": "\0" * 5000,
}


@pytest.mark.parametrize("what", LOST)
def test_an_event_that_cannot_be_read_costs_only_itself_and_is_counted(read: Read, what: str) -> None:
    trace = read(around(LOST[what]))
    assert names(trace)[0] == "before"
    assert names(trace)[-1] == "after"
    assert trace.damage.bad or trace.damage.repaired or trace.columns.no_time
    assert not trace.damage.truncated
    assert trace.metadata["traceName"] == "t"
    for start, dur in times(trace, "before") + times(trace, "after"):
        assert (start, dur) == (10_500, 4_250)


def test_a_thousand_damaged_events_in_a_row_cost_no_other(read: Read) -> None:
    healthy = json.dumps(one())
    for hurt, counted in ((healthy[:-1], "bad"), (healthy.replace("aten::mm", 'a"b'), "repaired")):
        trace = read(around(",\n".join([hurt] * 1000)))
        assert (names(trace)[0], names(trace)[-1]) == ("before", "after")
        assert getattr(trace.damage, counted) == 1000


@pytest.mark.parametrize("gap", [",,", ", ,\n,", "", " ", "\n"])
def test_commas_between_events_may_be_too_many_or_missing(read: Read, gap: str) -> None:
    a, b, c = (json.dumps(one(name=name)) for name in "abc")
    trace = read(f'{{"traceEvents": [{a}{gap}{b},{c}]}}')
    assert names(trace) == ["a", "b", "c"]


@pytest.mark.parametrize("end", ["},\n]}", "},]", "} , ]\n}\n"])
def test_a_comma_after_the_last_event_loses_nothing(read: Read, end: str) -> None:
    body = json.dumps(one())[:-1]
    head = '{"traceEvents": [' if end.rstrip().endswith("}") else "["
    trace = read(f"{head}{body}{end}")
    assert names(trace) == ["aten::mm"]
    assert not text_of.stated(trace)


def test_half_a_megabyte_of_holes_in_the_file_costs_the_events_in_them(read: Read) -> None:
    events = [one(name=f"op{number}", ts=number * 10) for number in range(20_000)]
    data = bytearray(json.dumps(events, indent=1).encode())
    start = len(data) // 3
    data[start : start + 500_000] = bytes(500_000)
    trace = read(bytes(data))
    first = data.index(b"\0")
    before = len(re.findall(rb"\n }", data[:first]))
    after = len(re.findall(rb'"ph"', data[data.rindex(b"\0") :]))
    kept = names(trace)
    assert kept[:before] == [f"op{number}" for number in range(before)]
    assert set(kept) >= {f"op{number}" for number in range(20_000 - after + 1, 20_000)}
    assert len(kept) == len(set(kept)) <= before + after + 1
    assert trace.damage.bad or trace.damage.repaired


# -- odd values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "ns"),
    [
        ("0", 0),
        ("0.000", 0),
        ("10.5", 10_500),
        ('"10.5"', 10_500),
        ('" 10.5 "', 10_500),
        ("5205240880977.589", 5_205_240_880_977_589),
        ("1790857026123456.789", 1_790_857_026_123_456_789),
        ("9007199254740993.001", 9_007_199_254_740_993_001),
        ("-3.25", -3_250),
        ("-0", 0),
        ("1e3", 1_000_000),
        ("1.5E-2", 15),
        ("0.0005", 0),
        ("0.0015", 2),
        ("9223372036854775.807", 2**63 - 1),
        ("7447689600000000.000", 7_447_689_600_000_000_000),
    ],
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_times_of_every_spelling_are_exact(read: Read, key: str, written: str, ns: int) -> None:
    text = json.dumps(one(**{key: "@"})).replace('"@"', written)
    trace = read(around(text))
    assert times(trace, "aten::mm") == [(ns, 4_250) if key == "ts" else (10_500, ns)]
    assert not text_of.stated(trace)


@pytest.mark.parametrize(
    "written", ["1e999", "-1e999", "9223372036854775.808", "18446744073709551.615", "1e40", '"soon"', '""', "null"]
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_a_time_that_is_none_or_too_large_costs_the_event_and_is_counted(read: Read, key: str, written: str) -> None:
    text = json.dumps(one(**{key: "@"})).replace('"@"', written)
    trace = read(around(text))
    assert names(trace) == ["before", "after"]
    counted = (trace.columns.no_time, trace.columns.no_duration, trace.damage.bad)
    assert counted == ((1, 0, 0) if key == "ts" else (0, 1, 0))


@pytest.mark.parametrize(
    "written", ["true", "[1]", '{"a": 1}', "nan", "-inf", "0x10", "1_0", "1.2.3", "--1", "1-2", "."]
)
@pytest.mark.parametrize("key", ["ts", "dur"])
def test_what_is_no_number_never_becomes_one(read: Read, key: str, written: str) -> None:
    text = json.dumps(one(**{key: "@"})).replace('"@"', written)
    for content in (text, text.replace(written, f'"{written}"')):
        if '"{' in content or '"[' in content:
            continue
        trace = read(around(content))
        assert names(trace) == ["before", "after"]
        assert trace.columns.no_time + trace.columns.no_duration + trace.damage.bad == 1


@pytest.mark.parametrize("key", ["ts", "dur"])
def test_an_event_without_a_time_is_counted(read: Read, key: str) -> None:
    event = one()
    del event[key]
    trace = read(around(json.dumps(event)))
    assert names(trace) == ["before", "after"]
    assert (trace.columns.no_time, trace.columns.no_duration) == ((1, 0) if key == "ts" else (0, 1))


@pytest.mark.parametrize("missing", ["name", "cat", "pid", "tid", "args", "ph"])
def test_what_an_event_does_not_say_does_not_cost_it(read: Read, missing: str) -> None:
    event = one()
    del event[missing]
    trace = read(around(json.dumps(event)))
    assert sum(len(table) for table in trace.tables.values()) == 3
    assert not text_of.stated(trace)


@pytest.mark.parametrize("key", ["name", "cat", "pid", "tid", "id"])
@pytest.mark.parametrize("value", [None, 5, -5, 1.5, True, "text", [1, 2], {"a": [1]}, 2**70])
def test_a_wrong_type_outside_the_times_does_not_cost_the_event(read: Read, key: str, value: Any) -> None:
    trace = read(around(json.dumps(one(**{key: value}))))
    assert sum(len(table) for table in trace.tables.values()) == 3
    spans = {(s, d) for table in trace.tables.values() for s, d in zip(table["start_ns"], table["dur_ns"], strict=True)}
    assert spans == {(10_500, 4_250)}


@pytest.mark.parametrize("args", ["null", "[]", "[1, {}]", '"text"', "7", "true", "{}"])
def test_args_of_a_wrong_type_do_not_cost_the_event(read: Read, args: str) -> None:
    trace = read(around(json.dumps(one(args="@")).replace('"@"', args)))
    assert names(trace) == ["before", "aten::mm", "after"]
    assert trace.table("ops")["external"].tolist() == [5, kineto.events.MISSING, 5]


@pytest.mark.parametrize("value", ['"5"', "5", "5.0", '"0x5"'])
def test_an_integer_may_be_text(read: Read, value: str) -> None:
    trace = read(around(json.dumps(one(args={"External id": "@"})).replace('"@"', value)))
    assert trace.table("ops")["external"].tolist() == [5, 5, 5]


@pytest.mark.parametrize("value", ["null", "[5]", '{"a": 5}', "5.5", '"five"', "1e999", "9" * 40, f"-{'9' * 5000}"])
def test_an_integer_that_is_none_is_missing_and_its_event_kept(read: Read, value: str) -> None:
    trace = read(around(json.dumps(one(args={"External id": "@"})).replace('"@"', value)))
    assert names(trace) == ["before", "aten::mm", "after"]
    assert trace.table("ops")["external"].tolist() == [5, kineto.events.MISSING, 5]


def test_integers_beyond_float_precision_are_exact(read: Read) -> None:
    for value in (2**53 + 1, 2**62 + 1, 2**63 - 1, -(2**63) + 1):
        trace = read(document([one(args={"External id": value}), one(args={"External id": None})]))
        assert trace.table("ops")["external"].tolist() == [value, kineto.events.MISSING]
    trace = read(document([one(args={"External id": 2**63}), one(args={"External id": 2**53 + 1})]))
    assert trace.table("ops")["external"].tolist() == [kineto.events.MISSING, 2**53 + 1]


def test_of_duplicate_keys_the_last_counts_as_for_other_readers(read: Read) -> None:
    text = json.dumps(one()).replace('"ts": 10.5', '"ts": 1.0, "ts": 10.5').replace('{"Ex', '{"External id": 4, "Ex')
    trace = read(around(text))
    assert times(trace, "aten::mm") == [(10_500, 4_250)]
    assert trace.table("ops")["external"].tolist() == [5, 5, 5]


def test_kernels_without_a_correlation_are_kept(read: Read) -> None:
    trace = read(document([one(cat="kernel", args={"device": 0, "stream": 7}), one(cat="kernel", args={})]))
    assert trace.table("device")["correlation"].tolist() == [kineto.events.MISSING] * 2


def test_begin_and_end_events_are_paired_innermost_first(read: Read) -> None:
    def half(ph: str, ts: float, name: str = "", tid: int = 1) -> dict[str, Any]:
        return {"ph": ph, "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": ts}

    events = [
        half("B", 1, "outer"),
        half("B", 2, "inner"),
        half("B", 2.5, "other", tid=2),
        half("E", 3.5),
        half("E", 9),
    ]
    trace = read(document([*events, half("E", 10, tid=2), half("E", 11, tid=2), half("B", 12, "open")]))
    assert times(trace, "outer") == [(1_000, 8_000)]
    assert times(trace, "inner") == [(2_000, 1_500)]
    assert times(trace, "other") == [(2_500, 7_500)]
    assert trace.columns.no_duration == 2  # an end without a begin, and a begin without an end


def test_a_pair_that_ends_before_it_began_keeps_its_negative_time(read: Read) -> None:
    assert times(read(document([one(dur=-0.001), one(dur=-2)])), "aten::mm") == [(10_500, -1), (10_500, -2_000)]


# -- sizes ---------------------------------------------------------------------------------------------------------


def test_a_deep_nest_costs_at_most_its_event(read: Read) -> None:
    for deep in ("[" * 100_000 + "]" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "[" * 100_000):
        trace = read(around(json.dumps(one(args={"x": "@"})).replace('"@"', deep)))
        assert names(trace)[0] == "before"
        assert names(trace)[-1] == "after"
        assert len(names(trace)) == 3 or trace.damage.bad


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, '{"traceEvents":' + "[" * 100_000])
def test_a_file_of_brackets_is_one_clear_error(read: Read, content: str) -> None:
    with pytest.raises(InputError, match=r"trace\.json"):
        read(content)


@pytest.mark.parametrize("where", ["name", "args"])
def test_a_string_of_ten_megabytes_is_read(read: Read, where: str) -> None:
    long = "x" * 10_000_000
    trace = read(around(json.dumps(one(name=long) if where == "name" else one(args={"External id": 5, "x": long}))))
    assert len(trace.table("ops")) == 3 or trace.damage.bad == 1
    assert (names(trace)[0], names(trace)[-1]) == ("before", "after")
    assert not trace.damage.truncated


def test_an_event_larger_than_a_block_is_read_or_counted(read: Read) -> None:
    for size in (100_000, 300_000, 700_000):
        parts = [{"rank": number} for number in range(size)]  # borders between objects all over it
        text = around(json.dumps(one(args={"External id": 5, "Parts": parts})))
        trace = read(text)
        assert (names(trace)[0], names(trace)[-1]) == ("before", "after")
        assert len(names(trace)) == 3 or (trace.damage.bad and len(text) > MAX_EVENT_BYTES)


def test_a_string_that_never_ends_loses_what_follows_and_says_so(read: Read) -> None:
    events = ",\n".join(json.dumps(one(name=f"op{number}")) for number in range(100))
    trace = read(f'{{"traceEvents": [{events}, {{"ph": "X", "name": "{"x" * 20_000_000}')
    assert names(trace) == [f"op{number}" for number in range(100)]
    assert trace.damage.truncated or trace.damage.bad


# -- the file as a whole -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_byte_order_marks_are_taken_off(read: Read, encoding: str) -> None:
    mark = "﻿" if encoding.endswith(("le", "be")) else ""
    trace = read((mark + gpu_step()).encode(encoding))
    assert found(trace) == expected(gpu_step())
    assert not text_of.stated(trace)


def test_utf16_cut_in_a_character_states_the_loss(read: Read) -> None:
    data = gpu_step().encode("utf-16")
    for cut in (1, 2, 101, 102):
        assert text_of.stated(read(data[:-cut]))


@pytest.mark.parametrize("between", ["", "\n", "\0"])
def test_a_second_document_is_not_read_and_its_size_is_said(read: Read, between: str) -> None:
    for text in (gpu_step(), json.dumps(gpu_events())):
        trace = read(text + between + text)
        assert found(trace) == expected(text)
        assert trace.damage.extra_bytes >= len(text.encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b" \n\t ",
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"{}",
        b"[]",
        b"null",
        b"true",
        b"17",
        b'"traceEvents"',
        b'{"traceEvents": []}',
        b'{"traceEvents": {}}',
        b'{"traceEvents": null}',
        b'{"traceEvents": 5, "x": [{"ph": "X"}]}',
        b'{"traceEvents": ["a", "b"]}',
        b'{"traceEvents": [1, 2, 3]}',
        b'{"traceEvents": [{}]}',
        b'{"traceEvents": [',
        b'{"traceEv',
        b'{"name": "gpudoctor", "dependencies": {"torch": ">=2"}}',
        b'[{"name": "torch", "version": "2"}, {"name": "numpy", "version": "3"}]',
        b"import torch\n",
        b"<html></html>",
        b"name,ts,dur\naten::mm,1,2\n",
        bytes(range(256)) * 64,
        bytes(10_000),
        b"\x7fELF\x02\x01\x01" + bytes(100),
        b"PK\x03\x04" + bytes(100),
        b"\x1f\x8b",
        b"\x1f\x8bbroken",
        b"\x1f\x8b\x08\x00" + b"\xff" * 100,
        gzip.compress(b"", mtime=0),
        gzip.compress(b"{}", mtime=0),
        gzip.compress(b"hello", mtime=0),
        gpu_step().encode("utf-16-le"),
        gpu_step().encode("utf-32"),
    ],
)
def test_what_is_no_trace_is_one_clear_error_that_names_the_file(read: Read, content: bytes) -> None:
    with pytest.raises(InputError, match=r"trace\.json") as caught:
        read(content)
    assert "\n" not in str(caught.value)


def test_a_folder_a_missing_file_and_a_name_that_is_none_are_one_clear_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json", tmp_path / "x\0y.json", tmp_path / ("n" * 5000)):
        with pytest.raises(InputError):
            kineto.read(path)


# -- gzip ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz", "trace.bin", "trace"])
def test_the_content_says_what_is_gzip_not_the_name(read: Read, name: str) -> None:
    wanted = expected(gpu_step())
    for content in (gpu_step().encode(), gzip.compress(gpu_step().encode())):
        trace = read(content, name)
        assert found(trace) == wanted
        assert not text_of.stated(trace)


def test_gzip_cut_anywhere_gives_whole_events_and_says_so_or_is_one_clear_error(read: Read) -> None:
    events = gpu_events()
    data = gzip.compress(gpu_step().encode())
    last = -1
    assert len(data) < 3_000
    for size in range(0, len(data), 3):
        try:
            trace = read(data[:size])
        except InputError:
            assert last < 0, "a longer file gave less"
            continue
        kept = sum(trace.columns.rows.values())
        assert kept >= last
        last = kept
        assert found(trace) == expected(json.dumps(events[:kept]))
        assert trace.damage.cut
    assert last > len(events) // 2


def test_gzip_with_a_flipped_byte_never_gives_other_numbers_silently(read: Read) -> None:
    data = gzip.compress(gpu_step().encode())
    wanted = expected(gpu_step())
    for at in range(len(data)):
        hurt = bytearray(data)
        hurt[at] ^= 0x55
        try:
            trace = read(bytes(hurt))
        except InputError:
            continue
        assert found(trace) == wanted or trace.damage.cut, at


def test_gzip_members_one_after_the_other_are_one_text(read: Read) -> None:
    text = gpu_step().encode()
    for at in (1, 10, len(text) // 2, len(text) - 1):
        trace = read(gzip.compress(text[:at]) + gzip.compress(text[at:]))
        assert found(trace) == expected(gpu_step())
        assert not text_of.stated(trace)


@pytest.mark.parametrize("tail", [b"garbage", b"\0" * 700, b"\0\0\0garbage", b"\x1f", b"\x1f\x8bgarbage"])
def test_garbage_after_gzip_data_costs_nothing_before_it(read: Read, tail: bytes) -> None:
    trace = read(gzip.compress(gpu_step().encode()) + tail)
    assert found(trace) == expected(gpu_step())
    assert bool(tail.strip(b"\0")) == bool(trace.damage.cut or trace.damage.extra_bytes)


# -- blocks --------------------------------------------------------------------------------------------------------


def hurt_traces() -> dict[str, bytes]:
    cpu, gpu = cpu_step().encode(), gpu_step().encode()
    middle = len(gpu) // 2
    return {
        "cpu": cpu,
        "gpu": gpu,
        "compact": gpu_step(indent=None).encode(),
        "bare list": json.dumps(gpu_events()).encode(),
        "cut": cpu[: len(cpu) * 2 // 3],
        "unescaped quotes": gpu.replace(b"cudaLaunchKernel", b'cuda"Launch"Kernel'),
        "nan": gpu.replace(b"37", b"nan"),
        "a backslash": gpu.replace(b"cudaLaunchKernel", b"cuda\\"),
        "a quote lost": gpu[:middle] + gpu[middle:].replace(b'"', b"", 1),
        "a brace lost": gpu[:middle] + gpu[middle:].replace(b"}", b"", 1),
        "a bracket more": gpu[:middle] + gpu[middle:].replace(b"]", b"]]", 1),
        "zeros": gpu[:middle] + bytes(500) + gpu[middle + 500 :],
        "not utf-8": gpu.replace(b"\xc3\xa9", b"\xe9"),
        "two documents": gpu + gpu,
    }


@pytest.mark.parametrize("what", hurt_traces())
def test_the_size_of_a_block_changes_nothing(what: str) -> None:
    data = hurt_traces()[what]
    whole = decoded(data)
    for size in (64, 65, 100, 128, 251, 500, 777, 1024, 3000, 8192, 20_000):
        events, damage, metadata = decoded(data, size)
        assert events == whole[0], size
        assert damage == whole[1], size
        assert metadata == whole[2], size


# -- any damage ----------------------------------------------------------------------------------------------------

Edit = tuple[str, float, int, bytes]


PIECES = st.one_of(
    st.binary(min_size=1, max_size=20),
    st.sampled_from(
        [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"},{", b'},\n{"ph":"X"', b'"ts": 7,', b"nan", b"\0", b"]}"]
    ),
    st.text(alphabet='0123456789.eE+-"\\{}[],: \ntrufalsn', min_size=1, max_size=20).map(str.encode),
)
EDITS = st.tuples(
    st.sampled_from(["replace", "insert", "delete", "duplicate"]),
    st.floats(0, 1, exclude_max=True),
    st.one_of(st.integers(1, 20), st.integers(1, 3000)),
    PIECES,
)
"""A change of a text: what is done, where (0 to 1), to how many bytes, and with which."""


def edited(data: bytes, changes: list[Edit]) -> bytes:
    for kind, share, size, piece in changes:
        at = int(share * len(data))
        if kind == "replace":
            data = data[:at] + piece + data[at + len(piece) :]
        elif kind == "insert":
            data = data[:at] + piece + data[at:]
        elif kind == "delete":
            data = data[:at] + data[at + size :]
        else:
            data = data[:at] + data[at : at + size] + data[at:]
    return data


@settings(max_examples=400, deadline=None)
@example("compact", [("duplicate", 0.013671875, 16, b"."), ("delete", 0.5, 1, b".")], 64)  # the header says less
@given(
    which=st.sampled_from(sorted(TRACES)),
    changes=st.lists(EDITS, min_size=1, max_size=3),
    block_bytes=st.sampled_from([64, 300, 4 << 20]),
)
def test_any_edit_gives_the_events_of_the_text_or_a_counted_loss_or_one_clear_error(
    which: str, changes: list[Edit], block_bytes: int
) -> None:
    text = TRACES[which]()
    data = edited(text.encode(), changes)
    try:
        trace = trace_of(data, block_bytes)
    except InputError as error:
        assert str(error).startswith("memory.json")
        assert not expected_of(data)
        return
    wanted = expected_of(data)
    if wanted is not None:
        assert found(trace) == wanted
        assert not trace.damage.bad
    elif found(trace) != expected(text):
        # a comma that is missing between two events costs nothing, and is not said
        assert text_of.stated(trace) or not is_damaged(data) or re.search(rb"\}\s*\{", data)


@settings(max_examples=400, deadline=None)
@given(which=st.sampled_from(sorted(TRACES)), change=EDITS, block_bytes=st.sampled_from([64, 300, 4 << 20]))
@example("gpu", ("duplicate", 0.8914634780993823, 163, b""), 64)  # an object without a comma in an event's list
@example("gpu", ("replace", 0.909456481689043, 1, b"["), 64)  # what follows the bracket looks like another document
def test_one_edit_costs_only_the_events_it_touches(which: str, change: Edit, block_bytes: int) -> None:
    text = TRACES[which]().encode().decode("latin-1")  # a character a byte
    kind, share, size, piece = change
    at = int(share * len(text))
    size = len(piece) if kind == "replace" else 0 if kind == "insert" else size
    events = spans(text)
    assume(at > events[0][0])  # before that it may be no trace any more
    data = edited(text.encode("latin-1"), [change])
    assume(is_damaged(data))  # else it says something else, to everybody
    touched = [number for number, (start, end) in enumerate(events) if start <= at + size and end >= at]
    first, last = (touched[0], touched[-1]) if touched else (len(events), len(events))
    kept, damage = structs(data, block_bytes)
    whole, _ = structs(text.encode("latin-1"))
    assert kept[:first] == whole[:first]
    after = whole[last + 1 :]
    assert kept[len(kept) - len(after) :] == after
    # cut out exactly between two events, one is gone without a trace but the comma, which may be missing
    assert kept == whole or said(damage) or len(kept) >= len(whole) or re.search(rb"\}\s*\{", data)


def trace_of(data: bytes, block_bytes: int) -> kineto.Trace:
    """As `kineto.read`, from memory and in blocks of any size."""
    source = text_of.Text(data)
    blocks, columns = kineto.Blocks(source, block_bytes), kineto.Columns()
    for events in blocks:
        columns.add(events)
    tables = columns.finish()
    blocks.damage.bad += columns.no_event
    if not columns.rows:
        raise InputError("memory.json: no events")
    return kineto.Trace(tables, columns, blocks.metadata, blocks.damage, source.raw_bytes)


def expected_of(data: bytes) -> Any:
    """`expected`, with bytes that are no UTF-8 replaced as the reader does it."""
    return expected(data.decode("utf-8", "replace"))


def is_damaged(data: bytes) -> bool:
    """Whether Python's reader refuses it."""
    try:
        json.loads(data.decode(), parse_constant=text_of._refuse)
    except (ValueError, RecursionError):
        return True
    return False
