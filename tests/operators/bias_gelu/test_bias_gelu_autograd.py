"""Derivatives: reverse mode of any order, for any incoming gradient; forward mode is refused in words."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import truefuse

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
FORMS = ("tanh", "none")
TOLERANCE = {torch.float32: 4e-6, torch.float64: 1e-13, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# Of a derivative before it is rounded: the half types' approximations are good to some 0.03 ulp.
TERM_ERROR = {torch.float32: 1e-6, torch.float64: 1e-14, torch.float16: 2e-5, torch.bfloat16: 3e-4}
# Assertions of PyTorch's own fail for vmap rules in Python, of torch.library.custom_op too, within another
# vmap (Interpreter.h:155) and under a TorchDispatchMode (PythonFallbackKernel.cpp:49).
VMAP_IS_FLAT = torch.__version__.startswith("2.5.")
backward = torch.ops.truefuse.bias_gelu_backward


def call(x: Tensor, bias: Tensor, form: str = "tanh") -> Tensor:
    return truefuse.bias_gelu(x, bias, approximate=form)


def eager(x: Tensor, bias: Tensor, form: str = "tanh") -> Tensor:
    return F.gelu(x + bias, approximate=form)


def random(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype)


def assert_gradients(x: Tensor, bias: Tensor, grad: Tensor, form: str) -> None:
    """Against eager in float64; a sum over many rows may be off by a few roundings of its terms."""
    leaves = [x.detach().requires_grad_(), bias.detach().requires_grad_()]
    got = torch.autograd.grad(call(*leaves, form), leaves, grad)
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    want = torch.autograd.grad(eager(*wide, form), wide, grad.double())
    for ours, leaf in zip(got, leaves, strict=True):
        assert ours.dtype == leaf.dtype and ours.shape == leaf.shape and ours.is_contiguous()
    tolerance = TOLERANCE[x.dtype]
    torch.testing.assert_close(got[0].double(), want[0], rtol=tolerance, atol=tolerance)
    summands = grad.double().abs().sum(tuple(range(x.dim() - 1))) + 1e-300
    unit, step = TERM_ERROR[x.dtype], torch.finfo(x.dtype).smallest_normal * tolerance
    error = (got[1].double() - want[1]).abs()
    assert (error <= tolerance * want[1].abs() + unit * summands + step).all()


@pytest.fixture
def tensors() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return random(3, 8), random(8)


@pytest.mark.parametrize(("dtype", "form"), itertools.product(DTYPES, FORMS), ids=str)
def test_layouts(dtype: torch.dtype, form: str) -> None:
    torch.manual_seed(0)
    for hidden in (1, 3, 16, 17, 257, 1025):
        bias = random(hidden, dtype=dtype)
        wide = random(4, 7, hidden + 5, dtype=dtype)
        views = [wide[..., 2:-3], wide[:, 1:, :hidden].transpose(0, 1), wide[:1, :1, :hidden].expand(4, 7, hidden)]  # fmt: skip
        for x in [random(5, hidden, dtype=dtype), random(hidden, dtype=dtype), *views]:
            grad = random(*x.shape, dtype=dtype)
            assert_gradients(x, bias, grad, form)
            assert_gradients(x, bias, torch.ones((), dtype=dtype).expand(x.shape), form)
            assert_gradients(x, bias, random(*x.shape[::-1], dtype=dtype).permute(*reversed(range(x.dim()))), form)  # fmt: skip
            assert_gradients(x, bias, torch.cat([grad, grad], -1)[..., 1 : hidden + 1], form)
            assert_gradients(x, bias[:1].expand(hidden), grad, form)
            assert_gradients(x, random(3 * hidden, dtype=dtype)[1::3], grad, form)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_work_split_over_threads_and_parts(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for rows, hidden in ((1, 70_003), (3, 9_001), (70_000, 1), (30_000, 3), (1000, 257)):
        bias = random(hidden, dtype=dtype)
        x = random(rows, hidden, dtype=dtype)
        assert_gradients(x, bias, random(rows, hidden, dtype=dtype), "tanh")
        assert_gradients(x, bias, random(hidden, rows, dtype=dtype).t(), "tanh")


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=3),
    hidden=st.integers(1, 40),
    order=st.randoms(use_true_random=False),
    form=st.sampled_from(FORMS),
)
def test_any_strides_of_the_incoming_gradient(shape, hidden, order, form) -> None:
    sizes = [*shape, hidden]
    axes = list(range(len(sizes)))
    order.shuffle(axes)
    stored = [0] * len(sizes)
    for position, axis in enumerate(axes):
        stored[position] = sizes[axis] if order.random() < 0.7 else 1
    inverse = [axes.index(axis) for axis in range(len(sizes))]
    grad = torch.randn(stored, dtype=torch.float64).permute(inverse).expand(sizes)
    assert_gradients(random(*sizes, dtype=torch.float64), random(hidden, dtype=torch.float64), grad, form)  # fmt: skip


def test_thread_counts_give_the_same_bits() -> None:
    torch.manual_seed(0)
    x, grad = random(3000, 100), random(3000, 100)
    bias = random(100)
    wants = {"x_wanted": True, "bias_wanted": True}
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(backward(grad, x, bias, approximate="tanh", **wants))
    finally:
        torch.set_num_threads(threads)
    for result in results[1:]:
        assert torch.equal(result[0], results[0][0]) and torch.equal(result[1], results[0][1])


def test_sums_are_not_kept_in_half_types() -> None:
    x = torch.full((1000, 3), 30.0, dtype=torch.bfloat16)  # where the derivative is 1
    bias = torch.zeros(3, dtype=torch.bfloat16, requires_grad=True)
    call(x, bias).sum().backward()
    assert bias.grad.tolist() == [1000.0] * 3  # a bfloat16 sum of ones sticks at 256


@pytest.mark.parametrize(("dtype", "form"), itertools.product(DTYPES, FORMS), ids=str)
def test_limits_of_the_derivative(dtype: torch.dtype, form: str) -> None:
    infinity, huge = float("inf"), min(torch.finfo(dtype).max, 1e38)
    special = torch.tensor([-infinity, infinity, float("nan"), -0.0, 0.0, huge, -huge], dtype=dtype)
    want = torch.tensor([0, 1, float("nan"), 0.5, 0.5, 1, 0], dtype=dtype)
    for length in (1, 7, 8, 16, 33):
        x = special.repeat(5)[:length].requires_grad_()
        got = torch.autograd.grad(call(x, torch.zeros_like(x), form).sum(), x)[0]
        torch.testing.assert_close(got, want.repeat(5)[:length], rtol=1e-3, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_every_value_of_the_half_types(dtype: torch.dtype, form: str) -> None:
    """Within 0.54 ulp of float64 mathematics, where the two terms cancel in ulp of the larger one."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16)
    x = bits.view(dtype)
    x = x[x.isfinite()].requires_grad_()
    got = torch.autograd.grad(call(x, torch.zeros_like(x), form).sum(), x)[0].double()
    v = x.detach().double()
    cut = v.clamp(-100, 100)
    if form == "none":
        first = 0.5 * torch.special.erfc(-cut * 0.5**0.5)
        second = cut * torch.exp(-cut * cut / 2) / (2 * torch.pi) ** 0.5
    else:
        root = 2 * (2 / torch.pi) ** 0.5
        u = root * (cut + 0.044715 * cut**3)
        first = torch.sigmoid(u)
        second = cut * first * torch.sigmoid(-u) * root * (1 + 3 * 0.044715 * cut**2)
    size = torch.maximum((first + second).abs(), torch.maximum(first, second.abs()))
    size = torch.where(v > 0, (first + second).abs(), size).clamp(min=torch.finfo(dtype).tiny)
    ulp = torch.exp2(torch.floor(torch.log2(size))) * torch.finfo(dtype).eps
    assert ((got - (first + second)).abs() / ulp).max() <= 0.54


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_the_sum_of_half_types_is_not_rounded(dtype: torch.dtype, form: str) -> None:
    """Eager rounds x + bias to the dtype; here values and gradients are those of the sum itself."""
    torch.manual_seed(0)
    x, bias = random(64, 512, dtype=dtype).requires_grad_(), random(512, dtype=dtype)
    out = call(x, bias, form)
    ours = (out, *torch.autograd.grad(out.sum(), x))

    def mathematics(rounded: torch.dtype) -> tuple[Tensor, ...]:
        v = (x.detach().double() + bias.double()).to(rounded).double().requires_grad_()
        value = F.gelu(v, approximate=form)
        return value.to(dtype), torch.autograd.grad(value.sum(), v)[0].to(dtype)

    for got, want, other in zip(ours, mathematics(torch.float64), mathematics(dtype), strict=True):
        assert (got != want).float().mean() < 0.03  # next to a half-way point: 0.54 ulp are allowed
        assert (want != other).float().mean() > 0.1


def test_only_the_gradients_that_are_wanted(tensors) -> None:
    x, bias = tensors
    grad = torch.ones(3, 8)
    grad_x, grad_bias = backward(
        grad, x, bias, approximate="tanh", x_wanted=False, bias_wanted=True
    )
    assert grad_x.shape == (0,) and grad_bias.shape == (8,)
    grad_x, grad_bias = backward(
        grad, x, bias, approximate="tanh", x_wanted=True, bias_wanted=False
    )
    assert grad_x.shape == (3, 8) and grad_bias.shape == (0,)
    bias.requires_grad_()
    call(x, bias).sum().backward()
    assert x.grad is None and bias.grad is not None


@pytest.mark.parametrize("shape", [(0, 8), (4, 0), (0,), (2, 0, 3)], ids=str)
def test_empty(shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, requires_grad=True)
    bias = torch.ones(shape[-1], requires_grad=True)
    call(x, bias).sum().backward()
    assert x.grad.shape == shape and torch.equal(bias.grad, torch.zeros(shape[-1]))


@pytest.mark.parametrize("form", FORMS)
def test_higher_derivatives(form: str) -> None:
    torch.manual_seed(0)
    x, bias = random(2, 3, dtype=torch.float64), random(3, dtype=torch.float64)
    inputs = (x.requires_grad_(), bias.requires_grad_())
    assert torch.autograd.gradcheck(lambda x, b: call(x, b, form), inputs)
    assert torch.autograd.gradgradcheck(lambda x, b: call(x, b, form), inputs)

    def third(f):
        value = f(*inputs, form).sin().sum()
        for _ in range(2):
            (first,) = torch.autograd.grad(value, x, create_graph=True)
            value = (first**2).sum()
        return torch.autograd.grad(value, inputs)

    torch.testing.assert_close(third(call), third(eager))


def test_gradient_penalty_in_half_precision() -> None:
    x = random(4, 8, dtype=torch.bfloat16).requires_grad_()
    bias = random(8, dtype=torch.bfloat16).requires_grad_()
    (first,) = torch.autograd.grad(call(x, bias).sum(), x, create_graph=True)
    (first**2).sum().backward()
    wide = [t.detach().double().requires_grad_() for t in (x, bias)]
    (expected,) = torch.autograd.grad(eager(*wide).sum(), wide[0], create_graph=True)
    (expected**2).sum().backward()
    torch.testing.assert_close(x.grad.double(), wide[0].grad, rtol=3e-2, atol=3e-2)
    assert bias.grad.dtype == torch.bfloat16


def test_second_derivatives_have_limits() -> None:
    x = torch.tensor([float("inf"), -float("inf"), 1e30, -1e30], requires_grad=True)
    for form in FORMS:
        (first,) = torch.autograd.grad(call(x, torch.zeros(4), form).sum(), x, create_graph=True)
        assert first.tolist() == [1, 0, 1, 0]
        assert torch.autograd.grad(first.sum(), x)[0].tolist() == [0, 0, 0, 0]


def test_a_saved_tensor_must_not_change(tensors) -> None:
    x, bias = tensors
    held = x.requires_grad_() * 1
    out = call(held, bias)
    held.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    out = call(x, bias)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.sum().backward()


def test_inference_mode_and_no_grad_record_nothing(tensors) -> None:
    x, bias = tensors[0].requires_grad_(), tensors[1]
    with torch.no_grad():
        assert not call(x, bias).requires_grad
    with torch.inference_mode():
        assert call(x, bias).is_inference()


def test_forward_mode_is_refused(tensors) -> None:
    x, bias = tensors
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(RuntimeError, match=r"bias_gelu: .*forward-mode"):
            call(dual, bias)
        with torch.no_grad(), pytest.raises(RuntimeError, match="forward-mode"):
            call(dual, bias)
    with pytest.raises(RuntimeError, match="forward-mode"):
        torch.func.jvp(lambda x: call(x, bias), (x,), (torch.ones_like(x),))


def test_functional_transforms(tensors) -> None:
    x, bias = tensors[0].double(), tensors[1].double()

    def loss(f):
        return lambda x, b: f(x, b).sin().sum()

    got = torch.func.grad(loss(call), argnums=(0, 1))(x, bias)
    torch.testing.assert_close(got, torch.func.grad(loss(eager), argnums=(0, 1))(x, bias))
    if VMAP_IS_FLAT:
        return
    got = torch.func.jacrev(torch.func.jacrev(loss(call)))(x, bias)
    torch.testing.assert_close(got, torch.func.hessian(loss(eager))(x, bias))


class Calls(TorchDispatchMode):
    """How often operators of ours run."""

    count = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function.namespace == "truefuse"
        return function(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dims", [(0, None), (1, None), (2, None), (0, 0), (None, 0)], ids=str)
def test_vmap(dims: tuple[int | None, int | None]) -> None:
    """One call where the batch is a leading dimension of x; one for each bias otherwise."""
    torch.manual_seed(0)
    x = random(5, 4, 8)
    x = x if dims[0] is None else x.movedim(0, dims[0])
    bias = random(5, 8) if dims[1] is not None else random(8)
    got = torch.func.vmap(call, in_dims=dims)(x, bias)
    if not VMAP_IS_FLAT:
        with Calls() as calls:
            torch.func.vmap(call, in_dims=dims)(x, bias)
        assert calls.count == (1 if dims[1] is None else 5)
    torch.testing.assert_close(got, torch.func.vmap(eager, in_dims=dims)(x, bias))


@pytest.mark.filterwarnings("error")
def test_vmap_copies_what_does_not_lie_as_it_must() -> None:
    """Nobody who calls vmap chooses where the batch lies in memory, or sees it."""
    torch.manual_seed(0)
    x, bias, weight = random(4, 8, 5), random(8), random(8, 6)
    for dims in ((-1, None), (2, None), (2, 0), (-1, 1)):
        biases = bias if dims[1] is None else random(5, 8).movedim(0, dims[1])
        got = torch.vmap(call, in_dims=dims)(x, biases)
        torch.testing.assert_close(got, torch.vmap(eager, in_dims=dims)(x, biases))

    def of(f):
        return lambda v, b: f(weight @ v, b)

    vectors = random(5, 6)
    for transform in (lambda f: f, lambda f: torch.func.grad(lambda *given: f(*given).sum())):
        ours, theirs = (torch.vmap(transform(of(f)), in_dims=(0, None)) for f in (call, eager))
        torch.testing.assert_close(ours(vectors, bias), theirs(vectors, bias))
    if VMAP_IS_FLAT:
        return
    wide = random(4, 3, 8, 5)
    nested = [torch.vmap(torch.vmap(f, in_dims=(-1, None)), in_dims=(1, None)) for f in (call, eager)]  # fmt: skip
    torch.testing.assert_close(nested[0](wide, bias), nested[1](wide, bias))


def test_vmap_within_vmap_and_over_none(tensors) -> None:
    x, bias = random(2, 3, 4, 8), random(8)
    if not VMAP_IS_FLAT:
        twice = torch.vmap(torch.vmap(call, in_dims=(0, None)), in_dims=(1, None), out_dims=1)
        torch.testing.assert_close(twice(x, bias), call(x, bias))
    assert torch.vmap(call, in_dims=(0, None))(x[:0], bias).shape == (0, 3, 4, 8)
    with pytest.raises(RuntimeError, match="bias_gelu: vmap over a batch of 0"):
        torch.vmap(call, in_dims=(0, 0))(x[:0, 0], bias.expand(0, 8))


@pytest.mark.filterwarnings("error")
def test_gradients_for_each_sample(tensors) -> None:
    x, bias = tensors

    def of(f):
        gradient = torch.func.grad(lambda x, b: f(x, b).sum(), argnums=(0, 1))
        return torch.func.vmap(gradient, in_dims=(0, None))(x, bias)

    torch.testing.assert_close(of(call), of(eager))


@pytest.mark.parametrize("x_type", (torch.bfloat16, torch.float16, torch.float32), ids=str)
def test_under_autocast_the_bias_follows_x(x_type: torch.dtype) -> None:
    x = random(4, 8, dtype=x_type).requires_grad_()
    bias = random(8).requires_grad_()
    half = random(8, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = call(x, bias)
        assert call(x, half).dtype == x_type
    assert out.dtype == x_type
    torch.testing.assert_close(out, call(x, bias.to(x_type)))
    out.sum().backward()
    assert x.grad.dtype == x_type and bias.grad.dtype == torch.float32
    if x_type != torch.float32:
        with pytest.raises(RuntimeError, match="it must have the dtype of x"):
            call(x, bias)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="dtype"):
        call(x, bias.double())


@pytest.mark.parametrize("inside", (False, True))
def test_compiled_under_autocast(inside: bool) -> None:
    """The float32 parameter of a model meets the half output of its Linear in the compiled graph too."""
    torch._dynamo.reset()
    x, bias = random(4, 8, dtype=torch.bfloat16).requires_grad_(), random(8).requires_grad_()

    def under_autocast(x, bias):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return call(x, bias)

    if inside:
        out = torch.compile(under_autocast, fullgraph=True, backend="aot_eager")(x, bias)
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = torch.compile(call, fullgraph=True, backend="aot_eager")(x, bias)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, under_autocast(x, bias))
    out.sum().backward()
    assert x.grad.dtype == torch.bfloat16 and bias.grad.dtype == torch.float32


def test_compiled_forward_and_backward_are_one_graph_each_for_all_row_counts() -> None:
    from torch._dynamo.backends.common import aot_autograd

    graphs = []

    def compiler(module, inputs):
        graphs.append(module)
        return module.forward

    @torch.compile(dynamic=True, fullgraph=True, backend=aot_autograd(fw_compiler=compiler))
    def model(x, bias):
        return call(x * 2, bias) + 1

    for rows in (2, 3, 17, 64, 100):
        leaves = [random(rows, 24).requires_grad_(), random(24).requires_grad_()]
        got = torch.autograd.grad(model(*leaves).sum(), leaves)
        want = torch.autograd.grad((eager(leaves[0] * 2, leaves[1]) + 1).sum(), leaves)
        torch.testing.assert_close(got, want)
    assert len(graphs) == 2
    targets = {str(node.target) for node in graphs[1].graph.nodes}
    assert "truefuse.bias_gelu_backward.default" in targets


@pytest.mark.parametrize("wants", [(True, True), (True, False), (False, True)], ids=str)
def test_opcheck(tensors, wants: tuple[bool, bool]) -> None:
    x, bias = (t.double() for t in tensors)
    leaves = [t.clone().requires_grad_(w) for t, w in zip((x, bias), wants, strict=True)]
    torch.library.opcheck(torch.ops.truefuse.bias_gelu.default, leaves, {"approximate": "none"})
    modes = {"approximate": "tanh", "x_wanted": wants[0], "bias_wanted": wants[1]}
    torch.library.opcheck(backward.default, (random(8, 3).double().t(), x, bias), modes)
    torch.library.opcheck(backward.default, (torch.ones_like(x), *leaves), modes)


@pytest.mark.usefixtures("inductor")
def test_the_compiler_keeps_the_stride_order_that_the_contract_asks_for() -> None:
    bias = torch.randn(64)
    model = torch.compile(lambda x: call((x.t() + 1).contiguous(), bias), fullgraph=True)
    x = torch.randn(64, 32)
    torch.testing.assert_close(model(x), call((x.t() + 1).contiguous(), bias))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda g, x, b: (g.double(), x, b), ["x is float32", "dtype of grad_out", "float64"]),
        (lambda g, x, b: (g[:2], x, b), ["x is [3, 8]", "[2]"]),
        (lambda g, x, b: (g, x, b[:7]), ["bias", "7", "8"]),
        (lambda g, x, b: (g.to("meta"), x, b), ["x is on cpu", "grad_out is on meta"]),
    ],
)
def test_refusals_of_the_backward_operator(tensors, change, words) -> None:
    arguments = change(torch.ones(3, 8), *tensors)
    with pytest.raises(RuntimeError) as error:
        backward(*arguments, approximate="tanh", x_wanted=True, bias_wanted=True)
    assert all(word in str(error.value) for word in words), str(error.value)
