"""Inductor's output code as tables.

The logs in data/ are excerpts of torch 2.13's structured log of this script, on a CPU, with an empty cache and with a
warm one (and INDUCTOR_PROVENANCE=1):

     8  def forward(self, x):
    11      y = torch.relu(self.up(x)) * 2
    12      y = torch.sort(y, dim=-1).values
    13      y = y.transpose(1, 2).contiguous()
    14      return y, F.softmax(x, -1)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor import profile as schema
from gpudoctor.ingest import compile_log, inductor_context
from gpudoctor.ingest.inductor_code import CodeLog, CodeTables
from gpudoctor.ingest.inductor_graph import parse_graph
from gpudoctor.ingest.inductor_kernels import read_kernel
from gpudoctor.ingest.inductor_wrapper import read_code
from gpudoctor.userfiles import UserFiles
from tests.shared_traces import shared_trace

DATA = Path(__file__).parent / "data"
COLD, WARM = DATA / "inductor_cpu_cold.log", DATA / "inductor_cpu_warm_provenance.log"

MIX = "cpp_fused__softmax_mul_relu_threshold_backward_view_0"
TURN = "cpp_fused_clone_transpose_1"


def files() -> UserFiles:
    return UserFiles("/proj", foreign=["/usr/lib/"], here=False)


def tables_of(path: Path) -> CodeTables:
    return compile_log.read([path], files(), None).code


def kernels_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["kernel"]: row for row in tables_of(path).kernels}


def test_a_cpp_kernel_has_its_operators_lines_and_traffic() -> None:
    row = kernels_of(COLD)[MIX]
    assert (row["compile_id"], row["graph"], row["direction"], row["kind"]) == ("0/0", "0_forward", "forward", "cpp")
    assert row["ops"] == "aten.relu, aten.mul, aten.amax, aten.sub, aten.exp, aten.sum, aten.div, aten.le"
    assert (row["file"], row["line"], row["function"]) == ("train.py", 14, "forward")
    assert json.loads(row["lines"]) == ["train.py:11", "train.py:14"]
    assert row["line_source"] == "dataflow"
    assert (row["reduction"], row["copy"], row["calls"]) == (True, False, 1)
    # in: the product and x; out: a product, a maximum and a sum for each row, the weights, the mask of relu
    elements, rows = 4 * 16 * 32, 4 * 16
    assert (row["loads"], row["load_bytes"]) == (2, 2 * elements * 4)
    assert (row["stores"], row["store_bytes"]) == (5, 2 * elements * 4 + 2 * rows * 4 + elements)


def test_a_kernel_that_only_transposes_is_a_copy_on_the_line_that_asks_for_it() -> None:
    row = kernels_of(COLD)[TURN]
    assert (row["copy"], row["line"], row["ops"]) == (True, 13, "aten.clone")


def test_backward_kernels_bear_the_lines_of_the_forward() -> None:
    rows = [row for row in tables_of(COLD).kernels if row["direction"] == "backward"]
    assert [json.loads(row["lines"]) for row in rows] == [["train.py:12", "train.py:11"], ["train.py:11"]]


def test_library_calls_are_told_from_fallbacks() -> None:
    calls = [(row["name"], row["op_class"], row["fallback"], row["line"]) for row in tables_of(COLD).calls]
    assert calls == [
        ("extern_kernels.addmm", "gemm", False, 11),
        ("torch.ops.aten.sort.stable", "reduction", True, 12),
        ("extern_kernels.mm", "gemm", False, 11),
    ]


def test_a_warm_cache_gives_the_same_tables_as_a_cold_one() -> None:
    for cold, warm in zip(_all_rows(COLD), _all_rows(WARM), strict=True):
        said = {"line_source", "lines"}
        assert {k: v for k, v in cold.items() if k not in said} == {k: v for k, v in warm.items() if k not in said}
        assert (cold["line_source"], warm["line_source"]) == ("dataflow", "provenance")


def test_lines_from_buffers_are_among_those_that_torch_traced() -> None:
    for cold, warm in zip(_all_rows(COLD), _all_rows(WARM), strict=True):
        assert set(json.loads(cold["lines"])) <= set(json.loads(warm["lines"])), cold


def _all_rows(path: Path) -> list[dict[str, Any]]:
    made = tables_of(path)
    return [*made.kernels, *made.calls]


def test_rows_have_declared_columns_only() -> None:
    made = tables_of(COLD)
    assert len(schema.frame("generated_kernels", made.kernels)) == 4
    assert len(schema.frame("extern_calls", made.calls)) == 3


CHAIN_GRAPH = """class GraphModule(torch.nn.Module):
    def forward(self, arg0_1: "f32[8, 8][8, 1]cpu", arg1_1: "f32[8, 8][8, 1]cpu"):
        # File: /proj/model.py:5 in forward, code: y = x.sin()
        sin: "f32[8, 8][8, 1]cpu" = torch.ops.aten.sin.default(arg0_1)
        # File: /proj/model.py:6 in forward, code: z = y.cos()
        cos: "f32[8, 8][8, 1]cpu" = torch.ops.aten.cos.default(sin);  sin = None
        # File: /proj/model.py:7 in forward, code: w = z @ w
        mm: "f32[8, 8][8, 1]cpu" = torch.ops.aten.mm.default(cos, arg1_1)
        # File: /proj/model.py:8 in forward, code: return w + z
        add: "f32[8, 8][8, 1]cpu" = torch.ops.aten.add.Tensor(mm, cos);  mm = cos = None
        return (add,)
"""


def chain(*calls: str) -> str:
    """Two C++ kernels with one input and one with two, and these calls."""
    one, two = "['const float*', 'float*']", "['const float*', 'const float*', 'float*']"
    head = {
        one: 'extern "C" void kernel(const float* in_ptr0, float* out_ptr0)\n{}',
        two: 'extern "C" void kernel(const float* in_ptr0, const float* in_ptr1, float* out_ptr0)\n{}',
    }
    made = [
        f"{name} = async_compile.cpp_pybinding({kind}, r'''\n{head[kind]}\n''')\n"
        for name, kind in (("cpp_a", one), ("cpp_b", one), ("cpp_c", two))
    ]
    new = [f"    buf{at} = empty_strided_cpu((8, 8), (8, 1), torch.float32)\n" for at in range(4)]
    return "".join(
        (
            *made,
            "def call(args):\n    arg0_1, arg1_1 = args\n",
            *new,
            *(f"    {c}\n" for c in calls),
            "    return (buf3, )\n",
        )
    )


def test_a_kernel_between_named_buffers_has_the_nodes_between_them() -> None:
    text = chain("cpp_a(arg0_1, buf1)", "extern_kernels.mm(buf1, arg1_1, out=buf2)", "cpp_c(buf2, buf1, buf3)")
    first, last, never = code_tables((artifact("inductor_post_grad_graph"), CHAIN_GRAPH), (OUTPUT, text)).kernels
    assert (never["kernel"], never.get("calls")) == ("cpp_b", None)
    assert (first["nodes"], first["lines"]) == ("sin, cos", '["model.py:5", "model.py:6"]')
    assert (last["nodes"], last["line"]) == ("add", 8)


def test_a_buffer_that_only_kernels_pass_on_leaves_the_lines_unknown() -> None:
    text = chain(
        "cpp_a(arg0_1, buf0)",
        "cpp_b(buf0, buf1)",
        "extern_kernels.mm(buf1, arg1_1, out=buf2)",
        "cpp_c(buf2, buf1, buf3)",
    )
    rows = code_tables((artifact("inductor_post_grad_graph"), CHAIN_GRAPH), (OUTPUT, text)).kernels
    assert {row["kernel"]: row["line"] for row in rows} == {"cpp_a": None, "cpp_b": None, "cpp_c": 8}
    # unless all that they can compute is on one line
    graph = CHAIN_GRAPH.replace("model.py:5", "model.py:6")
    rows = code_tables((artifact("inductor_post_grad_graph"), graph), (OUTPUT, text)).kernels
    assert {row["kernel"]: row["line"] for row in rows} == {"cpp_a": None, "cpp_b": 6, "cpp_c": 8}
    assert {row["nodes"] for row in rows if row["kernel"] != "cpp_c"} == {None}


def test_a_log_cut_anywhere_gives_rows_or_none(tmp_path: Path) -> None:
    whole = COLD.read_text()
    for end in range(0, len(whole), 1499):
        cut = tmp_path / "cut.log"
        cut.write_text(whole[:end])
        made = tables_of(cut)
        schema.frame("generated_kernels", made.kernels)
        schema.frame("extern_calls", made.calls)


# -- Triton ---------------------------------------------------------------------------------------------------------

GRAPH = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[64, 128][128, 1]cuda:0", arg1_1: "f32[128, 64][64, 1]cuda:0"):
        # File: /proj/model.py:5 in forward, code: y = x.sin() + 1
        sin: "f32[64, 128][128, 1]cuda:0" = torch.ops.aten.sin.default(arg0_1);  arg0_1 = None
        add: "f32[64, 128][128, 1]cuda:0" = torch.ops.aten.add.Tensor(sin, 1);  sin = None

        # File: /proj/model.py:6 in forward, code: z = y.flip(0) * 2
        rev: "f32[64, 128][128, 1]cuda:0" = torch.ops.prims.rev.default(add, [0]);  add = None
        mul: "f32[64, 128][128, 1]cuda:0" = torch.ops.aten.mul.Tensor(rev, 2);  rev = None

        # File: /proj/model.py:7 in forward, code: return z @ w
        mm: "f32[64, 64][64, 1]cuda:0" = torch.ops.aten.mm.default(mul, arg1_1);  mul = arg1_1 = None
        return (mm,)
"""


def triton_kernel(name: str, nodes: str, ops: str, body: str, heuristic: str = "pointwise") -> str:
    fragment = "\n".join(
        f"#   %{node} : [num_users=1] = call_function[target=op](args = ())" for node in nodes.split(", ")
    )
    return f"""
# kernel path: /cache/ab/cab.py
# Topologically Sorted Source Nodes: [{nodes}], Original ATen: [{ops}]
# Graph fragment:
{fragment}
{name} = async_compile.triton('{name}', '''
@triton_heuristics.{heuristic}(
    size_hints={{'x': 8192}},
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}}}},
    inductor_meta={{'kernel_name': '{name}', 'num_load': 1, 'num_reduction': 0}},
)
@triton.jit
def {name}(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    x0 = xindex
{body}
''', device_str='cuda')

"""


SINE = """    tmp0 = tl.load(in_ptr0 + (x0), None)
    tmp1 = tl_math.sin(tmp0)
    tl.store(out_ptr0 + (x0), tmp1, None)"""
MOVE = """    tmp0 = tl.load(in_ptr0 + (8191 + ((-1)*x0)), None)
    tl.store(out_ptr0 + (x0), tmp0, None)"""
GATHER = """    tmp0 = tl.load(in_ptr0 + (x0), None)
    tmp1 = tl.load(in_ptr0 + (tmp0), None)
    tl.store(out_ptr0 + (x0), tmp1, None)"""

TRITON = (
    "# AOT ID: ['3_inference']\nasync_compile = AsyncCompile()\n"
    + triton_kernel("triton_poi_fused_add_sin_0", "sin, add", "aten.sin, aten.add", SINE)
    + triton_kernel("triton_poi_fused_flip_mul_1", "rev, mul", "aten.flip, aten.mul", SINE)
    + """
async_compile.wait(globals())

def call(args):
    arg0_1, arg1_1 = args
    args.clear()
    assert_size_stride(arg0_1, (64, 128), (128, 1))
    assert_size_stride(arg1_1, (128, 64), (64, 1))
    with torch.cuda._DeviceGuard(0):
        buf0 = empty_strided_cuda((64, 128), (128, 1), torch.float32)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.sin, aten.add]
        stream0 = get_raw_stream(0)
        triton_poi_fused_add_sin_0.run(arg0_1, buf0, 8192, stream=stream0)
        buf1 = empty_strided_cuda((64, 128), (128, 1), torch.float32)
        # Topologically Sorted Source Nodes: [z], Original ATen: [aten.flip, aten.mul]
        triton_poi_fused_flip_mul_1.run(buf0, buf1, 8192, stream=stream0)
        buf2 = empty_strided_cuda((64, 64), (64, 1), torch.float32)
        # Topologically Sorted Source Nodes: [z, out], Original ATen: [aten.mul, aten.mm]
        extern_kernels.mm(buf1, arg1_1, out=buf2)
    return (buf2, )
"""
)


def code_tables(*records: tuple[Mapping[str, Any], str], compile_id: str = "2/0") -> CodeTables:
    log = CodeLog()
    for metadata, payload in records:
        log.add(compile_id, metadata, payload)
    return log.tables(files())


def artifact(name: str) -> dict[str, Any]:
    return {"artifact": {"name": name, "encoding": "string"}}


OUTPUT = {"inductor_output_code": {"filename": "/cache/xy/cxy.py"}}


def test_a_triton_kernel_says_which_nodes_it_computes() -> None:
    made = code_tables(({"inductor_post_grad_graph": {}}, GRAPH), (OUTPUT, TRITON))
    first, second = made.kernels
    assert (first["kernel"], first["kind"], first["ops"]) == (
        "triton_poi_fused_add_sin_0",
        "triton",
        "aten.sin, aten.add",
    )
    assert (first["line"], second["line"], first["line_source"]) == (5, 6, "comment")
    assert (first["loads"], first["stores"], first["load_bytes"]) == (1, 1, 64 * 128 * 4)
    assert (first["reduction"], first["copy"]) == (False, False)
    assert first["direction"] == "inference"
    (product,) = made.calls
    assert (product["name"], product["line"], product["nodes"]) == ("extern_kernels.mm", 7, "mm")


def test_a_kernel_that_reads_what_the_one_before_wrote_is_unfused_with_it() -> None:
    first, second = code_tables((OUTPUT, TRITON)).kernels
    assert first.get("unfused_with") is None
    assert (second["unfused_with"], second["unfused_bytes"]) == ("triton_poi_fused_add_sin_0", 2 * 64 * 128 * 4)


def test_a_library_call_between_two_kernels_keeps_them_apart() -> None:
    between = TRITON.replace("        buf1 =", "        torch.ops.mylib.wait.default(buf0)\n        buf1 =")
    assert not any(row.get("unfused_with") for row in code_tables((OUTPUT, between)).kernels)


def test_without_a_graph_there_are_no_lines() -> None:
    made = code_tables((OUTPUT, TRITON))
    assert {row["line"] for row in (*made.kernels, *made.calls)} == {None}
    assert {row["line_source"] for row in (*made.kernels, *made.calls)} == {None}


def test_dynamic_sizes_leave_bytes_unknown() -> None:
    made = code_tables((OUTPUT, TRITON.replace("(64, 128), (128, 1)", "(s0, 128), (128, 1)")))
    assert {row["load_bytes"] for row in made.kernels} == {None}
    assert {row["loads"] for row in made.kernels} == {1}


def test_code_that_does_not_parse_gives_the_kernels_names() -> None:
    made = code_tables((artifact("after_post_grad_graph"), GRAPH), (OUTPUT, TRITON + "\n    return ("))
    assert [row["kernel"] for row in made.kernels] == ["triton_poi_fused_add_sin_0", "triton_poi_fused_flip_mul_1"]
    assert not made.calls
    schema.frame("generated_kernels", made.kernels)


def test_provenance_goes_before_the_graph_and_names_the_innermost_line_of_the_users() -> None:
    trace = (
        '  File "/proj/train.py", line 90, in main\n    f(x)\n'
        '  File "/proj/model.py", line 77, in forward\n    y = sin(x)\n'
        '  File "/usr/lib/python3/site-packages/lib/x.py", line 3, in sin\n    return x\n'
    )
    named = json.dumps({"triton_poi_fused_add_sin_0": [trace], "other": 3})
    said = artifact("inductor_provenance_tracking_kernel_stack_traces")
    first, second = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, TRITON), (said, named)).kernels
    assert (first["file"], first["line"], first["line_source"]) == ("model.py", 77, "provenance")
    assert (second["line"], second["line_source"]) == (6, "comment")


@pytest.mark.parametrize("payload", ["", "[]", "null", "{", '{"a": null}'])
def test_provenance_that_says_nothing_changes_nothing(payload: str) -> None:
    said = artifact("inductor_provenance_tracking_kernel_stack_traces")
    rows = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, TRITON), (said, payload)).kernels
    assert [row["line_source"] for row in rows] == ["comment", "comment"]


def test_code_that_comes_again_from_the_cache_counts_once_and_keeps_its_graph() -> None:
    made = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, TRITON), (OUTPUT, TRITON))
    assert [row["line"] for row in made.kernels] == [5, 6]


@pytest.mark.parametrize(("body", "copy"), [(SINE, False), (MOVE, True), (GATHER, False)])
def test_a_triton_kernel_that_only_moves_elements_is_a_copy(body: str, copy: bool) -> None:
    text = triton_kernel("triton_poi_fused_0", "a", "aten.clone", body)
    assert read_code(text).kernels["triton_poi_fused_0"].copy is copy


def test_a_reduction_is_known_by_its_heuristic() -> None:
    text = triton_kernel("triton_per_fused_sum_0", "a", "aten.sum", SINE, heuristic="persistent_reduction")
    assert read_code(text).kernels["triton_per_fused_sum_0"].reduction is True


def test_what_a_kernel_of_the_users_reads_and_writes_is_not_guessed() -> None:
    own = TRITON.replace("in_ptr0", "x_ptr").replace("'x_ptr': '*fp32', 'out_ptr0'", "'x_ptr': '*fp32', 'y_ptr'")
    rows = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, own)).kernels
    assert {(row["loads"], row["stores"], row["load_bytes"], row["in_place"]) for row in rows} == {(None,) * 4}
    assert not any(row.get("unfused_with") for row in rows)


def test_a_kernel_of_an_unknown_kind_has_a_name() -> None:
    kernel = read_kernel("k", "halide", "func f = 1\n")
    assert (kernel.kind, kernel.arguments, kernel.copy) == ("halide", (), None)


# -- from other machines ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kernels", "calls", "with_line"),
    [
        ("simple.log", 2, 2, 2),
        ("cache_hit_miss.log", 2, 0, 2),
        ("links.log", 1, 0, 1),
        ("artifacts.log", 0, 0, 0),
        ("multi_rank_schedule/dedicated_log_torch_trace_rank_2.log", 4, 8, 10),
    ],
)
def test_logs_of_other_versions(name: str, kernels: int, calls: int, with_line: int) -> None:
    made = tables_of(shared_trace(f"torchtrace/{name}"))
    assert (len(made.kernels), len(made.calls)) == (kernels, calls)
    assert sum(row["line"] is not None for row in (*made.kernels, *made.calls)) == with_line


def test_a_damaged_log_still_gives_its_kernels() -> None:
    whole = tables_of(shared_trace("torchtrace/simple.log"))
    damaged = tables_of(shared_trace("torchtrace/simple_corrupted_json.log"))
    assert damaged.kernels == whole.kernels


# -- joined with the trace --------------------------------------------------------------------------------------------


def ops(*rows: Mapping[str, Any]) -> Any:
    return schema.frame("ops", [{"op": at, "step": 3} | dict(row) for at, row in enumerate(rows)])


PRODUCT = next(at for at, line in enumerate(TRITON.splitlines(), 1) if "extern_kernels.mm(" in line)


def test_operators_at_a_line_of_the_generated_code_land_on_the_users_line() -> None:
    made = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, TRITON))
    place = {"file": "/cache/xy/cxy.py", "line": PRODUCT, "function": "call", "precision": "call"}
    table = ops(
        {"name": "Torch-Compiled Region: 2/0", "file": "train.py", "line": 9, "dur_ns": 900},
        {"name": "aten::mm", "parent": 0, "dur_ns": 500, **place},
        {"name": "aten::resize_", "parent": 1, "dur_ns": 100, **place},
        {"name": "aten::empty", "parent": 0, "dur_ns": 100, "file": "/cache/xy/cxy.py", "line": 1, "precision": "call"},
    )
    inductor_context.join(made, {"ops": table})
    (product,) = made.calls
    assert (product["time_ns"], product["launches_per_step"]) == (500, 1.0)
    assert table["file"].tolist()[:3] == ["train.py", "model.py", "model.py"]
    assert table["line"].tolist()[:3] == [9, 7, 7]
    assert table["function"].tolist()[1] == "forward"
    assert table["file"].isna().tolist() == [False, False, False, True]
    assert table["precision"].fillna("").tolist() == ["", "call", "call", ""]
    assert {row.get("time_ns") for row in made.kernels} == {None}


def test_a_cpp_kernel_that_the_profiler_names_has_a_time() -> None:
    made = tables_of(COLD)
    file, line = next(at for at, (row, _) in made.places.items() if row.get("kernel") == TURN)
    inductor_context.join(
        made, {"ops": ops({"name": f"graph_0_{TURN}", "dur_ns": 70, "file": file, "line": line}, {"name": "x"})}
    )
    times = {row["kernel"]: row.get("time_ns") for row in made.kernels}
    assert (times[TURN], times[MIX]) == (70, None)


def test_a_kernel_on_the_gpu_has_its_time_and_its_line() -> None:
    made = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, TRITON))
    kernels = schema.frame(
        "kernels",
        [
            {"kernel": 0, "name": "triton_poi_fused_add_sin_0", "step": 3, "dur_ns": 10},
            {"kernel": 1, "name": "triton_poi_fused_add_sin_0", "step": 4, "dur_ns": 20, "file": "own.py", "line": 1},
            {"kernel": 2, "name": "sm90_gemm", "step": 4, "dur_ns": 99, "file": "/cache/xy/cxy.py", "line": 2},
            {"kernel": 3, "name": "gemm", "precision": "tf32", "file": "/cache/xy/cxy.py", "line": PRODUCT},
        ],
    )
    inductor_context.join(made, {"kernels": kernels})
    first, second = made.kernels
    assert (first["launches_per_step"], first["time_ns"]) == (1.0, 15)
    assert (second["launches_per_step"], second["time_ns"]) == (0.0, 0)
    assert kernels["line"].fillna(-1).tolist() == [5, 1, -1, 7]
    assert kernels["precision"].iloc[3] == "tf32"


def test_kernels_of_two_graphs_with_one_name_are_told_by_their_region() -> None:
    log = CodeLog()
    for compile_id in ("1/0", "2/0"):
        log.add(compile_id, OUTPUT, TRITON)
    made = log.tables(files())
    table = ops(
        {"name": "Torch-Compiled Region: 2/0", "region": "2/0", "phase": "forward"}, {"name": "x", "phase": "forward"}
    )
    name = "triton_poi_fused_add_sin_0"
    rows = [{"kernel": 0, "name": name, "op": 0, "step": 3, "dur_ns": 7}]
    inductor_context.join(made, {"ops": table, "kernels": schema.frame("kernels", rows)})
    assert {row["compile_id"]: row["time_ns"] for row in made.kernels if row["kernel"] == name} == {"1/0": 0, "2/0": 7}
    # one that cannot be told belongs to neither
    made = log.tables(files())
    rows = [{"kernel": 0, "name": name, "op": 1, "step": 3, "dur_ns": 7}]
    inductor_context.join(made, {"ops": table, "kernels": schema.frame("kernels", rows)})
    assert {row.get("time_ns") for row in made.kernels if row["kernel"] == name} == {None}


# -- anything at all --------------------------------------------------------------------------------------------------


@given(st.text(max_size=300))
def test_no_text_breaks_the_readers(text: str) -> None:
    parse_graph(text, files())
    read_code(text)
    read_kernel("k", "cpp_pybinding", text)
    read_kernel("k", "triton", text)


@given(st.lists(st.sampled_from([*TRITON.splitlines(), *GRAPH.splitlines(), "    return (buf0, None, 1)", "'''"])))
def test_shuffled_code_gives_fewer_columns_and_no_error(lines: list[str]) -> None:
    text = "\n".join(lines)
    made = code_tables((artifact("inductor_post_grad_graph"), text), (OUTPUT, text), (OUTPUT, TRITON))
    schema.frame("generated_kernels", made.kernels)
    schema.frame("extern_calls", made.calls)


@given(st.data())
def test_code_with_any_lines_dropped_gives_no_error(data: st.DataObject) -> None:
    lines = TRITON.splitlines()
    kept = data.draw(st.lists(st.booleans(), min_size=len(lines), max_size=len(lines)))
    text = "\n".join(line for line, keep in zip(lines, kept, strict=True) if keep)
    made = code_tables((artifact("inductor_post_grad_graph"), GRAPH), (OUTPUT, text))
    schema.frame("generated_kernels", made.kernels)
