"""The operators of examples/operators, copied out of the repository as a user's would be: simulated at both
wave sizes, against PyTorch and transformers in float64."""

import shutil
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import truefuse
from truefuse import case as cases
from truefuse import simulate
from truefuse.context import Context
from truefuse.gates import special

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "operators"
WAVES = [("sim:wave32", torch.float32), ("sim:wave64", torch.bfloat16)]
each_wave = pytest.mark.parametrize(("arch", "dtype"), WAVES, ids=["wave32-f32", "wave64-bf16"])


class InFloat64(TorchFunctionMode):
    """Models convert to float32 where they compute: here to float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if value is torch.float32 else value for value in args)
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="session")
def copies(tmp_path_factory):
    """Its name -> the operator."""
    outside = tmp_path_factory.mktemp("outside")
    loaded = {}
    for folder in sorted(path for path in EXAMPLES.iterdir() if path.is_dir()):
        copy = shutil.copytree(
            folder, outside / folder.name, ignore=shutil.ignore_patterns("__pycache__")
        )
        loaded[folder.name] = truefuse.load(copy, namespace="example_copies")
    return loaded


def simulated(arch, function):
    with simulate.Simulated(simulate.Device(arch)):
        return function()


def near(got, want, dtype, factor=4.0):
    """Within `factor` units in the last place of the largest value."""
    unit = torch.finfo(dtype).eps * float(want.abs().max())
    assert got.dtype == dtype and got.shape == want.shape
    assert float((got.double() - want).abs().max()) <= factor * unit


@each_wave
def test_swish(copies, arch, dtype):
    x = (3 * torch.randn(3, 259)).to(dtype).requires_grad_()
    grad = torch.randn(3, 259).to(dtype)

    def forward_and_backward():
        out = copies["swish"](x)
        return out.detach(), torch.autograd.grad(out, x, grad)[0]

    out, grad_x = simulated(arch, forward_and_backward)
    wide = x.detach().double().requires_grad_()
    want = F.silu(wide)
    near(out, want.detach(), dtype)
    near(grad_x, torch.autograd.grad(want, wide, grad.double())[0], dtype)


@each_wave
def test_bias_gelu(copies, arch, dtype):
    x, bias = (3 * torch.randn(2, 5, 136)).to(dtype), torch.randn(136).to(dtype)
    approximate = "tanh" if dtype is torch.float32 else "none"
    out = simulated(arch, lambda: copies["bias_gelu"](x, bias, approximate=approximate))
    near(out, F.gelu(x.double() + bias.double(), approximate=approximate), dtype)
    # On the CPU it is the function that the description names, and it has a gradient.
    leaves = [t.detach().clone().requires_grad_() for t in (x.double(), bias.double())]
    call = lambda a, b: copies["bias_gelu"](a, b, approximate=approximate)  # noqa: E731
    assert torch.autograd.gradcheck(
        call,
        [leaves[0][:1, :1, :8].detach().requires_grad_(), leaves[1][:8].detach().requires_grad_()],
    )


@each_wave
@pytest.mark.parametrize("pairs", ["half", "adjacent"])
def test_rotary_embedding(copies, arch, dtype, pairs):
    pytest.importorskip("transformers")
    from transformers.models.gptj.modeling_gptj import apply_rotary_pos_emb as adjacent
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb as half

    x = torch.randn(2, 7, 3, 32).to(dtype)  # batch, tokens, heads, 2 * half
    angle = 6 * torch.rand(2, 7, 16)
    cos, sin = angle.cos(), angle.sin()
    out = simulated(arch, lambda: copies["rotary_embedding"](x, cos, sin, pairs=pairs))
    if pairs == "adjacent":
        want = adjacent(x.double(), sin.double(), cos.double())
    else:
        doubled = [torch.cat((t, t), dim=-1).double() for t in (cos, sin)]
        of_heads = x.double().transpose(1, 2)
        want = half(of_heads, of_heads, *doubled)[0].transpose(1, 2)
    near(out, want, dtype, factor=1.0)
    assert not torch.allclose(
        copies["rotary_embedding"](x, cos, -sin, pairs=pairs).double(), want, atol=0.1
    )


@each_wave
@pytest.mark.parametrize(("form", "rounding"), [("w", "after"), ("1 + w", "before")])
def test_add_rms_norm(copies, arch, dtype, form, rounding):
    pytest.importorskip("transformers")
    from transformers.models.gemma.modeling_gemma import GemmaRMSNorm
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    hidden = 520
    x, residual = torch.randn(5, hidden).to(dtype), (2 * torch.randn(5, hidden)).to(dtype)
    weight = (torch.rand(hidden) - 0.3).to(dtype)
    total = x.double() + residual.double()
    mode = {"eps": 1e-5, "weight_form": form, "sum_rounding": rounding}
    mine = residual.clone()
    out = simulated(arch, lambda: copies["add_rms_norm"](x, mine, weight, **mode))
    assert torch.equal(mine, total.to(dtype))

    norm = (LlamaRMSNorm if form == "w" else GemmaRMSNorm)(hidden, eps=1e-5).double()
    norm.weight.data = weight.double()
    with InFloat64(), torch.no_grad():
        want = norm(total.to(dtype).double() if rounding == "before" else total)
    # For each element: one rounding of the result, none of the sum beside the one that was asked for.
    bound = 0.51 * torch.finfo(dtype).eps + 8 * torch.finfo(torch.float32).eps
    assert bool(((out.double() - want).abs() <= bound * want.abs()).all())
    if dtype is torch.bfloat16:
        other = {**mode, "sum_rounding": "before" if rounding == "after" else "after"}
        out = copies["add_rms_norm"](x, residual.clone(), weight, **other)
        assert bool(((out.double() - want).abs() > bound * want.abs()).any())


@pytest.mark.parametrize("name", ["add_rms_norm", "bias_gelu", "swish"])
def test_the_special_gate_proves_itself_on_it(name):
    """In every dtype, bfloat16 with its few subnormal numbers included."""
    case = cases.load(str(EXAMPLES / name))
    assert special.self_test(Context(case, torch.device("cpu"), 1)) == []


def test_what_is_flushed_is_further_off_than_the_special_gate_allows():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        info = torch.finfo(dtype)
        subnormal = [abs(v) for v in special.special_values(dtype) if 0 < abs(v) < info.tiny]
        furthest = max(subnormal) / (info.tiny * info.eps)
        assert furthest > 2 * max(special.ALLOWED_ULPS.values()), dtype


@each_wave
@pytest.mark.parametrize(("shape", "kernels"), [
    ((3, 7), ["row_sum"]), ((2, 3, 4096), ["row_sum"]), ((4, 0), ["row_sum"]), ((0, 5), []),
    ((2, 40_960), ["row_sum_partial", "row_sum_combine"]),
    ((1, 20_483), ["row_sum_partial", "row_sum_combine"]),
], ids=str)  # fmt: skip
def test_row_sum(copies, arch, dtype, shape, kernels):
    """Its plan is a C++ function, which tries in how many pieces a row is summed fastest."""
    x = torch.randn(shape).to(dtype)
    with simulate.Simulated(simulate.Device(arch, ("none",), trace=True)) as simulated_calls:
        out = copies["row_sum"](x)
    assert [launch["kernel"] for launch in simulated_calls.calls[0]["launches"]] == kernels
    want = x.double().sum(-1)
    unit = torch.finfo(dtype).eps * want.abs() + 1e-6 * x.double().abs().sum(-1)
    assert out.dtype == dtype and bool(((out.double() - want).abs() <= unit).all())


def test_row_sum_is_differentiable_and_compiles(copies):
    x = torch.randn(3, 5, dtype=torch.float32, requires_grad=True)
    torch.library.opcheck(copies["row_sum"].overload, (x,))
    model = torch.compile(lambda x: copies["row_sum"](x) * 2, fullgraph=True, dynamic=True, backend="aot_eager")  # fmt: skip
    model(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 5), 2.0))
