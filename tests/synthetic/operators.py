"""The operators that programs call, as torch dispatches them on CUDA: what is nested in them, kernels, backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from tests.synthetic import kernels
from tests.synthetic.autograd import Autograd
from tests.synthetic.hardware import ELEMENT_BYTES
from tests.synthetic.machine import Machine
from tests.synthetic.tensors import FLOAT, PRECISIONS, Tensor

_MATRIX_VIEW = ("aten::t", "aten::transpose", "aten::as_strided")


class Operators(Autograd):
    """torch's operators.

    Attributes:
        matmul_tf32, conv_tf32: torch's switches; off and on by default.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.matmul_tf32, self.conv_tf32 = False, True
        self._autocast: str | None = None
        self._cast_weights: dict[int, Tensor] = {}

    # -- modes ---------------------------------------------------------------------------------------------------

    @contextmanager
    def autocast(self, dtype: str) -> Iterator[None]:
        """Matrix work in half precision; weights are cast once and kept until it ends."""
        before, self._autocast = self._autocast, dtype
        try:
            yield
        finally:
            self._autocast = before
            self._cast_weights.clear()

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        """Autograd does not record."""
        before, self.recording_graph = self.recording_graph, False
        try:
            yield
        finally:
            self.recording_graph = before

    def _autocasted(self, tensor: Tensor) -> Tensor:
        if self._autocast is None or tensor.dtype == self._autocast:
            return tensor
        if tensor.parameter and id(tensor) in self._cast_weights:
            return self._cast_weights[id(tensor)]
        made = self.to(tensor, self._autocast)
        if tensor.parameter:
            self._cast_weights[id(tensor)] = made
        return made

    # -- matrix work ---------------------------------------------------------------------------------------------

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """`F.linear`: (…, in) by (out, in)."""
        inputs = [x, weight, *([bias] if bias else [])]
        with self.op("aten::linear", inputs):
            x, weight = self._autocasted(x), self._autocasted(weight)
            if bias is not None:
                bias = self._autocasted(bias)
            rows, size = x.elements // x.shape[-1], x.shape[-1]
            out = x.like((*x.shape[:-1], weight.shape[0]))
            self.nested(_MATRIX_VIEW, [weight], [])
            flat, turned = replace(x, shape=(rows, size)), replace(weight, shape=(size, weight.shape[0]))
            name = "mm" if bias is None else "addmm"
            given = [flat, turned] if bias is None else [bias, flat, turned, "1", "1"]
            with self.op(f"aten::{name}", given):
                self._gemm(rows, weight.shape[0], size, x)
        made = [x, weight, *([bias] if bias else [])]
        return self.made(out, f"{name.capitalize()}Backward0", made, lambda: self._linear_backward(x, weight, bias))

    def _gemm(self, m: int, n: int, k: int, like: Tensor, batch: int = 1) -> None:
        precision = kernels.precision_of(like, self.matmul_tf32)
        size = ELEMENT_BYTES[like.dtype]
        self.machine.launch(kernels.gemm(m, n, k, batch, precision, size, like.offset))

    def _linear_backward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> None:
        rows, size, out = x.elements // x.shape[-1], x.shape[-1], weight.shape[0]
        grad, flat = x.like((rows, out)), x.like((rows, size))
        for needed, shape, first, second in (
            (x.needs_grad, (rows, size, out), grad, weight),
            (weight.needs_grad, (out, size, rows), x.like((out, rows)), flat),
        ):
            if needed:
                self.nested(_MATRIX_VIEW, [first], [])
                with self.op("aten::mm", [first, second]):
                    self._gemm(*shape, x if second is flat else grad)
        if bias is not None and bias.needs_grad:
            self.nested(["aten::sum"], [grad, "[0]", "True", ""], [kernels.reduction(grad, out)])

    def matmul(self, a: Tensor, b: Tensor) -> Tensor:
        """`a @ b` of stacks of matrices: (…, m, k) by (…, k, n)."""
        with self.op("aten::matmul", [a, b]):
            a, b = self._autocasted(a), self._autocasted(b)
            batch, m, k, n = prod(a.shape[:-2]), *a.shape[-2:], b.shape[-1]
            for one in (a, b):
                self.nested(["aten::expand"], [one], [])
            with self.op("aten::bmm", [a.like((batch, m, k)), b.like((batch, k, n))]):
                self._gemm(m, n, k, a, batch)
        return self.made(a.like((*a.shape[:-1], n)), "BmmBackward0", [a, b], lambda: self._bmm_backward(a, b))

    def _bmm_backward(self, a: Tensor, b: Tensor) -> None:
        batch, m, k, n = prod(a.shape[:-2]), *a.shape[-2:], b.shape[-1]
        with self.op("aten::bmm", [a.like((batch, m, n)), a.like((batch, n, k))]):
            self._gemm(m, k, n, a, batch)
        with self.op("aten::bmm", [a.like((batch, k, m)), a.like((batch, m, n))]):
            self._gemm(k, n, m, a, batch)

    def conv2d(self, x: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
        """`F.conv2d` with padding that keeps the size; images in NCHW are turned for the tensor cores."""
        inputs = [x, weight, "", f"[{stride}, {stride}]", "[1, 1]", "[1, 1]", "1"]
        with self.op("aten::conv2d", inputs):
            x, weight = self._autocasted(x), self._autocasted(weight)
            shape = (x.shape[0], weight.shape[0], x.shape[2] // stride, x.shape[3] // stride)
            out = x.like(shape)
            names = ["aten::convolution", "aten::_convolution", "aten::cudnn_convolution"]
            self.nested(names, [x, weight, *inputs[2:]], self._conv("fprop", x, weight, out))
        return self.made(out, "ConvolutionBackward0", [x, weight], lambda: self._conv_backward(x, weight, out))

    def _conv(self, pass_: str, x: Tensor, weight: Tensor, out: Tensor) -> list[kernels.Kernel]:
        precision, size = kernels.precision_of(x, self.conv_tf32), ELEMENT_BYTES[x.dtype]
        main = kernels.convolution(pass_, x.shape, weight.shape, out.shape, precision, size)
        if x.channels_last or precision == "fp32":
            return [main]
        before = [kernels.layout_change(one.elements, size, True) for one in (x, weight)]
        return [*before, main, kernels.layout_change(out.elements, size, False)]

    def _conv_backward(self, x: Tensor, weight: Tensor, out: Tensor) -> None:
        made = self._conv("dgrad", x, weight, out) if x.needs_grad else []
        self.nested(["aten::convolution_backward"], [out, x, weight], [*made, *self._conv("wgrad", x, weight, out)])

    def scaled_dot_product_attention(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Fused attention on (batch, heads, length, size): flash in half precision, memory-efficient in float."""
        precision = PRECISIONS[q.dtype]
        kind = "efficient" if precision == "fp32" else "flash"
        inputs = [q, k, v, "", "0.", "True"]
        names = [f"_scaled_dot_product_{kind}_attention", f"_{kind}_attention_forward"]
        names = ["aten::scaled_dot_product_attention", *(f"aten::{name}" for name in names)]
        self.nested(names, inputs, [kernels.flash(q.shape, "tf32" if precision == "fp32" else precision)])

        def backward() -> None:
            kernel = kernels.flash(q.shape, "tf32" if precision == "fp32" else precision, backward=True)
            backwards = [f"aten::_scaled_dot_product_{kind}_attention_backward", f"aten::_{kind}_attention_backward"]
            self.nested(backwards, [q, q, k, v], [kernel])

        return self.made(q.like(), f"ScaledDotProduct{kind.capitalize()}AttentionBackward0", [q, k, v], backward)

    # -- the rest ------------------------------------------------------------------------------------------------

    def pointwise(self, name: str, *tensors: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """`add`, `mul`, `gelu`, `relu`, `dropout`, …: one kernel forward, one backward."""
        out = tensors[0].like(shape)
        self.nested([f"aten::{name}"], list(tensors), [kernels.pointwise(name, list(tensors), out)])

        def backward() -> None:
            given = [out, tensors[0]]
            self.nested([f"aten::{name}_backward"], given, [kernels.pointwise(name, given, tensors[0])])

        return self.made(out, f"{name.capitalize()}Backward0", tensors, backward)

    def softmax(self, x: Tensor) -> Tensor:
        """`softmax(-1)`."""
        self.nested(["aten::softmax", "aten::_softmax"], [x, "-1", "False"], [kernels.softmax(x)])
        name = "aten::_softmax_backward_data"
        return self.made(
            x.like(),
            "SoftmaxBackward0",
            [x],
            lambda: self.nested([name], [x, x, "-1", "6"], [kernels.softmax(x, backward=True)]),
        )

    def layer_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """`F.layer_norm` over the last dimension."""
        self.nested(["aten::layer_norm", "aten::native_layer_norm"], [x, weight], [kernels.norm(x, "layer")])
        backward = [kernels.norm(x, "layer", backward=True), kernels.reduction(x, x.shape[-1])]
        return self.made(
            x.like(),
            "NativeLayerNormBackward0",
            [x, weight],
            lambda: self.nested(["aten::native_layer_norm_backward"], [x, x, weight], backward),
        )

    def batch_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """`F.batch_norm` in training."""
        names = ["aten::batch_norm", "aten::_batch_norm_impl_index", "aten::cudnn_batch_norm"]
        self.nested(names, [x, weight], [kernels.norm(x, "batch")])
        backward = [kernels.norm(x, "batch", backward=True)]
        return self.made(
            x.like(),
            "CudnnBatchNormBackward0",
            [x, weight],
            lambda: self.nested(["aten::cudnn_batch_norm_backward"], [x, x, weight], backward),
        )

    def reduce(self, name: str, x: Tensor, shape: tuple[int, ...] = ()) -> Tensor:
        """`sum`, `mean`, … to a shape."""
        out = Tensor(shape, x.dtype, x.device)
        self.nested([f"aten::{name}"], [x], [kernels.reduction(x, prod(shape), f"{name}_functor")])

        def backward() -> None:
            self.nested(["aten::expand"], [out], [])
            if name == "mean":
                self.nested(["aten::div"], [out, ""], [kernels.pointwise("div", [out], x)])

        return self.made(out, f"{name.capitalize()}Backward0", [x], backward)

    def cross_entropy(self, x: Tensor, target: Tensor) -> Tensor:
        """`F.cross_entropy`: log-softmax in float, and the negative log-likelihood."""
        with self.op("aten::cross_entropy_loss", [x, target]):
            if x.dtype != FLOAT:
                x = self.to(x, FLOAT)
            rows = replace(x, shape=(x.elements // x.shape[-1], x.shape[-1]))
            self.nested(["aten::log_softmax", "aten::_log_softmax"], [rows, "1", "False"], [kernels.softmax(rows)])
            picked = x.like((rows.shape[0],))
            names = ["aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward"]
            self.nested(names, [rows, target], [kernels.reduction(picked, 1, "nll_loss")])

        def backward() -> None:
            self.nested(["aten::nll_loss_backward"], [rows, target], [kernels.fill(rows)])
            kernel = kernels.softmax(rows, backward=True)
            self.nested(["aten::_log_softmax_backward_data"], [rows, rows, "1", "6"], [kernel])

        return self.made(Tensor((), FLOAT), "NllLossBackward0", [x], backward)

    def embedding(self, weight: Tensor, indices: Tensor) -> Tensor:
        """`F.embedding` with a dense gradient."""
        out = weight.like((*indices.shape, weight.shape[1]))
        kernel = kernels.loop_copy(2.0 * out.nbytes, out.elements, "vectorized_gather_kernel")
        self.nested(["aten::embedding", "aten::index_select"], [weight, "0", indices], [kernel])

        def backward() -> None:
            scatter = kernels.loop_copy(3.0 * out.nbytes, out.elements, "embedding_backward_feature_kernel")
            names = ["aten::embedding_backward", "aten::embedding_dense_backward"]
            self.nested(names, [out, indices, str(weight.shape[0]), "-1", "False"], [kernels.fill(weight), scatter])

        return self.made(out, "EmbeddingBackward0", [weight], backward)

    def view(self, x: Tensor, shape: Sequence[int], name: str = "view") -> Tensor:
        """`view`, `reshape`, `select`, `slice`, `transpose`: no kernel."""
        out = x.like(tuple(shape))
        self.nested([f"aten::{name}"], [x, str(list(shape))], [])
        return self.made(out, f"{name.capitalize()}Backward0", [x], lambda: self.nested(["aten::view"], [out], []))

    def contiguous(self, x: Tensor) -> Tensor:
        """`contiguous()` of a tensor that is not."""
        self.nested(
            ["aten::contiguous", "aten::clone", "aten::copy_"], [x], [kernels.loop_copy(2.0 * x.nbytes, x.elements)]
        )
        return self.made(x.like(), "CloneBackward0", [x], lambda: None)

    def cat(self, tensors: list[Tensor], shape: Sequence[int]) -> Tensor:
        """`cat` and `stack`."""
        out = tensors[0].like(tuple(shape))
        kernel = kernels.loop_copy(2.0 * out.nbytes, out.elements)
        name = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 3, 64, 64>(float*)"
        self.nested(["aten::cat"], [tensors, "0"], [replace(kernel, name=name)])
        return self.made(out, "CatBackward0", tensors, lambda: self.nested(["aten::narrow", "aten::slice"], [out], []))

    def zeros(self, shape: tuple[int, ...], dtype: str = FLOAT) -> Tensor:
        """`zeros` on the device."""
        out = Tensor(shape, dtype)
        self.nested(["aten::zeros", "aten::zero_", "aten::fill_"], [out, "0"], [kernels.fill(out)])
        return out

    def fill_(self, x: Tensor) -> None:
        """`zero_()`."""
        self.nested(["aten::zero_", "aten::fill_"], [x, "0"], [kernels.fill(x)])

    def to(self, x: Tensor, dtype: str) -> Tensor:
        """A conversion of the dtype."""
        out = x.like(dtype=dtype)
        with self.op("aten::to", [x, "15", "False", "False", ""]), self.op("aten::_to_copy", [x, "15"]):
            self.nested(["aten::copy_"], [out, x, "False"], [kernels.cast(x, out)])
        return self.made(out, "ToCopyBackward0", [x], lambda: self._cast_back(x, out))

    def _cast_back(self, x: Tensor, out: Tensor) -> None:
        with self.op("aten::to", [out, "6"]), self.op("aten::_to_copy", [out, "6"]):
            self.nested(["aten::copy_"], [x, out, "False"], [kernels.cast(out, x)])
