"""Honest operators of uncommon form are judged as others are; what cannot be judged is said in words, once."""

from __future__ import annotations

import math
import re

import pytest
import torch

from truefuse import _native, case_check, gates, in_place, sampling
from truefuse import case as cases
from truefuse.case import Case, Tolerance
from truefuse.context import Context, as_tuple
from truefuse.gates import contract
from truefuse.verdict import Status

CPU = torch.device("cpu")
SMALL = {
    "numeric_size": (16, 64),
    "medium_size": (9, 33),
    "edge_sizes": ((1, 1), (2, 3), (5, 65)),
    "special_sizes": ((1, 1), (1, 7)),
    "timing_sizes": ((32, 128),),
    "empty_sizes": (),
}
# Without a contract, a GPU or kernels of ours.
NAMES = [name for name in gates.names() if name not in ("contract", "compile")]


def normal(size, dtype, device, generator, kind):
    x = 2 * torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(device, dtype)}


def made(function, candidate=None, reference=None, make_inputs=normal, **changes):
    return Case(
        "unusual",
        candidate or function,
        {"eager": function},
        reference or function,
        make_inputs,
        **{**SMALL, **changes},
    )


def quantised(x):
    return (16 * x).round().clamp(-127, 127).to(torch.int8)


def largest(x):
    return x.max(-1).values, x.argmax(-1)


def in_a_larger_block(x):
    block = torch.empty(x.numel() + 7, dtype=x.dtype, device=x.device)
    return block[: x.numel()].view(x.shape).copy_(torch.tanh(x))


def subnormals_flushed(x):
    """A baseline as torch.compile makes it in PyTorch 2.5, with a GCC before 13."""
    torch.set_flush_denormal(True)
    return torch.tanh(x)


def turned(x, y):
    """By an eighth of a circle, both in place: as q and k of a rotary embedding."""
    first = (x - y) * 0.5**0.5
    y.copy_((x + y) * 0.5**0.5)
    x.copy_(first)


def turned_one_by_one(x, y):
    root = 0.5**0.5
    before = x.clone()
    x.sub_(y).mul_(root)
    y.add_(before).mul_(root)


def two(size, dtype, device, generator, kind):
    x, y = torch.randn((2, *size), generator=generator, dtype=torch.float64)
    return {"x": x.to(device, dtype), "y": y.to(device, dtype)}


def added_to_itself(x, y):
    """A state as a residual has it: given back, and rounded to its dtype in every step."""
    return x.add_(y)


def tanh_into(x, out):
    return out.copy_(x.tanh())


def with_out(*given):
    inputs = normal(*given)
    return inputs | {"out": torch.zeros_like(inputs["x"])}


def packed(size, dtype, device, generator, kind):
    return {"packed": torch.randint(0, 256, size, generator=generator, dtype=dtype).to(device)}


def unpacked(packed):
    return torch.stack((packed % 16, packed // 16), -1).to(torch.int8) - 8


def unpacked_by_bits(packed):
    out = torch.empty((*packed.shape, 2), dtype=torch.int8)
    out[..., 0].copy_(packed & 15)
    out[..., 1].copy_(packed >> 4)
    return out.sub_(8)


def unpacked_in_mathematics(packed):
    table = torch.tensor([[byte % 16 - 8.0, byte // 16 - 8.0] for byte in range(256)])
    return table.double()[packed.long()]


def experts(size, dtype, device, generator, kind):
    return {"expert": torch.randint(0, 8, size, generator=generator).to(device)}


def counted(expert):
    return torch.bincount(expert.flatten(), minlength=8)


def counted_by_adding(expert):
    ones = torch.ones_like(expert).flatten()
    return torch.zeros(8, dtype=torch.int64).scatter_add_(0, expert.flatten(), ones)


def counted_in_mathematics(expert):
    return (expert.flatten() == torch.arange(8)[:, None]).double().sum(-1)


def likely(x):
    """Booleans that a rounding decides where a probability is near the threshold."""
    p = torch.softmax(x, -1)
    return p >= p.amax(-1, keepdim=True) / 10


def likely_by_logarithms(x):
    return x >= x.amax(-1, keepdim=True) - math.log(10)


def likely_in_mathematics(x):
    p = torch.exp(x - x.amax(-1, keepdim=True))
    return torch.where(p.isnan(), p, (p >= 0.1).double())


def by_row(x):
    scale = x.abs().amax(-1, keepdim=True).clamp(min=1e-10) / 127
    return (x / scale).round().to(torch.int8), scale


def by_row_inverted(x):
    top = x.abs().amax(-1, keepdim=True).clamp(min=1e-10)
    return (x * (127 / top)).round().to(torch.int8), top * (1 / 127)


def normed(x):
    """As every kernel of RMSNorm, and PyTorch's own, overflows beyond 2^64."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def normed_in_mathematics(x):
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def of_default_dtype(x):
    return torch.tanh(x) + torch.zeros(x.shape)


def centred(x):
    return x - x.mean(-1, keepdim=True)


def centred_by_sum(x):
    return x - x.sum(-1, keepdim=True) * (1 / x.shape[-1])


def in_place_alone(candidate=turned_one_by_one, **changes):
    return made(turned, candidate, make_inputs=two, mutates=("x", "y"), **changes)


def of_bytes(candidate=unpacked_by_bits):
    return made(
        unpacked, candidate, unpacked_in_mathematics, make_inputs=packed, dtypes=(torch.uint8,)
    )


def of_likely(candidate=likely_by_logarithms):
    return made(likely, candidate, likely_in_mathematics, numeric_size=(128, 512))


HONEST = {
    "in place alone": in_place_alone(),
    "in place alone, given back": made(
        added_to_itself, make_inputs=two, mutates=("x",), dtypes=(torch.float32, torch.bfloat16)
    ),
    "an out variant": made(tanh_into, make_inputs=with_out, mutates=("out",)),
    "bytes": of_bytes(),
    "counts": made(
        counted,
        counted_by_adding,
        counted_in_mathematics,
        make_inputs=experts,
        dtypes=(torch.int64,),
    ),
    "booleans that a rounding decides": of_likely(),
    "rows as int8, and their scales": made(by_row, by_row_inverted),
    "squares that overflow": made(normed, torch.compile(normed), normed_in_mathematics),
    "the default dtype": made(of_default_dtype, torch.tanh, torch.tanh),
    "float64 alone": made(torch.tanh, dtypes=(torch.float64,)),
    "digits that cancel": made(centred, centred_by_sum, numeric_size=(128, 512)),
    "a list": made(lambda x: [torch.tanh(x), torch.sigmoid(x)]),
    "int8": made(quantised),
    "bool": made(lambda x: x > 0.25),
    "numbers and indices": made(largest),
    "a sum of each row": made(lambda x: torch.tanh(x).sum(-1)),
    "a single number": made(lambda x: torch.tanh(x).square().sum()),
    "a view of fresh memory": made(torch.tanh, in_a_larger_block),
    "subnormal numbers": made(subnormals_flushed, torch.tanh, torch.tanh),
}


def status_of(case, name):
    gate = next(gate for gate in gates.GATES if name == gate.NAME)
    return gates.run_one(gate, in_place.judged(Context(case, CPU, 3)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("case", HONEST.values(), ids=HONEST)
def test_an_honest_operator_passes(case, name):
    found = status_of(case, name)
    assert found.status in (Status.PASS, Status.SKIP), found


def after(function, change):
    """`function`, and then a change of what it gives or of its arguments."""

    def candidate(*given):
        outputs = function(*given)
        change(*given) if outputs is None else change(*as_tuple(outputs))
        return outputs

    return candidate


def second_kept(x, y):
    turned_one_by_one(x, y.clone())


def last_left_out(first, *others):
    first.view(-1)[-1] += 1


def last_turned_over(first):
    first.view(-1)[-1] ^= True


def remembering(function):
    """By the contents of all that it is given."""
    kept = {}

    def candidate(given):
        key = given.flatten().tolist()
        return kept.setdefault(str(key), function(given)).clone()

    return candidate


@pytest.mark.parametrize(
    ("case", "gate"),
    [
        (in_place_alone(second_kept), "outputs"),
        (in_place_alone(after(turned_one_by_one, last_left_out)), "edges"),
        (in_place_alone(after(turned_one_by_one, last_left_out)), "numerics"),
        (in_place_alone(after(turned_one_by_one, last_left_out)), "drift"),
        (in_place_alone(lambda x, y: turned_one_by_one(x, y) or x), "outputs"),
        (in_place_alone(after(turned_one_by_one, lambda x, y: y.nan_to_num_(0.0))), "special"),
        (of_bytes(after(unpacked_by_bits, last_left_out)), "edges"),
        (of_bytes(after(unpacked_by_bits, last_left_out)), "numerics"),
        (of_bytes(remembering(unpacked_by_bits)), "remembered"),
        (of_bytes(lambda packed: unpacked_by_bits(packed.clamp(max=254))), "numerics"),
        (of_bytes(lambda packed: unpacked_by_bits(packed.zero_())), "outputs"),
        (of_likely(lambda x: likely_by_logarithms(x * 1.001)), "numerics"),
        (of_likely(after(likely_by_logarithms, last_turned_over)), "edges"),
        (of_likely(after(likely_by_logarithms, last_turned_over)), "numerics"),
        (made(normed, lambda x: normed(x).nan_to_num(0.0), normed_in_mathematics), "special"),
        (made(normed, lambda x: normed(x * (x.abs() > 1e-37)), normed_in_mathematics), "special"),
        (
            made(centred, lambda x: centred_by_sum(x) + 3e-6, numeric_size=(128, 512)),
            "numerics",
        ),
    ],
)
def test_a_fault_in_one_of_these_is_caught(case, gate):
    found = status_of(case, gate)
    assert found.status is Status.FAIL, found


def test_the_magnitude_that_an_operator_is_for():
    """A product that overflows before it is scaled down is wrong, unless the case says so; NaN stays asked for."""
    right = lambda x: x * 0.5  # noqa: E731
    overflows = lambda x: x * 1e6 * 5e-7  # noqa: E731
    found = status_of(made(right, overflows), "special")
    assert found.status is Status.FAIL and "`largest`" in found.got, found
    found = status_of(made(right, overflows, largest=1e30), "special")
    assert found.status is Status.PASS and "±1e+30" in found.summary, found
    lost = made(right, lambda x: overflows(x).nan_to_num(0.0), largest=1e30)
    assert status_of(lost, "special").status is Status.FAIL


def test_what_the_yardstick_has_too_is_counted():
    found = status_of(HONEST["squares that overflow"], "special")
    assert found.numbers["as_yardstick"] and "as the yardstick has them" in found.summary
    assert not status_of(made(torch.tanh), "special").numbers["as_yardstick"]


def one_off(function):
    def candidate(x):
        out = function(x)
        flat = out.view(-1)
        flat[flat.numel() // 2 :][:1] ^= 1
        return out

    return candidate


@pytest.mark.parametrize("gate", ["edges", "numerics", "special", "remembered"])
def test_an_integer_that_is_off_by_one(gate):
    found = status_of(made(quantised, one_off(quantised)), gate)
    assert found.status is Status.FAIL, found


def test_a_case_may_allow_integers_to_be_off_by_one():
    case = made(quantised, one_off(quantised), tolerance={torch.int8: Tolerance(2, ulps=1)})
    assert status_of(case, "numerics").status is Status.PASS
    assert status_of(case, "edges").status is Status.PASS


def test_a_list_is_no_tuple():
    found = status_of(made(lambda x: (x.sin(), x.cos()), lambda x: [x.sin(), x.cos()]), "outputs")
    assert (found.status, found.expected, found.got) == (Status.FAIL, "a tuple", "a list")


def complex_input(size, dtype, device, generator, kind):
    return {"x": torch.randn(size, generator=generator, dtype=torch.complex64)}


def case_of(make_inputs, function=torch.tanh, **changes):
    return Case("odd", function, {"eager": function}, function, make_inputs, **changes)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (case_of(complex_input), "view_as_real"),
        (case_of(lambda *a: {"n": 3}, lambda n: torch.arange(n)), "no input is a tensor"),
        (
            case_of(lambda *a: {"xs": [torch.ones(2)]}, torch.stack),
            r"'xs' is a list of tensors.*f\(x, ",
        ),
    ],
)
def test_what_cannot_be_judged_is_said_in_words(case, words):
    with pytest.raises(cases.NotJudged, match=words):
        case_check.ask(case, CPU, None)


def raises(*given):
    raise IndexError("oh")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        (case_of(raises), "make_inputs raised IndexError for size .*: oh"),
        (case_of(lambda *a: [torch.ones(2)]), "make_inputs gives .*; it must give a dict"),
        (case_of(normal, raises), "baseline 'eager' raised IndexError: oh"),
        (case_of(normal, lambda x: "no"), "baseline 'eager' gives str"),
        (
            case_of(normal, gradients=("y",)),
            "gradients names y, which is no tensor; make_inputs gives x",
        ),
        (
            Case("odd", torch.tanh, {"eager": torch.tanh}, lambda x: x.sum(), normal),
            "the reference gives",
        ),
    ],
)
def test_what_is_wrong_with_a_case_is_said_once(case, words):
    with pytest.raises(cases.CaseError, match=words):
        case_check.ask(case, CPU, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"y": False}, "make_inputs gives x; the arguments of its contract are y"),
        (
            {"x": False, "eps": False},
            "neither make_inputs nor modes give eps, which its contract has",
        ),
        ({"x": False, "eps": True}, ""),
    ],
)
def test_a_contract_of_other_arguments(arguments, words):
    named = [{"name": name, "optional": optional} for name, optional in arguments.items()]
    case = case_of(normal, contract={"text": "", "arguments": named})
    if not words:
        case_check.ask(case, CPU, case.contract)
        return
    with pytest.raises(cases.CaseError, match=words):
        case_check.ask(case, CPU, case.contract)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidate": None}, "candidate is None; it must be a function"),
        ({"baselines": {}}, "baselines is empty"),
        ({"baselines": {"eager": 3}}, "baselines is {'eager': 3}; it must be a dict of functions"),
        (
            {"baselines": {"eager": torch.tanh, "candidate": torch.tanh}},
            "baselines has a 'candidate', which in the figures is the candidate; give it another name",
        ),
        (
            {"baselines": {sampling.AGAIN: torch.tanh}},
            "baselines has a 'candidate again', which in the figures is the candidate",
        ),
        ({"dtypes": ("float32",)}, r"dtypes is .*such as \(torch.float32,\)"),
        ({"dtypes": ()}, r"dtypes is \(\)"),
        ({"contract": {"x": "f32"}}, "contract is {'x': 'f32'}; it must be a text such as"),
    ],
)
def test_a_case_of_the_wrong_kind(changes, words):
    fields = {
        "name": "odd",
        "candidate": torch.tanh,
        "baselines": {"eager": torch.tanh},
        "reference": torch.tanh,
        "make_inputs": normal,
    }
    assert re.search(words, case_check.complaint(Case(**{**fields, **changes})) or "")
    with pytest.raises(ValueError, match="contract is Ellipsis; it must be a text such as"):
        Case(**{**fields, "contract": ...})


def test_a_baseline_that_raises_is_named_as_the_cases_affair(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom truefuse.case import Case\n"
        "def eager(x):\n    if x.shape[0] == 7:\n        raise IndexError('oh')\n    return torch.tanh(x)\n"
        "def inputs(size, dtype, device, generator, kind):\n"
        "    return {'x': torch.randn(size, generator=generator).to(device, dtype)}\n"
        "case = Case('mine', torch.tanh, {'eager': torch.tanh}, eager, inputs, edge_sizes=((7, 5),))\n"
    )
    found = status_of(cases.load(str(path)), "edges")
    assert (found.status, found.reason) == (Status.UNKNOWN, "case-raises"), found
    assert re.fullmatch(r"mine\.py:5, in eager: x f\d\d \[7, 5\]", found.first)
    assert "IndexError: oh" in found.summary


CONTRACT = (
    "x: f32 [rows.., n] strided; y: f32 [rows.., n] strided -> out: f32 [rows.., n] contiguous"
)


def of_one_device(x, y):
    for name, one in (("x", x), ("y", y)):
        if one.dtype != torch.float32:
            raise RuntimeError(f"unusual: {name} is {one.dtype}; it must be float32")
        if one.dim() < 1:
            raise RuntimeError(f"unusual: {name} is a scalar; it must be [rows.., n]")
    if x.shape != y.shape:
        raise RuntimeError(f"unusual: y is {list(y.shape)}; it must be as x, {list(x.shape)}")
    return (x * y).contiguous()


@pytest.fixture(scope="module")
def library():
    """An operator as torch.library has them: a form for CPU tensors, and one for shapes alone."""
    held = torch.library.Library("unusual", "DEF")
    held.define("product(Tensor x, Tensor y) -> Tensor")
    held.impl("product", of_one_device, "CPU")
    held.impl("product", lambda x, y: torch.empty(x.shape), "Meta")
    held.define("without_shapes(Tensor x, Tensor y) -> Tensor")
    held.impl("without_shapes", of_one_device, "CPU")
    yield torch.ops.unusual
    held._destroy()


def judged_by_contract(candidate):
    function = lambda x, y: x * y  # noqa: E731
    case = Case("unusual", candidate, {"eager": function}, function, two, **SMALL)
    context = Context(case, CPU, 3, contract=_native.contract(CONTRACT))
    return gates.run_one(contract, context)


@pytest.mark.parametrize("name", ["product", "without_shapes"])
def test_an_operator_that_meta_tensors_never_reach(library, name):
    found = judged_by_contract(lambda x, y: getattr(library, name)(x, y))
    assert found.status is Status.PASS and "2 not asked" in found.summary, found


def test_a_function_that_takes_tensors_of_two_devices(library):
    found = judged_by_contract(lambda x, y: of_one_device(x.cpu() if x.is_cpu else y, y))
    assert found.status is Status.FAIL and "device" in found.summary, found
    # Nor does it help to be registered where a forbidden call is wrong on every device.
    found = judged_by_contract(lambda x, y: library.product(x.float(), y.float()))
    assert found.status is Status.FAIL and "dtype" in found.summary, found


def test_what_to_do_about_lazy_negation():
    def by_memory(x, y):
        plain = [torch._neg_view(one) if one.is_neg() else one for one in (x, y)]
        return of_one_device(*plain)

    found = judged_by_contract(by_memory)
    assert found.status is Status.FAIL and "x.resolve_neg()" in found.got, found
