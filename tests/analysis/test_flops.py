"""Hand-computed costs of operators, and which call of a nest they count for."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpudoctor.analysis import flops
from gpudoctor.analysis.costs.attention import _pairs
from gpudoctor.analysis.flops import Cost, cost, list_dtype_of_kernel, matrix_dtype_used, owners

F, H, B, I = "float", "c10::Half", "c10::BFloat16", "long int"  # noqa: E741
N, L = "Scalar", "ScalarList"


def of(name: str, *args: tuple[Any, str, str], list_dtype: str | None = None, concrete: bool = True) -> Cost | None:
    """The cost of a call with arguments (dims, type, concrete value)."""
    dims, types, values = ([arg[i] for arg in args] for i in range(3))
    return cost(f"aten::{name}", dims, types, values if concrete else None, list_dtype)


def t(*shape: int, dtype: str = F) -> tuple[Any, str, str]:
    return list(shape), dtype, ""


def n(value: object) -> tuple[Any, str, str]:
    return [], L if str(value).startswith("[") else N, str(value)


NONE: tuple[Any, str, str] = ([], "", "")


# ---- matrix products


def test_mm_is_two_operations_a_multiply_add() -> None:
    assert of("mm", t(3, 5), t(5, 7)) == Cost(2 * 3 * 5 * 7, 4 * (15 + 35 + 21), "fp32")


def test_text_and_lists_are_read_alike() -> None:
    assert cost("aten::mm", json.dumps([[3, 5], [5, 7]]), "float,float") == cost(
        "aten::mm", [[3, 5], [5, 7]], ["float", "float"]
    )


def test_a_wider_result_costs_more_bytes() -> None:
    plain = of("mm", t(3, 5, dtype=B), t(5, 7, dtype=B))
    wide = of("mm", t(3, 5, dtype=B), t(5, 7, dtype=B), n(6))
    assert plain == Cost(210, 2 * (15 + 35 + 21), "bf16")
    assert wide == Cost(210, 2 * (15 + 35) + 4 * 21, "bf16")


def test_an_out_tensor_is_no_dtype() -> None:
    assert of("mm", t(3, 5), t(5, 7), t(3, 7)) == of("mm", t(3, 5), t(5, 7))


def test_addmm_reads_its_bias_and_does_not_count_adding_it() -> None:
    assert of("addmm", t(7), t(3, 5), t(5, 7), n(1), n(1)) == Cost(210, 4 * (7 + 15 + 35 + 21), "fp32")


@pytest.mark.parametrize(
    ("name", "args", "operations", "elements"),
    [
        ("bmm", [t(2, 3, 5), t(2, 5, 7)], 420, 30 + 70 + 42),
        ("baddbmm", [t(2, 3, 7), t(2, 3, 5), t(2, 5, 7), n(1), n(1)], 420, 42 + 30 + 70 + 42),
        ("addbmm", [t(3, 7), t(2, 3, 5), t(2, 5, 7), n(1), n(1)], 420, 21 + 30 + 70 + 21),
        ("mv", [t(3, 5), t(5)], 30, 15 + 5 + 3),
        ("addmv", [t(3), t(3, 5), t(5), n(1), n(1)], 30, 3 + 15 + 5 + 3),
        ("dot", [t(5), t(5)], 10, 5 + 5 + 1),
        ("linear", [t(2, 3, 5), t(7, 5), t(7)], 420, 30 + 35 + 7 + 42),
        ("linear", [t(2, 3, 5), t(7, 5), NONE], 420, 30 + 35 + 42),
        ("matmul", [t(4, 1, 3, 5), t(2, 5, 7)], 8 * 210, 60 + 70 + 168),
    ],
)
def test_products(name: str, args: list[tuple[Any, str, str]], operations: int, elements: int) -> None:
    assert of(name, *args) == Cost(operations, 4 * elements, "fp32")


def test_fp8_products_have_the_result_type_that_was_asked_for() -> None:
    e4m3 = "c10::Float8_e4m3fn"
    scaled = [t(16, 32, dtype=e4m3), t(32, 64, dtype=e4m3), t(), t(), NONE, NONE]
    assert of("_scaled_mm", *scaled, n(15), n(False)) == Cost(2 * 16 * 32 * 64, 512 + 2048 + 8 + 2 * 1024, "fp8")
    unknown = of("_scaled_mm", *scaled, n(15), n(False), concrete=False)
    assert unknown == Cost(2 * 16 * 32 * 64, None, "fp8")


def test_fp4_packs_two_values_in_a_byte() -> None:
    e2m1 = "c10::Float4_e2m1fn_x2"
    scales = [t(16, 4, dtype="c10::Float8_e4m3fn"), t(64, 4, dtype="c10::Float8_e4m3fn"), NONE, NONE]
    found = of("_scaled_mm", t(16, 32, dtype=e2m1), t(32, 64, dtype=e2m1), *scales, n(15), n(False))
    assert found is not None
    assert (found.flops, found.matrix_dtype) == (2 * 16 * 64 * 64, "fp4")


@pytest.mark.parametrize(
    ("left", "right", "operations", "out"),
    [
        ((12, 5), (3, 5, 7), 2 * 12 * 5 * 7, 12 * 7),
        ((3, 4, 5), (5, 21), 2 * 4 * 5 * 21, 4 * 21),
        ((3, 4, 5), (3, 5, 7), 2 * 3 * 4 * 5 * 7, 3 * 4 * 7),
        ((4, 15), (15, 7), 2 * 4 * 15 * 7, 3 * 4 * 7),
    ],
)
def test_groups_share_out_a_dimension(left: tuple[int, ...], right: tuple[int, ...], operations: int, out: int) -> None:
    ends = t(3, dtype="int")
    found = of("_grouped_mm", t(*left, dtype=B), t(*right, dtype=B), ends, NONE, NONE)
    elements = pd.Series(left).prod() + pd.Series(right).prod() + out
    assert found == Cost(operations, 2 * elements + 12, "bf16")


def test_complex_products_and_misfits_are_left_open() -> None:
    c = "c10::complex<float>"
    assert of("mm", t(3, 5, dtype=c), t(5, 7, dtype=c)) == Cost(None, 8 * 71, None)
    assert of("mm", t(3, 5), t(6, 7)) == Cost(None, None, None)


def test_without_dtypes_the_operations_are_still_known() -> None:
    assert cost("aten::mm", [[3, 5], [5, 7]], None) == Cost(210, None, None)


# ---- convolutions


def test_convolution_by_hand() -> None:
    # 4 images of 3×16×16, 8 filters of 3×3×3, stride 2, padding 1: 8×8 positions
    found = of(
        "convolution", t(4, 3, 16, 16), t(8, 3, 3, 3), t(8), n([2, 2]), n([1, 1]), n([1, 1]), n(False), n([0, 0]), n(1)
    )
    assert found == Cost(2 * 4 * 64 * 8 * 27, 4 * (4 * 3 * 256 + 8 * 27 + 8 + 4 * 8 * 64), "fp32")


def test_the_backends_name_their_arguments_in_other_orders() -> None:
    data, weight, bias = t(4, 3, 16, 16), t(8, 3, 3, 3), t(8)
    stride, padding, dilation, one = n([2, 2]), n([1, 1]), n([1, 1]), n(1)
    no = n(False)
    aten = of("convolution", data, weight, bias, stride, padding, dilation, no, n([0, 0]), one)
    assert of("conv2d", data, weight, bias, stride, padding, dilation, one) == aten
    assert of("miopen_convolution", data, weight, bias, padding, stride, dilation, one, no, no) == aten
    assert of("mkldnn_convolution", data, weight, bias, padding, stride, dilation, one) == aten
    assert of("_slow_conv2d_forward", data, weight, n([3, 3]), bias, stride, padding) == aten
    cudnn = of("cudnn_convolution", data, weight, padding, stride, dilation, one, no, no, no)
    assert cudnn is not None
    assert aten is not None
    assert (cudnn.flops, cudnn.bytes_min) == (aten.flops, (aten.bytes_min or 0) - 4 * 8)


def test_groups_divide_the_work() -> None:
    args = [NONE, n([1, 1]), n([1, 1]), n([1, 1]), n(False), n([0, 0])]
    depthwise = of("convolution", t(2, 8, 6, 6), t(8, 1, 3, 3), *args, n(8))
    assert depthwise is not None
    assert depthwise.flops == 2 * 2 * 36 * 8 * 9


def test_a_transposed_convolution_works_from_the_input() -> None:
    args = [NONE, n([2, 2]), n([0, 0]), n([1, 1]), n(True), n([0, 0]), n(1)]
    found = of("convolution", t(4, 3, 16, 16), t(3, 8, 3, 3), *args)
    assert found == Cost(2 * 4 * 256 * 3 * 8 * 9, 4 * (4 * 3 * 256 + 216 + 4 * 8 * 33 * 33), "fp32")


def test_without_strides_a_convolution_is_not_guessed() -> None:
    args = [t(4, 3, 16, 16), t(8, 3, 3, 3), t(8), n([2, 2]), n([1, 1]), n([1, 1]), n(False), n([0, 0]), n(1)]
    assert of("convolution", *args, concrete=False) == Cost(None, None, "fp32")
    assert of("conv2d", *args[:3], n([1, 1]), NONE, n([1, 1]), n(1)) == Cost(None, None, "fp32")  # padding="same"


@pytest.mark.parametrize(("mask", "products"), [("[True, True, True]", 2), ("[False, True, False]", 1)])
def test_the_output_mask_tells_which_gradients_are_made(mask: str, products: int) -> None:
    grad, data, weight = t(4, 8, 8, 8), t(4, 3, 16, 16), t(8, 3, 3, 3)
    rest = [n([8]), n([2, 2]), n([1, 1]), n([1, 1]), n(False), n([0, 0]), n(1), n(mask)]
    found = of("convolution_backward", grad, data, weight, *rest)
    g, x, w = 4 * 8 * 64, 4 * 3 * 256, 216
    moved = g + 2 * (x + w) + 8 if products == 2 else g + x + w
    assert found == Cost(products * 2 * 4 * 64 * 8 * 27, 4 * moved, "fp32")
    assert of("convolution_backward", grad, data, weight, *rest, concrete=False) == Cost(None, None, "fp32")


# ---- attention


def test_flash_attention_by_hand() -> None:
    q = t(2, 4, 16, 8, dtype=H)
    found = of("_scaled_dot_product_flash_attention", q, q, q, n(0.0), n(False), n(False), NONE)
    assert found == Cost(2 * 8 * 256 * 16, 2 * 4 * 1024, "fp16")


def test_a_causal_mask_leaves_the_lower_triangle() -> None:
    q = t(2, 4, 16, 8, dtype=H)
    found = of("_scaled_dot_product_flash_attention", q, q, q, n(0.0), n(True), n(False), NONE)
    assert found is not None
    assert found.flops == 2 * 8 * (16 * 17 // 2) * 16


def test_an_unknown_mask_is_not_guessed() -> None:
    q = t(2, 4, 16, 8, dtype=H)
    found = of("_scaled_dot_product_flash_attention", q, q, q, n(0.0), n(True), n(False), NONE, concrete=False)
    assert found == Cost(None, 2 * 4 * 1024, "fp16")


def test_the_inner_operators_have_the_sequence_first() -> None:
    q, k = t(2, 16, 4, 8, dtype=H), t(2, 32, 4, 8, dtype=H)
    flash = of("_flash_attention_forward", q, k, k, NONE, NONE, n(16), n(32), n(0.0), n(False), n(False), NONE)
    assert flash is not None
    assert flash.flops == 2 * 8 * 16 * 32 * 16
    efficient = of("_efficient_attention_forward", q, k, k, NONE, NONE, NONE, n(16), n(32), n(0.0), n(0), n(True))
    assert efficient is not None
    assert efficient.flops == flash.flops


def test_the_corner_of_the_mask_counts_when_lengths_differ() -> None:
    q, k = t(1, 2, 1, 8, dtype=H), t(1, 4, 1, 8, dtype=H)
    lengths = [NONE, NONE, n(2), n(4), n(0.0)]
    bottom_right = of("_flash_attention_forward", q, k, k, *lengths, n(True), n(False), NONE)
    top_left = of("_efficient_attention_forward", q, k, k, NONE, *lengths, n(1), n(True))
    assert bottom_right is not None
    assert top_left is not None
    assert bottom_right.flops == 2 * (3 + 4) * 16
    assert top_left.flops == 2 * (1 + 2) * 16


def test_packed_batches_and_windows_depend_on_data() -> None:
    q = t(64, 4, 8, dtype=H)
    ends = t(3, dtype="int")
    packed = of("_flash_attention_forward", q, q, q, ends, ends, n(32), n(32), n(0.0), n(True), n(False), NONE)
    assert packed == Cost(None, 2 * 4 * 2048, "fp16")
    q = t(2, 16, 4, 8, dtype=H)
    dense = [q, q, q, NONE, NONE, n(16), n(16), n(0.0), n(True), n(False), NONE]
    windowed = of("_flash_attention_forward", *dense, n(4), n(0))
    assert windowed is not None
    assert windowed.flops is None
    unlimited = of("_flash_attention_forward", *dense, n(-1), n(-1))
    assert unlimited is not None
    assert unlimited.flops == 2 * 8 * 136 * 16


def test_attention_backward_is_five_products() -> None:
    q, lse = t(2, 4, 16, 8, dtype=H), t(2, 4, 16)
    lengths = [NONE, NONE, n(16), n(16), n(0.0)]
    found = of("_scaled_dot_product_flash_attention_backward", q, q, q, q, q, lse, *lengths, n(False), NONE, NONE)
    assert found == Cost(2 * 8 * 256 * (3 * 8 + 2 * 8), 2 * 8 * 1024, "fp16")


@given(st.integers(1, 12), st.integers(1, 12), st.booleans())
def test_pairs_under_a_causal_mask_are_those_that_one_counts(queries: int, keys: int, bottom_right: bool) -> None:
    shift = keys - queries if bottom_right else 0
    counted = sum(key <= query + shift for query, key in product(range(queries), range(keys)))
    assert _pairs(queries, keys, bottom_right) == counted


# ---- bytes


X = t(4, 8)


@pytest.mark.parametrize(
    ("name", "args", "moved"),
    [
        ("relu", [X], 2 * 128),
        ("relu_", [X], 2 * 128),
        ("add", [X, X, n(1)], 3 * 128),
        ("add_", [X, t(8), n(1)], 2 * 128 + 32),
        ("mul", [t(4, 1), t(8)], 16 + 32 + 128),
        ("mul", [t(4, 8, dtype=B), X], 64 + 128 + 128),
        ("mul", [t(4, 8, dtype=B), t(4, 8, dtype=H)], 64 + 64 + 128),
        ("mul", [t(4, 8, dtype=I), t(4, 8, dtype=I)], 3 * 256),
        ("mul", [t(4, 8, dtype=I), n(2)], None),
        ("div", [t(4, 8, dtype=I), t(4, 8, dtype=I)], None),
        ("gt", [X, n(0)], 128 + 32),
        ("where", [t(4, 8, dtype="bool"), X, X], 32 + 3 * 128),
        ("masked_fill_", [X, t(8, dtype="bool"), n(0)], 128 + 8 + 128),
        ("addcmul_", [X, X, X, n(1)], 4 * 128),
        ("native_dropout", [X, n(0.1), n(True)], 2 * 128 + 32),
        ("gelu_backward", [X, X, NONE], 3 * 128),
        ("add", [t(4, 3), t(4, 2), n(1)], None),
        ("fill_", [X, n(0)], 128),
        ("zero_", [X], 128),
        ("copy_", [X, t(8, dtype=B), n(False)], 128 + 16),
        ("native_layer_norm", [X, n([8]), t(8), t(8), n(1e-5)], 2 * 128 + 64),
        (
            "native_layer_norm_backward",
            [X, X, n([8]), t(4, 1), t(4, 1), t(8), t(8), n("[True, True, True]")],
            3 * 128 + 128,
        ),
        ("native_batch_norm", [t(4, 8, 2), t(8), t(8), t(8), t(8), n(True), n(0.1), n(1e-5)], 2 * 256 + 128),
        ("cudnn_batch_norm_backward", [X, X, t(8), t(8), t(8), t(8), t(8), n(1e-5), t(0)], 3 * 128 + 4 * 32),
        ("_softmax", [X, n(1), n(False)], 2 * 128),
        ("_softmax", [t(4, 8, dtype=H), n(1), n(True)], 64 + 128),
        ("_log_softmax_backward_data", [X, X, n(1), n(5)], 2 * 128 + 64),
        ("sum", [X, NONE], 128 + 4),
        ("sum", [X, n([0]), n(False), NONE], 128 + 32),
        ("sum", [X, n([-1]), n(True), NONE], 128 + 16),
        ("sum", [X, n([]), n(False), NONE], 128 + 4),
        ("sum", [t(4, 8, dtype=B), n([0]), n(False), n(6)], 64 + 32),
        ("mean", [X, n([0, 1]), n(False), NONE], 128 + 4),
        ("argmax", [X, n(1), n(False)], 128 + 32),
        ("any", [t(4, 8, dtype="bool")], 32 + 1),
        ("max", [X], 128 + 4),
        ("max", [X, X], 3 * 128),
        ("max", [X, n(1), n(False)], 128 + 4 * 4 + 4 * 8),
        ("var_mean", [X, n([0]), n(1), n(False)], 128 + 2 * 32),
        ("linalg_vector_norm", [X, n(2), NONE, n(False), NONE], 128 + 4),
        ("cumsum", [X, n(0), NONE], 2 * 128),
        ("mse_loss", [X, X, n(1)], 2 * 128 + 4),
        ("mse_loss", [X, X, n(0)], 3 * 128),
        ("mse_loss_backward", [t(), X, X, n(1)], 4 + 3 * 128),
        ("bitwise_not", [t(4, 8, dtype="bool")], 2 * 32),
        ("embedding", [t(1000, 8), t(2, 3, dtype=I), n(-1), n(False), n(False)], 48 + 2 * 6 * 32),
        ("index_select", [t(1000, 8), n(0), t(6, dtype=I)], 48 + 2 * 6 * 32),
        ("index_select", [t(10, 1000), n(-1), t(6, dtype=I)], 48 + 2 * 6 * 40),
        ("gather", [X, n(1), t(4, 2, dtype=I)], 64 + 2 * 32),
        ("embedding_dense_backward", [t(2, 3, 8), t(2, 3, dtype=I), n(1000), n(-1), n(False)], 192 + 48 + 32000),
    ],
)
def test_bytes_read_and_written(name: str, args: list[tuple[Any, str, str]], moved: int | None) -> None:
    assert of(name, *args) == Cost(0, moved, None)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("sum", [X, n([0]), n(False), NONE]),
        ("embedding_dense_backward", [X, t(4, dtype=I), n(1000), n(-1), n(False)]),
        ("index_select", [X, n(0), t(6, dtype=I)]),
        ("_softmax", [t(4, 8, dtype=H), n(1), n(False)]),
        ("native_layer_norm_backward", [X, X, n([8]), t(4, 1), t(4, 1), t(8), t(8), n("[True, True, True]")]),
    ],
)
def test_without_concrete_inputs_what_they_decide_is_null(name: str, args: list[tuple[Any, str, str]]) -> None:
    assert of(name, *args, concrete=False) == Cost(0, None, None)


PARAMETERS = ([[3, 4], [5]], "TensorList", "")  # 17 elements
NO_LIST = ([], "TensorList", "")
STEPS = ([[], []], "TensorList", "")


@pytest.mark.parametrize(
    ("name", "args", "elements"),
    [
        ("_fused_adamw_", [PARAMETERS] * 4 + [NO_LIST, STEPS, n(0.001)], 17 * 7),
        ("_fused_adam_", [PARAMETERS] * 5 + [STEPS, n(0.001)], 17 * 9),
        ("_fused_sgd_", [PARAMETERS, PARAMETERS, NO_LIST, n(0.0)], 17 * 3),
        ("_foreach_add_", [PARAMETERS, PARAMETERS, n(1)], 17 * 3),
        ("_foreach_mul_", [PARAMETERS, n(0.9)], 17 * 2),
        ("_foreach_addcdiv_", [PARAMETERS, PARAMETERS, PARAMETERS, n(1)], 17 * 4),
        ("_foreach_copy_", [PARAMETERS, PARAMETERS], 17 * 2),
        ("_foreach_zero_", [PARAMETERS], 17),
        ("_foreach_norm", [PARAMETERS, n(2)], 17 + 2),
        ("cat", [PARAMETERS, n(0)], 17 * 2),
    ],
)
def test_lists_of_tensors(name: str, args: list[tuple[Any, str, str]], elements: int) -> None:
    assert of(name, *args, list_dtype="float") == Cost(0, 4 * elements, None)
    assert of(name, *args) == Cost(0, None, None)  # the trace does not tell the type


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpListAlphaFunctor<c10::BFloat16, 2, 2, 0>"
            ", std::plus<float>, float>(…)",
            "c10::BFloat16",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, "
            "(at::native::ADAM_MODE)1, false>>(…)",
            "float",
        ),
        (
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
            "TensorListMetadata<2>, at::native::(anonymous namespace)::CopyFunctor<int, long, 2, 1, 1>, "
            "at::native::Copy<int, long> >(…)",
            None,
        ),
        (
            "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*, …)",
            "float",
        ),
        ("ampere_sgemm_128x64_nn", None),
    ],
)
def test_kernels_name_the_type_of_the_lists(kernel: str, dtype: str | None) -> None:
    assert list_dtype_of_kernel(kernel) == dtype


def test_a_concatenation_kernel_names_at_least_the_size_of_its_elements() -> None:
    kernel = (
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)"
        "::OpaqueType<2u>, unsigned int, 1, 128, 1>(…)"
    )
    assert of("cat", PARAMETERS, n(0), list_dtype=list_dtype_of_kernel(kernel)) == Cost(0, 2 * 34, None)


def test_what_no_formula_knows_has_no_cost() -> None:
    assert cost("aten::view", [[2, 3]], ["float"]) is None
    assert cost("MmBackward0", [[2, 3]], ["float"]) is None
    assert cost("mm", [[3, 5], [5, 7]], ["float", "float"]) is None


def test_an_operator_without_shapes_is_known_but_not_counted() -> None:
    assert cost("aten::mm", pd.NA, pd.NA) == Cost(None, None, None)  # type: ignore[arg-type]
    assert cost("aten::mm", float("nan"), None) == Cost(None, None, None)  # type: ignore[arg-type]
    assert cost("aten::mm", "[[3,5],[5,7]]", pd.NA) == Cost(210, None, None)  # type: ignore[arg-type]
    assert cost("aten::mm", None, None) == Cost(None, None, None)
    assert cost("aten::relu", None, None) == Cost(0, None, None)


SHAPES = st.lists(st.integers(0, 5), max_size=5)


@given(
    st.sampled_from(sorted(flops._FORMULAS)),
    st.lists(SHAPES | st.lists(SHAPES, max_size=3), max_size=16),
    st.lists(st.sampled_from([F, H, I, "", N, L, "TensorList", "nonsense"]), max_size=16) | st.none(),
    st.lists(st.sampled_from(["", "True", "[1, 1]", "[]", "3", "1e-5", "[True, False]", "inf"]), max_size=16)
    | st.none(),
)
def test_no_recording_makes_a_formula_fail(
    name: str, dims: list[Any], types: list[str] | None, values: list[str] | None
) -> None:
    found = cost(f"aten::{name}", dims, types, values, "float")
    assert found is not None
    assert found.flops is None or found.flops >= 0
    assert found.bytes_min is None or found.bytes_min >= 0


@pytest.mark.parametrize("shapes", ["", "not json", "{}", "[1, 2]", "null", '["a"]', "[[[1], 2]]", "[[-1]]"])
def test_damaged_shapes_are_shapes_not_recorded(shapes: str) -> None:
    assert cost("aten::mm", shapes, "float,float") == Cost(None, None, None)


# ---- nests


def tree(*calls: tuple[str, int | None]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "op": pd.array(range(len(calls)), dtype="Int64"),
            "parent": pd.array([parent for _, parent in calls], dtype="Int64"),
            "name": pd.array([name for name, _ in calls], dtype="string"),
        },
        index=range(100, 100 + len(calls)),
    )


def owned(*calls: tuple[str, int | None]) -> list[str]:
    ops = tree(*calls)
    return ops.loc[owners(ops), "name"].tolist()


def test_the_innermost_product_owns_the_cost() -> None:
    calls = [("aten::linear", None), ("aten::t", 0), ("aten::addmm", 0)]
    assert owned(*calls) == ["aten::addmm"]
    calls = [
        ("aten::conv2d", None),
        ("aten::convolution", 0),
        ("aten::_convolution", 1),
        ("aten::cudnn_convolution", 2),
    ]
    assert owned(*calls, ("aten::add_", 2)) == ["aten::cudnn_convolution", "aten::add_"]


def test_helpers_of_another_kind_do_not_take_the_cost_away() -> None:
    assert owned(("aten::convolution_backward", None), ("aten::sum", 0)) == ["aten::convolution_backward", "aten::sum"]
    assert owned(("aten::embedding_dense_backward", None), ("aten::zeros", 0), ("aten::zero_", 1)) == [
        "aten::embedding_dense_backward",
        "aten::zero_",
    ]


def test_attention_from_parts_is_its_products() -> None:
    calls = [("aten::scaled_dot_product_attention", None), ("aten::_scaled_dot_product_attention_math", 0)]
    calls += [("aten::matmul", 1), ("aten::bmm", 2), ("aten::softmax", 1), ("aten::_softmax", 4)]
    calls += [("aten::matmul", 1), ("aten::bmm", 6)]
    assert owned(*calls) == ["aten::bmm", "aten::_softmax", "aten::bmm"]


def test_siblings_and_unknown_callers_each_count() -> None:
    assert owned(("aten::mm", None), ("aten::mm", None), ("AddmmBackward0", None), ("aten::mm", 2)) == ["aten::mm"] * 3


def test_owners_of_nothing_and_of_one() -> None:
    assert owned() == []
    assert owned(("aten::mm", 7)) == ["aten::mm"]  # its caller is not in the table


# ---- the dtype that a kernel ran in


@pytest.mark.parametrize(
    ("dtype", "kernels", "used"),
    [
        ("fp32", ["sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x32_stage4_warpsize2x2x1_kernel"], "tf32"),
        ("fp32", ["void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x64_32x3_nn_align4>(…)"], "tf32"),
        ("fp32", ["ampere_sgemm_128x64_nn"], "fp32"),
        ("fp32", ["volta_sgemm_128x64_nn", "splitKreduce_kernel"], "fp32"),
        ("fp32", ["nvjet_tst_128x64_64x8_1x2_h_bz_NNT"], None),
        ("fp32", [], None),
        ("bf16", ["sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"], "bf16"),
        (None, ["sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n"], None),
    ],
)
def test_fp32_products_may_run_as_tf32(dtype: str | None, kernels: list[str], used: str | None) -> None:
    assert matrix_dtype_used(dtype, kernels) == used
