"""Classes of operators by name, and which operators make the host wait for a device.

Names are those of ATen's native_functions.yaml.
"""

from __future__ import annotations

_OPS: dict[str, tuple[str, ...]] = {
    "gemm": (
        "mm",
        "addmm",
        "bmm",
        "baddbmm",
        "addbmm",
        "matmul",
        "linear",
        "mv",
        "addmv",
        "dot",
        "einsum",
        "_scaled_mm",
        "_grouped_mm",
        "linear_backward",
        "mkldnn_linear",
        "_linear_pointwise",
        "_addmm_activation",
    ),
    "convolution": (
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "_convolution",
        "cudnn_convolution",
        "mkldnn_convolution",
        "convolution_backward",
        "_slow_conv2d_forward",
        "_slow_conv2d_backward",
        "thnn_conv2d",
        "slow_conv3d",
        "_conv_depthwise2d",
        "miopen_convolution",
    ),
    "attention": (
        "scaled_dot_product_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_flash_attention_forward",
        "_flash_attention_backward",
        "_efficient_attention_forward",
        "_efficient_attention_backward",
        "_scaled_dot_product_flash_attention_backward",
        "_scaled_dot_product_flash_attention_for_cpu_backward",
        "_scaled_dot_product_efficient_attention_backward",
        "_scaled_dot_product_attention_math",
        "_scaled_dot_product_attention_math_for_mps",
    ),
    "normalisation": (
        "batch_norm",
        "_batch_norm_impl_index",
        "native_batch_norm",
        "native_batch_norm_backward",
        "cudnn_batch_norm",
        "cudnn_batch_norm_backward",
        "layer_norm",
        "native_layer_norm",
        "native_layer_norm_backward",
        "group_norm",
        "native_group_norm",
        "native_group_norm_backward",
        "instance_norm",
        "rms_norm",
        "_fused_rms_norm",
        "_fused_rms_norm_backward",
    ),
    "reduction": (
        "sum",
        "mean",
        "prod",
        "max",
        "min",
        "amax",
        "amin",
        "argmax",
        "argmin",
        "norm",
        "linalg_vector_norm",
        "var",
        "std",
        "var_mean",
        "logsumexp",
        "any",
        "all",
        "cumsum",
        "_softmax",
        "softmax",
        "_softmax_backward_data",
        "_log_softmax",
        "log_softmax",
        "_log_softmax_backward_data",
        "nll_loss",
        "nll_loss_forward",
        "nll_loss_backward",
        "cross_entropy_loss",
        "mse_loss",
        "mse_loss_backward",
        "topk",
        "sort",
        "_foreach_norm",
    ),
    "copy": (
        "copy_",
        "to",
        "_to_copy",
        "clone",
        "contiguous",
        "cat",
        "stack",
        "_foreach_copy_",
        "pin_memory",
        "_pin_memory",
    ),
    "memory": (
        "empty",
        "empty_like",
        "empty_strided",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "fill_",
        "zero_",
        "_foreach_zero_",
        "resize_",
        "arange",
        "new_zeros",
        "new_empty",
        "new_empty_strided",
        "set_",
    ),
    "optimizer": ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"),
}
_OP_CLASS = {name: kind for kind, names in _OPS.items() for name in names}
_VIEWS = frozenset(
    word
    for line in (
        "view reshape transpose t permute expand as_strided select slice squeeze unsqueeze detach detach_ alias narrow",
        "split chunk unbind flatten unflatten _unsafe_view view_as expand_as diagonal numpy_T result_type lift_fresh",
        "item _local_scalar_dense is_nonzero unfold movedim swapaxes resolve_conj resolve_neg requires_grad_",
    )
    for word in line.split()
)


def op_class(name: str) -> str:
    """Class of an operator, as the column `op_class` of `ops` lists them."""
    if not name.startswith("aten::"):
        return "other"
    short = name.removeprefix("aten::")
    known = _OP_CLASS.get(short) or _OP_CLASS.get(short.rstrip("_"))
    if known is not None:
        return known
    return "other" if short in _VIEWS else "pointwise"


READS = frozenset({"aten::item", "aten::_local_scalar_dense", "aten::is_nonzero", "Tensor.cpu", "Tensor.tolist"})
"""Reads of one value: on a GPU the host waits for it, when Python asks directly. ATen's CPU kernels use them inside
other operators as well (range checks of one_hot, say) where the CUDA kernels do not wait."""

SHAPE_FROM_DATA = frozenset(
    {
        "aten::nonzero",
        "aten::masked_select",
        "aten::unique_consecutive",
        "aten::unique_dim",
        "aten::_unique",
        "aten::_unique2",
        "aten::bincount",
        "aten::equal",
        "aten::allclose",
    }
)
"""Operators whose CUDA implementations copy a size or a verdict to the host before they return (ATen/native/cuda:
Nonzero.cu, Indexing.cu, Unique.cu, SummaryOps.cu, Equal.cpp): the host waits, whoever calls them."""
