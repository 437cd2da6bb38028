"""Kernels as cuBLAS, cuDNN, FlashAttention and ATen name them, with the work they do."""

from __future__ import annotations

from math import ceil, prod

from tests.synthetic.hardware import Kernel, elementwise
from tests.synthetic.tensors import BFLOAT16, DOUBLE, FLOAT, HALF, PRECISIONS, Tensor

_GEMMS = {
    "fp32": "ampere_sgemm_128x64_tn",
    "tf32": "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel",
    "bf16": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn",
    "fp16": "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn",
    "fp64": "cutlass_80_tensorop_d884gemm_64x64_16x3_tn_align1",
}
_UNALIGNED = {
    "bf16": "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align1",
    "fp16": "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align1",
    "tf32": "cutlass_80_tensorop_s1688gemm_128x128_16x4_tn_align1",
}
_CONVOLUTIONS = {
    "fp32": "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, false, true>(int, int, int)",
    "tf32": "sm80_xmma_{pass_}_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_kernel",
    "bf16": "sm80_xmma_{pass_}_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3_kernel",
    "fp16": "sm80_xmma_{pass_}_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage3_kernel",
}
_CTYPES = {FLOAT: "float", BFLOAT16: "c10::BFloat16", HALF: "c10::Half", DOUBLE: "double"}
_FEW_BLOCKS = 108
_ALIGNMENT = 8
"""Elements of half precision in 16 bytes: what tensor cores load at once."""


def precision_of(tensor: Tensor, tf32: bool) -> str:
    """In which precision matrix work on it runs."""
    plain = PRECISIONS[tensor.dtype]
    return "tf32" if plain == "fp32" and tf32 else plain


def gemm(m: int, n: int, k: int, batch: int, precision: str, element_bytes: int, offset: int = 0) -> Kernel:
    """A matrix product; sizes and offsets that are no multiple of 8 take a slow kernel in half precision and TF32."""
    aligned = all(size % _ALIGNMENT == 0 for size in (m, n, k, offset))
    slow = not aligned and precision in _UNALIGNED
    moved = batch * (m * k + k * n + m * n) * element_bytes
    blocks = batch * ceil(m / 128) * ceil(n / 128)
    if blocks < _FEW_BLOCKS:  # the library takes smaller tiles
        blocks = min(_FEW_BLOCKS, batch * ceil(m / 32) * ceil(n / 32))
    name = _UNALIGNED[precision] if slow else _GEMMS[precision]
    return Kernel(
        name, 2.0 * batch * m * n * k, moved, precision, blocks, 256, 0.3 if slow else 1.0, 128, 49_152
    )  # fmt: skip


def convolution(
    pass_: str,
    image: tuple[int, ...],
    weight: tuple[int, ...],
    out: tuple[int, ...],
    precision: str,
    element_bytes: int,
) -> Kernel:
    """A convolution's pass (fprop, dgrad, wgrad)."""
    flops = 2.0 * prod(out) * weight[1] * weight[2] * weight[3]
    moved = (prod(image) + prod(weight) + prod(out)) * element_bytes
    blocks = max(1, ceil(prod(out) / weight[0] / 128) * ceil(weight[0] / 128))
    return Kernel(_CONVOLUTIONS[precision].format(pass_=pass_), flops, moved, precision, blocks, 128, 0.8, 168, 49_152)


def layout_change(elements: int, element_bytes: int, to_nhwc: bool) -> Kernel:
    """cuDNN's own change of an image's memory order."""
    which = "nchwToNhwcKernel" if to_nhwc else "nhwcToNchwKernel"
    name = f"void cudnn::ops::{which}<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(int)"
    return Kernel(name, 0.0, 2.0 * elements * element_bytes, blocks=max(1, ceil(elements / 1024)), share=0.6)


def pointwise(name: str, tensors: list[Tensor], out: Tensor) -> Kernel:
    """`add`, `mul`, `gelu`, … of whole tensors."""
    functor = f"at::native::{name.capitalize()}Functor<{_CTYPES.get(out.dtype, 'float')}>"
    moved = sum(tensor.nbytes for tensor in tensors) + out.nbytes
    return elementwise(functor, out.elements, moved, len(tensors) + 1)


def cast(source: Tensor, target: Tensor) -> Kernel:
    """A conversion between dtypes."""
    name = "bfloat16_copy_kernel_cuda" if target.dtype == BFLOAT16 else "direct_copy_kernel_cuda"
    functor = f"at::native::{name}(at::TensorIteratorBase&)::{{lambda(float)#1}}"
    return elementwise(functor, source.elements, source.nbytes + target.nbytes)


def fill(tensor: Tensor) -> Kernel:
    """A fill."""
    functor = f"at::native::FillFunctor<{_CTYPES.get(tensor.dtype, 'float')}>"
    return elementwise(functor, tensor.elements, tensor.nbytes, 1)


def reduction(tensor: Tensor, outputs: int, what: str = "sum_functor") -> Kernel:
    """A sum, mean or norm over a tensor."""
    name = f"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::{what}<float> > >(int)"
    return Kernel(name, 0.0, tensor.nbytes, blocks=max(1, min(ceil(tensor.elements / 2048), 4 * max(1, outputs))))


def softmax(tensor: Tensor, backward: bool = False) -> Kernel:
    """A softmax over the last dimension: a block a row."""
    rows = tensor.elements // tensor.shape[-1]
    which = "cunn_SoftMaxBackward" if backward else "cunn_SoftMaxForward"
    return Kernel(f"void (anonymous namespace)::{which}<8, float, float, float>(float*)", 0.0,
                  (3 if backward else 2) * tensor.nbytes, blocks=max(1, rows))  # fmt: skip


def norm(tensor: Tensor, kind: str, backward: bool = False) -> Kernel:
    """Layer or batch norm."""
    names = {
        ("layer", False): "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int)",
        ("layer", True): "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float>(int)",
        ("batch", False): "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        ("batch", True): "void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 512, true, 1>(float, float)",
    }
    blocks = tensor.shape[1] if kind == "batch" else tensor.elements // tensor.shape[-1]
    return Kernel(names[kind, backward], 0.0, (3 if backward else 2) * tensor.nbytes, blocks=max(128, blocks))


def flash(shape: tuple[int, ...], precision: str, backward: bool = False) -> Kernel:
    """FlashAttention on (batch, heads, length, size)."""
    batch, heads, length, size = shape
    flops = (10.0 if backward else 4.0) * batch * heads * length * length * size
    which = "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel" if backward else "flash_fwd_kernel"
    name = f"void pytorch_flash::{which}<pytorch_flash::Flash_fwd_kernel_traits<{size}, 128, 64, 4> >(Flash_params)"
    return Kernel(name, flops, 8.0 * batch * heads * length * size, precision, batch * heads * ceil(length / 128), 128,
                  0.7, 255, 65_536)  # fmt: skip


def tensor_list(functor: str, elements: int, passes: int, tensors: int) -> Kernel:
    """A foreach or fused kernel over a list of tensors."""
    name = (
        f"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
        f"TensorListMetadata<{tensors}>, at::native::(anonymous namespace)::{functor}<float> >(int)"
    )
    return Kernel(name, 0.0, 4.0 * elements * passes, blocks=max(1, min(320, ceil(elements / 65_536))), threads=512)


def loop_copy(moved_bytes: float, elements: int, what: str = "copy_device_to_device") -> Kernel:
    """A copy by ATen's own kernel (`contiguous`, `cat`, an index)."""
    return elementwise(f"at::native::{what}", elements, moved_bytes)
