"""Every gate rejects its planted faults and accepts the honest twin."""

import math
from dataclasses import replace

import pytest
import standin
import torch
import torch.nn.functional as F

from truefuse import flags, gates
from truefuse.case import Case
from truefuse.context import Context
from truefuse.gates import edges, special
from truefuse.verdict import Status


@pytest.fixture
def small(context):
    """Two dtypes and smaller tensors: the rules are the same."""
    case = replace(context.case, dtypes=(torch.float32, torch.bfloat16), numeric_size=(64, 256))
    return replace(context, case=case)


def run(context, gate, candidate=None):
    module = next(module for module in gates.GATES if module.NAME == gate)
    if candidate is not None:
        context = replace(context, case=replace(context.case, candidate=candidate))
    return gates.run_one(module, context)


def other_mode(*tensors, approximate):
    other = "none" if approximate == "tanh" else "tanh"
    return standin.bias_gelu(*tensors, approximate=other)


def spoil(change):
    """The stand-in with `change` made to its result."""

    def candidate(*tensors, **mode):
        return change(standin.bias_gelu(*tensors, **mode), *tensors)

    return candidate


def one_nan(result, *tensors):
    result.view(-1)[-1:] = math.nan
    return result


def one_wrong_row(result, *tensors):
    if result.dim() > 1 and len(result) > 2:
        result[1] = result[0]
    return result


def shifted_bias(x, bias, **mode):
    return standin.bias_gelu(x, bias.roll(1), **mode)


def tail_by_cancellation(x, bias, *, approximate):
    standin.check(x, bias, approximate)
    return F.gelu(x + bias, approximate=approximate).contiguous()


def less_precise(result, *tensors):
    return (result.double() * (1 + 8 * torch.finfo(result.dtype).eps)).to(result.dtype)


def flush_subnormals(result, *tensors):
    return result.masked_fill(result.abs() < torch.finfo(result.dtype).smallest_normal, 0)


def nan_to_zero(result, *tensors):
    return result.nan_to_num(0.0, math.inf, -math.inf)


def mutating(result, *tensors):
    if tensors[0].numel():
        tensors[0].view(-1)[:1] = 0
    return result


def aliasing(result, x, bias):
    return x.copy_(result)


def wrong_strides(result, *tensors):
    return result.transpose(0, -1).contiguous().transpose(0, -1)


def last_element_left_out(result, *tensors):
    if result.numel() > 1:
        result.view(-1)[-1:] = 77.0
    return result


def stale_cache():
    kept = {}

    def candidate(*tensors, **mode):
        key = str(([(t.data_ptr(), t.shape, t.dtype) for t in tensors], mode))
        if key not in kept:
            kept[key] = (standin.bias_gelu(*tensors, **mode), tensors)  # keeps the addresses taken
        return kept[key][0].clone()

    return candidate


def one_buffer():
    buffers = {}

    def candidate(*tensors, **mode):
        result = standin.bias_gelu(*tensors, **mode)
        return buffers.setdefault((result.shape, result.dtype), result.clone()).copy_(result)

    return candidate


def sometimes_other_bits():
    calls = 0

    def change(result, *tensors):
        nonlocal calls
        calls += 1
        return less_precise(result) if calls % 7 == 0 else result

    return spoil(change)


def accepts_everything(x=None, bias=None, approximate="tanh"):
    return F.gelu(x + bias, approximate="none" if approximate == "none" else "tanh")


def wordless(*tensors, **mode):
    try:
        return standin.bias_gelu(*tensors, **mode)
    except RuntimeError:
        raise RuntimeError("bias_gelu: invalid argument") from None


def value_error(*tensors, **mode):
    try:
        return standin.bias_gelu(*tensors, **mode)
    except RuntimeError as error:
        raise ValueError(str(error)) from None


def broken_when_empty(x, bias, **mode):
    if x.numel() == 0:
        raise RuntimeError("bias_gelu: 0 blocks")
    return standin.bias_gelu(x, bias, **mode)


def ignores_strides(x, bias, **mode):
    dense = torch.as_strided(x, x.shape, x.new_empty(x.shape).stride(), x.storage_offset())
    return standin.bias_gelu(dense if x.dim() and x.numel() else x, bias, **mode)


def detached(*tensors, **mode):
    with torch.no_grad():
        return standin.bias_gelu(*tensors, **mode)


def wrong_gradient(x, bias, *, approximate):
    return (
        2 * F.gelu(x + bias, approximate=approximate)
        - F.gelu(x + bias, approximate=approximate).detach()
        + 0 * bias.sum()
    )


def differentiable(x, bias, *, approximate):
    return F.gelu(x + bias, approximate=approximate)


def wordless_training(x, bias, **mode):
    if x.requires_grad:
        raise RuntimeError("no")
    return standin.bias_gelu(x, bias, **mode)


FAULTS = [
    ("contract", accepts_everything, "forbidden-call"),
    ("contract", wordless, "forbidden-call"),
    ("contract", value_error, "forbidden-call"),
    ("contract", broken_when_empty, "allowed-call-wrong"),
    ("contract", ignores_strides, "allowed-call-wrong"),
    ("outputs", spoil(mutating), "output-error"),
    ("outputs", spoil(aliasing), "output-error"),
    ("outputs", spoil(wrong_strides), "output-error"),
    ("outputs", spoil(lambda result, *t: [result]), "output-error"),
    ("outputs", spoil(lambda result, *t: result.float()), "output-error"),
    ("edges", spoil(last_element_left_out), "wrong-at-size"),
    ("edges", spoil(one_nan), "wrong-at-size"),
    ("edges", shifted_bias, "wrong-at-size"),
    ("numerics", other_mode, "binade-error"),
    ("numerics", spoil(one_nan), "class-error"),
    ("numerics", spoil(one_wrong_row), "binade-error"),
    ("numerics", spoil(less_precise), "binade-error"),
    ("numerics", shifted_bias, "binade-error"),
    ("special", spoil(nan_to_zero), "special-value"),
    ("special", spoil(flush_subnormals), "special-value"),
    ("special", tail_by_cancellation, "special-value"),  # inf * 0 at -inf
    ("determinism", sometimes_other_bits(), "not-deterministic"),
    ("remembered", stale_cache(), "stale-result"),
    ("remembered", one_buffer(), "stale-result"),
    ("training", detached, "gradient-error"),
    ("training", wrong_gradient, "gradient-error"),
    ("training", wordless_training, "gradient-error"),
]


@pytest.mark.parametrize(
    ("gate", "candidate", "reason"),
    FAULTS,
    ids=[f"{gate}-{number}" for number, (gate, _, _) in enumerate(FAULTS)],
)
def test_fault_is_rejected(small, gate, candidate, reason):
    found = run(small, gate, candidate)
    assert (found.status, found.reason) == (Status.FAIL, reason), found
    assert found.expected and found.got and found.first
    assert found.replay == f"truefuse check bias_gelu --device cpu --seed 1 --gate {gate}"
    assert found.seed == 1


@pytest.mark.parametrize("gate", gates.names())
def test_honest_twin_is_accepted(small, gate):
    found = run(small, gate)
    on_gpu = gate in ("streams", "sync", "capture", "launches")
    assert found.status is (Status.SKIP if on_gpu else Status.PASS), found


def test_gradients_are_welcome(small):
    found = run(small, "training", differentiable)
    assert (found.status, found.reason) == (Status.PASS, "gradients-or-refusal")
    assert {"through sum()", "only bias", "x sliced", "incoming transposed"} <= set(
        found.lines[0].removeprefix("gives    ").split(", ")
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_wrong_mode_is_rejected_in_every_dtype(context, dtype):
    one = replace(context, case=replace(context.case, dtypes=(dtype,)))
    assert run(one, "numerics", other_mode).reason == "binade-error"
    assert run(one, "numerics").status is Status.PASS


@pytest.mark.parametrize("gate", ["outputs", "edges", "numerics", "special", "determinism"])
def test_candidate_that_raises_fails(small, gate):
    def broken(*tensors, **mode):
        raise ZeroDivisionError("launch failed")

    found = run(small, gate, broken)
    assert (found.status, found.reason) == (Status.FAIL, "candidate-raised")
    assert "ZeroDivisionError: launch failed" in found.got


def test_gate_that_raises_does_not_know(small):
    def broken_inputs(*arguments):
        raise KeyError("no inputs")

    case = replace(small.case, make_inputs=broken_inputs)
    found = run(replace(small, case=case), "edges")
    assert (found.status, found.reason) == (Status.UNKNOWN, "gate-error")
    assert "no inputs" in found.traceback


@pytest.mark.parametrize("gate", ["numerics", "edges", "special"])
def test_wrong_reference_makes_the_gate_unknown_or_fail(small, gate):
    """A reference that is not the mathematics of the yardstick cannot accept anybody."""
    case = replace(small.case, reference=lambda x, bias, approximate: x + bias)
    assert run(replace(small, case=case), gate).status is not Status.PASS


def test_reference_that_is_blind_makes_numerics_unknown(small):
    """If the planted mistakes cannot be seen, the gate says that it does not know."""
    case = replace(small.case, faults={"no mistake at all": lambda inputs, mode: (inputs, mode)})
    found = run(replace(small, case=case), "numerics")
    assert (found.status, found.reason) == (Status.UNKNOWN, "self-test-failed")
    assert "'no mistake at all'" in found.got and "which changes no result" in found.got


def test_a_baseline_that_is_not_the_reference_is_named(small):
    case = replace(small.case, reference=lambda x, bias, approximate: x + bias)
    found = run(replace(small, case=case), "edges")
    assert "the baseline 'eager'" in found.got and "where mathematics has" in found.got


def test_without_a_contract_nothing_is_known(small):
    found = run(replace(small, contract=None), "contract")
    assert (found.status, found.reason) == (Status.UNKNOWN, "no-contract")


def test_contract_gate_shows_every_sentence(small):
    found = run(small, "contract")
    refused = found.numbers["refused"]
    assert refused["bias short"].startswith("bias_gelu: bias has 7 elements; hidden is 8")
    assert set(refused) >= {
        *("x dtype", "x device", "x strided", "x transposed", "x missing", "x scalar"),
        *("bias dtype", "bias device", "bias rank", "bias short", "bias long", "bias of one"),
        *("approximate unknown", "approximate missing"),
    }
    assert "empty [0, 8]" in found.numbers["accepted"]
    assert found.numbers["empty_launches"] is None  # not countable on a CPU


def test_compile_gate_lists_missing_compilers(small):
    found = run(small, "compile")
    assert any("pip install nvidia-cuda-nvrtc" in line for line in found.lines)
    assert [row["arch"] for row in found.numbers["table"] if "arch" in row] == ["gfx906", "gfx90a"]


def test_compile_gate_reports_a_compiler_that_fails(small, native):
    log = "hipRTC could not compile\nIn file included from a.h\nb.h:3:1: error: expected ';'\n ^"
    native.compile = lambda *arguments: {"ok": False, "error": log}
    found = run(small, "compile")
    assert (found.status, found.reason) == (Status.FAIL, "does-not-compile")
    assert found.got == "b.h:3:1: error: expected ';'"
    assert found.numbers["table"][0]["error"] == log


def test_compile_gate_builds_every_shown_variant(small, native):
    """The timed one compiles, another does not."""
    operator = native.operators()[0]
    operator["variants"][1]["shown"] = True
    native.operators = lambda: [operator]
    good = native.compile
    native.compile = lambda op, arch, label, *rest: (
        {"ok": False, "error": "ambiguous call"} if "f64" in label else good(op, arch, label, *rest)
    )
    found = run(small, "compile")
    assert (found.status, found.reason) == (Status.FAIL, "does-not-compile")
    assert (found.first, found.got) == ("hipRTC for gfx906, f64 tanh", "ambiguous call")


def test_compile_gate_without_compilers_is_skipped_on_a_cpu(small, native):
    every = native.toolchains()
    native.toolchains = lambda: [{**toolchain, "found": False} for toolchain in every]
    found = run(small, "compile")
    assert (found.status, found.reason) == (Status.SKIP, "no-compiler")


def test_a_square_is_tried_where_the_case_has_none(small):
    case = replace(small.case, edge_sizes=((1, 1), (2, 3)))
    real = min(case.timing_sizes, key=math.prod)
    longer = tuple((3, length) for length in sorted({size[1] + 1 for size in case.timing_sizes}))
    assert edges.sizes_of(case) == ((1, 1), (2, 3), (24, 24), real, *longer)
    assert edges.sizes_of(replace(case, edge_sizes=((1, 1), (4, 4)))) == ((1, 1), (4, 4), real)
    assert edges.sizes_of(replace(case, edge_sizes=((2, 3, 5),))) == ((2, 3, 5), real)


def test_rows_are_taken_for_columns_where_results_are_no_plane(small):
    def row_sums(dim):
        return lambda x, bias, approximate: (x + bias).sum(dim)

    case = replace(small.case, baselines={"eager": row_sums(-1)}, reference=row_sums(-1), yardstick=None)  # fmt: skip
    context = replace(small, case=replace(case, candidate=row_sums(-1)))
    assert run(context, "edges").status is Status.PASS
    only_squares = replace(context.case, edge_sizes=((4, 4),), small_size=(4, 4))
    square = replace(context, case=replace(only_squares, candidate=row_sums(0)))
    assert run(square, "edges").status is Status.FAIL
    # Of the sum of all there are no rows and columns to be taken for each other.
    of_all = row_sums((-2, -1))
    case = replace(only_squares, baselines={"eager": of_all}, reference=of_all, candidate=of_all)
    assert edges._swapped(replace(context, case=case)) == {}


def test_a_setting_changed_before_the_gate_is_seen(small):
    with torch.no_grad():
        before = flags.snapshot(small.device)
    torch.set_float32_matmul_precision("medium")
    result = run(replace(small, at_start=before), "flags")
    assert result.status is Status.FAIL
    assert "an earlier call changed: float32 matmul precision" in result.summary
    assert run(replace(small, at_start=before), "flags").status is Status.PASS


@pytest.mark.parametrize("why", ["", "the model does"])
def test_a_baseline_in_float64(small, why):
    def wide(x, bias, *, approximate):
        return F.gelu(x.double() + bias, approximate=approximate).to(x.dtype)

    case = replace(small.case, baselines={"eager": wide}, baseline_copies=why)
    result = run(replace(small, case=case), "baseline")
    assert result.status is (Status.PASS if why else Status.UNKNOWN)
    assert "computes in float64" in result.summary


def test_compile_gate_compiles_anew_only_where_that_is_quick(small, native):
    """A library does; of a program the cost is told that was met when the cache got its kernel."""
    found_there, good = native.toolchains(), native.compile
    native.toolchains = lambda: [
        found_there[0],
        {**found_there[0], "name": "hipcc", "default_arch": "gfx1030"},
    ]
    anew = []

    def compile(operator, arch, label, compiler, cache):
        anew.extend([] if cache else [compiler])
        cost = 3.0 if compiler == "hipcc" else 0.2
        return {**good(operator, arch, label, compiler, cache), "compile_seconds": cost}

    native.compile = compile
    found = run(small, "compile")
    assert found.status is Status.PASS, found
    assert anew == ["hipRTC", "hipRTC"]
    assert [row["cold_seconds"] for row in found.numbers["table"]] == [0.2, 0.2, 3.0]


def test_the_special_values_that_a_result_has_seen_are_named():
    def seen(x, shape, position):
        return special._seen_by(special.Tried("x", {"x": x}, {}, 0.0), torch.Size(shape), position)

    rows = torch.tensor([[0.0, 1.0], [math.inf, 2.0]])
    assert seen(rows, [2, 2], 2) == "inf"
    assert seen(rows, [2], 1) == "[inf, 2.0]"
    assert seen(torch.tensor([[math.inf]]), [1], 0) == "inf"
    assert seen(rows.expand(4, 2, 2), [], 0) == "[0.0, 1.0, inf, 2.0]"
    assert seen(torch.arange(9.0), [], 0) == "[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, …]"


def test_where_the_reference_stands_alone_the_yardstick_counts():
    def log_of_sum(x):
        return torch.logsumexp(x, -1)

    def inputs(size, dtype, device, generator, kind):
        return {"x": torch.randn(size, generator=generator, dtype=torch.float64).to(dtype)}

    def judged(reference, candidate):
        case = Case(
            name="log_of_sum", candidate=candidate, baselines={"eager": log_of_sum},
            reference=reference, make_inputs=inputs, dtypes=(torch.float32,),
        )  # fmt: skip
        context = Context(case, torch.device("cpu"), 1, "case.py", None)
        return run(context, "special")

    overflows = judged(lambda x: x.exp().sum(-1).log(), log_of_sum)
    assert overflows.status is Status.PASS and "as the yardstick has them" in overflows.summary
    for reference in (log_of_sum, lambda x: x.exp().sum(-1).log()):
        wrong = judged(reference, lambda x: log_of_sum(x).nan_to_num(0.0))
        assert wrong.reason == "special-value"
        assert wrong.summary.startswith("wrong at x=inf, f32")
