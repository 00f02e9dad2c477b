"""The operators of examples/operators on a real device, loaded from copies as a user's are: values and
gradients against their cases' references, tracing, capture, and what an edit does."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest
import torch

import truefuse
from truefuse import source_file

DEVICE = "cuda"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "operators"
CASES = {
    folder.name: source_file.run(folder / "case.py").case
    for folder in sorted(EXAMPLES.iterdir())
    if folder.is_dir()
}
EACH_DTYPE = [(name, dtype) for name, case in CASES.items() for dtype in case.dtypes]
# The arguments that each can be differentiated by.
GRADIENTS = {
    "bias_gelu": ("x", "bias"), "rotary_embedding": ("x",), "row_sum": ("x",), "swish": ("x",),
}  # fmt: skip
# A place of the kernel, and what stands there in one whose result is twice as large.
DOUBLED = {
    "add_rms_norm": ("result[k] = sum[k]", "result[k] = 2 * sum[k]"),
    "bias_gelu": ("value[k] = gelu(", "value[k] = 2 * gelu("),
    "rotary_embedding": (
        "tf::from_float<T>(a * cos[angle] - b * sin[angle])",
        "tf::from_float<T>(2 * (a * cos[angle] - b * sin[angle]))",
    ),
    "row_sum": ("return tf::block_sum(sum)", "return 2 * tf::block_sum(sum)"),
    "swish": ("return x / (1 + tf::exp(-x))", "return 2 * x / (1 + tf::exp(-x))"),
}
_numbers = itertools.count()


def copied(name, folder):
    """The operator of a copy, in a namespace that nobody else has."""
    ignored = shutil.ignore_patterns("__pycache__")
    copy = shutil.copytree(EXAMPLES / name, folder / name, ignore=ignored)
    return truefuse.load(copy, namespace=f"gpu_copies_{next(_numbers)}")


@pytest.fixture(scope="session")
def operators(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    return {name: copied(name, folder) for name in CASES}


def inputs_of(case, size, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return case.make_inputs(size, dtype, torch.device(DEVICE), generator, case.kinds[0])


def wide(value):
    """Of any floating tensor a copy in float64."""
    return value.detach().double() if isinstance(value, torch.Tensor) else value


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def results_of(function, case, inputs, mode):
    """Its outputs, and then the inputs that it changed; of copies."""
    given = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
    outputs = as_list(function(*given.values(), **mode))
    return outputs + [given[name] for name in case.mutates]


def mathematics(case, inputs, mode, dtype):
    """In float64, rounded where the operator says that it rounds."""
    reference = case.reference
    if case.rounded_reference is not None and dtype.itemsize == 2:
        reference = case.rounded_reference(dtype)
    return results_of(reference, case, {k: wide(v) for k, v in inputs.items()}, mode)


def assert_near(got, want, dtype, units, largest=0.0):
    """Within so many units in the last place of the largest value, or of `largest` if that is more."""
    assert got.dtype == dtype and got.shape == want.shape
    allowed = units * torch.finfo(dtype).eps * max(largest, float(want.abs().max()))
    assert float((got.double() - want).abs().max()) <= allowed


def test_every_example_is_here():
    assert CASES.keys() == DOUBLED.keys()
    without = [name for name in CASES if name not in GRADIENTS]
    assert without == ["add_rms_norm"]  # It changes an argument in place.


@pytest.mark.parametrize(("name", "dtype"), EACH_DTYPE, ids=str)
def test_values(operators, name, dtype):
    case = CASES[name]
    for mode, size in itertools.product(case.modes, [*case.edge_sizes, case.numeric_size]):
        inputs = inputs_of(case, size, dtype)
        found = results_of(operators[name], case, inputs, mode)
        for got, want in zip(found, mathematics(case, inputs, mode, dtype), strict=True):
            assert got.device.type == DEVICE
            # Of a sum, in units of the sum of what its summands amount to.
            largest = float(wide(inputs["x"]).abs().sum(-1).max()) if name == "row_sum" else 0.0
            assert_near(got, want, dtype, units=4, largest=largest)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1 << 22), (2, (1 << 20) + 3), (7, 65_536), (33, 40_000), (4096, 1024), (70_000, 8)], ids=str
)  # fmt: skip
def test_row_sum_whole_and_in_pieces(operators, shape, dtype):
    """Sums of 1 and -1 are exact in any order, so that one element too few or too many shows."""
    x = (torch.randint(0, 2, shape, device=DEVICE) * 2 - 1).to(dtype)
    assert torch.equal(operators["row_sum"](x), x.double().sum(-1).to(dtype))


@pytest.mark.parametrize(
    ("name", "dtype"), [pair for pair in EACH_DTYPE if pair[0] in GRADIENTS], ids=str
)
def test_gradients(operators, name, dtype):
    case, names = CASES[name], GRADIENTS[name]
    for mode in case.modes:
        inputs = inputs_of(case, case.medium_size, dtype)
        leaves = {k: v.requires_grad_() if k in names else v for k, v in inputs.items()}
        out = operators[name](*leaves.values(), **mode)
        grad = torch.randn(out.shape, device=DEVICE).to(dtype)
        found = torch.autograd.grad(out, [leaves[k] for k in names], grad)

        wides = {k: wide(v).requires_grad_(k in names) for k, v in inputs.items()}
        want = case.reference(*wides.values(), **mode)
        wanted = torch.autograd.grad(want, [wides[k] for k in names], grad.double())
        for got, expected in zip(found, wanted, strict=True):
            # The reference's own rounding counts where it has no more digits.
            assert_near(got, expected, dtype, units=64 if dtype is torch.float64 else 8)


@pytest.mark.parametrize("name", CASES)
def test_compiled(operators, name):
    """One graph for all sizes; the same kernel, so the same bits."""
    case, mode = CASES[name], CASES[name].modes[0]
    dtype = torch.float32
    torch.library.opcheck(
        operators[name].overload, list(inputs_of(case, case.small_size, dtype).values()), mode
    )
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda *tensors: operators[name](*tensors, **mode), fullgraph=True, dynamic=True
    )
    for size in (case.small_size, case.medium_size, case.numeric_size):
        inputs = inputs_of(case, size, dtype)
        found = results_of(lambda *tensors, **_: compiled(*tensors), case, inputs, mode)
        wanted = results_of(operators[name], case, inputs, mode)
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", GRADIENTS)
def test_compiled_backward(operators, name):
    case, names, mode = CASES[name], GRADIENTS[name], CASES[name].modes[0]
    torch._dynamo.reset()
    inputs = inputs_of(case, case.medium_size, torch.float32)
    leaves = {k: v.requires_grad_() if k in names else v for k, v in inputs.items()}
    call = lambda *tensors: operators[name](*tensors, **mode)  # noqa: E731
    found, wanted = (
        torch.autograd.grad(function(*leaves.values()).sum(), [leaves[k] for k in names])
        for function in (torch.compile(call, fullgraph=True), call)
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_captured_and_replayed_on_a_side_stream(operators, name):
    case, mode = CASES[name], CASES[name].modes[0]
    static = inputs_of(case, case.medium_size, torch.float32)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        operators[name](*static.values(), **mode)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        out = operators[name](*static.values(), **mode)
    torch.cuda.current_stream().wait_stream(stream)
    for seed in (1, 2, 3):
        fresh = inputs_of(case, case.medium_size, torch.float32, seed)
        wanted = results_of(operators[name], case, fresh, mode)
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for key, tensor in static.items():
                tensor.copy_(fresh[key])
            graph.replay()
        torch.cuda.current_stream().wait_stream(stream)
        found = as_list(out) + [static[key] for key in case.mutates]
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_an_edited_kernel_is_what_runs(name, tmp_path):
    case, mode = CASES[name], CASES[name].modes[0]
    operator = copied(name, tmp_path)
    inputs = inputs_of(case, case.medium_size, torch.float32)
    before = results_of(operator, case, inputs, mode)[0]

    graph = torch.cuda.CUDAGraph()
    static = {k: v.clone() for k, v in inputs.items()}
    with torch.cuda.graph(graph):
        captured = as_list(operator(*static.values(), **mode))[0]

    kernel = tmp_path / name / "kernel.hip"
    text = kernel.read_text()
    old, new = DOUBLED[name]
    assert text.count(old) == 1
    kernel.write_text(text.replace(old, new))
    edited = results_of(operator, case, inputs, mode)[0]
    if name == "rotary_embedding":  # One of the two halves.
        half = edited.shape[-1] // 2
        assert torch.equal(edited[..., :half], 2 * before[..., :half])
        assert torch.equal(edited[..., half:], before[..., half:])
    else:
        assert torch.equal(edited, 2 * before)

    # A graph replays what it captured.
    for key in static:
        static[key].copy_(inputs[key])
    graph.replay()
    assert torch.equal(captured, before)

    # What is wrong is said, and nothing older runs.
    kernel.write_text(text.replace(old, f"nothing_of_this_name; {old}"))
    with pytest.raises(
        RuntimeError, match=rf"{name}/kernel\.hip:\d+: error: .*nothing_of_this_name"
    ):
        results_of(operator, case, inputs, mode)
    kernel.write_text(text)
    assert torch.equal(results_of(operator, case, inputs, mode)[0], before)


def test_an_edited_plan_is_what_runs(tmp_path):
    """row_sum's grids come from a C++ function."""
    operator = copied("row_sum", tmp_path)
    x = (torch.randint(0, 2, (2, 1 << 18), device=DEVICE) * 2 - 1).float()

    def kernels():
        with torch.profiler.profile() as profile:
            out = operator(x)
            torch.cuda.synchronize()
        assert torch.equal(out, x.sum(-1))
        names = {event.key for event in profile.key_averages()}
        return {name for name in names if name.startswith("row_sum")}

    operator(x)
    assert kernels() == {"row_sum_partial", "row_sum_combine"}
    plan = tmp_path / "row_sum" / "plan.cpp"
    text = plan.read_text()
    assert text.count("kMostSplits = 64") == 1
    plan.write_text(text.replace("kMostSplits = 64", "kMostSplits = 1"))
    assert kernels() == {"row_sum"}
    plan.write_text(text.replace("kMostSplits = 64", "kMostSplits = many"))
    with pytest.raises(RuntimeError, match=r"row_sum/plan\.cpp:\d+: error: .*many"):
        operator(x)
