from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.ingest import compile_breaks, compile_cudagraphs, compile_guards, compile_log
from gpudoctor.userfiles import UserFiles

FILES = UserFiles("/proj", foreign=["/usr/lib/"], here=False)

BREAK = """Graph break in user code at /proj/model.py:20
Graph Break Reason: Encountered graph break when attempting to trace CALL: a function call, e.g. f(x, y):
Unsupported Tensor.item() call with capture_scalar_outputs=False
  Explanation: Dynamo does not support tracing `Tensor.item()`.
  Hint: Set `torch._dynamo.config.capture_scalar_outputs = True`.
  Hint: This graph break is fundamental - it is unlikely that Dynamo will ever be able to trace through your code.

  Developer debug context: call_method TensorVariable() item () {}

 For more details about this graph break, please visit: https://meta-pytorch.github.io/compile-graph-break-site/gb/gb0124.html

User code traceback:
  File "/proj/train.py", line 43, in <module>
    main()
  File "/venv/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1778, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
  File "/proj/model.py", line 20, in forward
    stats = l2.item()
"""


def test_a_graph_break_gives_line_reason_hints_and_id() -> None:
    row = compile_breaks.parse_graph_break(BREAK, FILES)
    assert (row["file"], row["line"], row["function"], row["owner"]) == ("model.py", 20, "forward", "user")
    assert row["reason"] == "Unsupported Tensor.item() call with capture_scalar_outputs=False"
    assert row["explanation"] == "Dynamo does not support tracing `Tensor.item()`."
    assert row["hint"] == "Set `torch._dynamo.config.capture_scalar_outputs = True`."
    assert row["break_id"] == "GB0124"


def test_a_break_inside_the_optimizer_belongs_to_the_users_line_and_says_whose_code_broke() -> None:
    text = BREAK.replace(
        '  File "/proj/model.py", line 20, in forward\n    stats = l2.item()\n',
        '  File "/venv/lib/python3.11/site-packages/torch/optim/optimizer.py", line 79, in _use_grad\n    f()\n',
    )
    row = compile_breaks.parse_graph_break(text, FILES)
    assert (row["file"], row["line"], row["function"], row["owner"]) == ("train.py", 43, None, "torch.optim")


def test_a_break_without_any_of_the_users_frames_has_no_line() -> None:
    row = compile_breaks.parse_graph_break("Graph Break Reason: x\n", FILES)
    assert row["file"] is None
    assert row["reason"] == "x"


@pytest.mark.parametrize(
    ("payload", "cause", "changed", "source", "dimension", "expected", "actual"),
    [
        ("0/0: tensor 'x' size mismatch at index 1. expected 58, actual 70", "shape", "size", "x", 1, "58", "70"),
        ("tensor 'L['ids']' size mismatch at index 0. expected 32, actual 7", "shape", "size", "ids", 0, "32", "7"),
        ("- 0/1: tensor 'x' stride mismatch at index 0. expected 5, actual 6", "shape", "stride", "x", 0, "5", "6"),
        ("0/0: tensor 'x' rank mismatch. expected 2, actual 3", "shape", "rank", "x (rank)", None, "2", "3"),
        ("0/0: L['x'].size()[0] == 32  # y = x + 1  # a.py:3 in f", "shape", "size", "x.size()[0]", 0, "32", None),
        ("0/0: tensor 'x' dtype mismatch. expected Float, actual Half", "value", "dtype", "x", None, "Float", "Half"),
        (
            "0/0: tensor 'x' requires_grad mismatch. expected requires_grad=0",
            "value",
            "requires_grad",
            "x",
            None,
            "0",
            None,
        ),
        (
            "0/0: expected type of 'x' to be a tensor type, ' but found <class 'torch.nn.parameter.Parameter'>",
            "value",
            "type",
            "x",
            None,
            None,
            "<class 'torch.nn.parameter.Parameter'>",
        ),
        ("0/0: self.n == 0   # self.n += 1  # t.py:16 in forward", "value", "number", "self.n", None, "0", None),
        ("0/0: n == 2.5", "value", "number", "n", None, "2.5", None),
        ("0/0: mode == 'a'", "value", "string", "mode", None, "'a'", None),
        ("[\"0/0: L['flag'] is True\"]", "value", "boolean", "flag", None, "True", None),
        ("0/0: flag == True", "value", "boolean", "flag", None, "True", None),
        ("0/0: len(L['xs']) == 2", "value", "length", "xs", None, "2", None),
        ("0/0: len(d) != 1", "value", "length", "d", None, "1", None),
        ("0/0: list(dict.keys(d))[0] == 'a'", "value", "keys", "d", None, "'a'", None),
        ("0/0: GLOBAL_STATE changed: grad_mode", "value", "grad mode", "grad_mode", None, None, None),
        ("0/0: GLOBAL_STATE changed: num_threads", "value", "global state", "num_threads", None, None, None),
        ("0/0: ___check_obj_id(g, 139949), type=<class 'x'>", "value", "object", "g", None, None, None),
        ("0/0: ___check_type_id(c.t, 14), type=<class 'float'>", "value", "type", "c.t", None, "float", None),
        (
            "0/0: tensor 'p' size mismatch at index 0. expected 2, actual 3. Guard failed on a parameter, consider x",
            "shape",
            "size",
            "p",
            0,
            "2",
            "3",
        ),
        (
            "0/0: fn._modules['1'].training == True",
            "value",
            "training flag",
            "fn.1.training",
            None,
            "True",
            None,
        ),
        ("0/0: BACKEND_MATCH failure: torch.compile detected different", "value", "backend", None, None, None, None),
        ("0/0: a guard nobody has seen before", "other", "other", None, None, None, None),
        ("", "other", "other", None, None, None, None),
    ],
)
def test_recompile_reasons(
    payload: str,
    cause: str,
    changed: str,
    source: str | None,
    dimension: int | None,
    expected: str | None,
    actual: str | None,
) -> None:
    row = compile_guards.parse_recompile(payload)
    assert (row["cause"], row["changed"]) == (cause, changed)
    assert (row.get("source"), row.get("dimension"), row.get("expected"), row.get("actual")) == (
        source,
        dimension,
        expected,
        actual,
    )


@pytest.mark.parametrize(
    ("guard", "held_in"),
    [
        ("self.calls == 0", "attribute"),
        ("L['n'] == 3", "argument"),
        ("G['SCALE'] == 2.0", "global"),
        ("self.param_groups[0]['lr'] == 0.1", "optimizer"),
        ("___stack1 == 1.5", "continuation"),
        ("tensor 'p' size mismatch at index 0. expected 2, actual 3. Guard failed on a parameter, x", "parameter"),
        ("tensor 'p' size mismatch at index 0. expected 2, actual 3", "argument"),
        ("GLOBAL_STATE changed: grad_mode", None),
    ],
)
def test_where_the_value_lives(guard: str, held_in: str | None) -> None:
    assert compile_guards.parse_recompile(f"0/0: {guard}")["held_in"] == held_in


def test_the_innermost_line_of_the_users_that_reads_the_value() -> None:
    text = (
        "0/0: self.scale == 2   # x * self.scale  # proj/model.py:9 in forward\nUser stack trace:\n"
        '  File "/proj/model.py", line 9, in forward\n    return scaled(x, self.scale)\n'
        '  File "/usr/lib/python3.11/site-packages/torch/x.py", line 70, in scaled\n    return x * scale\n'
    )
    for payload in (text, json.dumps([text, "0/1: other"])):
        row = compile_guards.parse_recompile(payload, FILES)
        assert (row["used_file"], row["used_line"]) == ("model.py", 9)
    assert compile_guards.parse_recompile("0/0: n == 2", FILES)["used_line"] is None


def record(metadata: dict[str, Any], payload: str | None = None) -> str:
    line = f"V1130 14:38:06.245000 77 torch/_dynamo/convert_frame.py:1] {json.dumps(metadata)}\n"
    return line + "".join(f"\t{part}\n" for part in payload.split("\n")) if payload is not None else line


IDS = {"frame_id": 0, "frame_compile_id": 1, "attempt": 0}


def test_records_are_joined_into_one_row_a_compilation(tmp_path: Path) -> None:
    log = tmp_path / "log"
    metrics = {
        "co_name": "forward",
        "co_filename": "/proj/model.py",
        "co_firstlineno": 16,
        "start_time": 2.0,
        "duration_us": 500_000,
        "graph_op_count": 8,
        "guard_count": 93,
        "fail_type": None,
        "fail_reason": None,
    }
    log.write_text(
        record({"str": ["/proj/train.py", 3]})
        + record(
            {
                "dynamo_start": {
                    "stack": [
                        {"line": 34, "name": "main", "filename": 3},
                        {"line": 16, "name": "forward", "filename": 9},
                    ]
                },
                **IDS,
            }
        )
        + record({"create_symbol": {"symbol": "s0", "source": "L['x'].size()[0]"}, **IDS})
        + record({"create_symbol": {"symbol": "s0", "source": "L['x'].size()[0]"}, **IDS})
        + record(
            {"artifact": {"name": "recompile_reasons"}, **IDS},
            "0/0: tensor 'x' size mismatch at index 0. expected 2, actual 3",
        )
        + record({"compilation_metrics": metrics, **IDS})
        + record({"bwd_compilation_metrics": {"duration_us": 7000}, **IDS})
    )
    read = compile_log.read([log], FILES, zero_unix_ns=1_000_000_000)
    (row,) = read.compilations
    assert row["compile_id"] == "0/1"
    assert (row["file"], row["line"], row["function"]) == ("model.py", 16, "forward")
    assert (row["caller_file"], row["caller_line"]) == ("train.py", 34)
    assert (row["start_ns"], row["dur_ns"], row["backward_ns"]) == (1_000_000_000, 500_000_000, 7_000_000)
    assert row["dynamic_dims"] == 1
    assert [r["compile_id"] for r in read.recompiles] == ["0/1"]


def test_a_log_cut_in_the_middle_of_a_record_keeps_the_rest(tmp_path: Path) -> None:
    log = tmp_path / "log"
    whole = record({"artifact": {"name": "dynamo_graph_break_reason"}, **IDS}, BREAK)
    log.write_text(whole + record({"dynamo_start": {"stack": []}, **IDS})[:90])
    read = compile_log.read([log], FILES, None)
    assert len(read.graph_breaks) == 1
    assert read.damaged == 1


@given(st.text(max_size=300))
def test_no_payload_breaks_the_parsers(text: str) -> None:
    compile_breaks.parse_graph_break(text, FILES)
    compile_guards.parse_recompile(text)


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("forward", "forward"),
        ("torch_dynamo_resume_in_forward_at_20", "forward"),
        ("torch_dynamo_resume_in_torch_dynamo_resume_in_f_at_1_at_2", "f"),
        (None, None),
    ],
)
def test_continuations_belong_to_their_function(name: str | None, root: str | None) -> None:
    assert compile_breaks.root_function(name) == root


SKIPPED = """skipping cudagraphs due to cpu device (full_default). Found from :
   File "/proj/train.py", line 40, in main
    loss = net(x)
  File "/proj/model.py", line 15, in forward
    size = torch.tensor([20.0])
  File "/usr/lib/python3/site-packages/x.py", line 3, in f
    y
"""


@pytest.mark.parametrize("kind", ["compilation_metrics", "bwd_compilation_metrics"])
def test_a_skipped_cuda_graph_has_its_reason_and_line(tmp_path: Path, kind: str) -> None:
    log = tmp_path / "log"
    start = record({"dynamo_start": {"stack": [{"line": 9, "name": "f", "filename": "/proj/model.py"}]}, **IDS})
    log.write_text(start + record({kind: {"cudagraph_skip_reason": SKIPPED}, **IDS}))
    (row,) = compile_log.read([log], FILES, None).compilations
    assert row["cudagraph_skip"] == "cpu device (full_default)"
    assert (row["cudagraph_skip_file"], row["cudagraph_skip_line"]) == ("model.py", 15)


@pytest.mark.parametrize(
    ("said", "row"),
    [
        (None, {}),
        ("", {}),
        (3, {}),
        ("skipping cudagraphs due to multiple devices: a, b", {"cudagraph_skip": "multiple devices: a, b"}),
        (
            "skipping cudagraphs due to mutated inputs (1 instances). Found from : \n File",
            "mutated inputs (1 instances)",
        ),
    ],
)
def test_what_torch_says_of_cuda_graphs(said: object, row: dict[str, Any] | str) -> None:
    expected = {"cudagraph_skip": row} if isinstance(row, str) else row
    assert compile_cudagraphs.skipped({"cudagraph_skip_reason": said}, FILES) == expected
