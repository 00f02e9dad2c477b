"""Finding cases, and the shipped case's own mathematics."""

import math
from dataclasses import replace

import mpmath
import pytest
import torch

from truefuse import case as cases

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "defines no case"),
        ("case = 3", "defines no case"),
        ("1 / 0", "ZeroDivisionError"),
        ("def case():\n    raise KeyError('x')", "KeyError"),
        ("case = (", "SyntaxError"),
    ],
)
def test_bad_case_file(tmp_path, text, part):
    path = tmp_path / "mine.py"
    path.write_text(text)
    with pytest.raises(cases.CaseError, match=part):
        cases.load(str(path))


def test_missing_case_file(tmp_path):
    with pytest.raises(cases.CaseError, match="does not exist"):
        cases.load(str(tmp_path / "nothing.py"))


@pytest.mark.parametrize("name", ["no_such", "../bias_gelu", ""])
def test_unknown_operator(name):
    with pytest.raises(cases.CaseError, match="Operators: "):
        cases.load(name)


@pytest.mark.parametrize("text", ["case = build()", "case = build"])
def test_case_or_function(tmp_path, text):
    path = tmp_path / "mine.py"
    path.write_text(
        "import torch\nfrom truefuse.case import Case\n"
        "def build():\n"
        "    return Case('mine', torch.relu, {'eager': torch.relu}, torch.relu, lambda *a: {})\n"
        + text
    )
    assert cases.load(str(path)).source == path


# From tables of the functions to 17 digits, not from this code.
KNOWN = {
    "none": {-10: -7.6198530241605261e-23, -2: -0.045500263896358414, 1: 0.84134474606854295},
    "tanh": {-10: -1.204092348209806e-37, -2: -0.045402305912224981, 1: 0.8411919906082767},
}


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_reference_against_known_values(bias_gelu, approximate):
    points = KNOWN[approximate]
    x = torch.tensor([[float(v) for v in points]], dtype=torch.float64)
    bias = torch.zeros(len(points), dtype=torch.float64)
    found = bias_gelu.reference(x, bias, approximate=approximate)
    exact = bias_gelu.exact({"x": x, "bias": bias}, {"approximate": approximate})
    # 0.044715 as a float64 is not 0.044715: at -10 that shows in the 14th digit.
    assert found.flatten().tolist() == pytest.approx(list(points.values()), rel=1e-13)
    assert [float(v) for v in exact] == pytest.approx(list(points.values()), rel=1e-15)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_reference_limits(bias_gelu, approximate):
    x = torch.tensor([math.inf, -math.inf, math.nan, 1e300, -1e300], dtype=torch.float64)
    found = bias_gelu.reference(x, torch.zeros_like(x), approximate=approximate).tolist()
    assert found[0] == math.inf and found[1] == 0 and math.isnan(found[2])
    assert found[3] == 1e300 and found[4] == 0


def test_exact_does_not_round_the_sum(bias_gelu):
    x = torch.tensor([1.0], dtype=torch.float64)
    bias = torch.tensor([2.0**-60], dtype=torch.float64)
    mode = {"approximate": "none"}
    with_bias = bias_gelu.exact({"x": x, "bias": bias}, mode)[0]
    without = bias_gelu.exact({"x": x, "bias": 0 * bias}, mode)[0]
    with mpmath.workdps(30):
        slope = mpmath.ncdf(1) + mpmath.npdf(1)
        assert abs((with_bias - without) / mpmath.mpf(2) ** -60 - slope) < 1e-9


def test_what_is_timed_has_been_judged(bias_gelu, tmp_path):
    assert bias_gelu.timed_dtype == torch.float32
    halves = (torch.bfloat16, torch.float16)
    assert replace(bias_gelu, dtypes=halves).timed_dtype == torch.bfloat16
    assert replace(bias_gelu, timing_dtype=torch.float16).timed_dtype == torch.float16
    file = tmp_path / "timed.py"
    file.write_text(
        "import dataclasses, torch, truefuse.case\n"
        "case = dataclasses.replace(truefuse.case.load('bias_gelu'), dtypes=(torch.float16,),\n"
        "                           timing_dtype=torch.bfloat16)\n"
    )
    with pytest.raises(cases.CaseError, match=r"timing_dtype is torch\.bfloat16, which is none of"):
        cases.load(str(file))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sweep_holds_every_finite_value(bias_gelu, dtype):
    made = bias_gelu.make_inputs(
        bias_gelu.numeric_size, dtype, CPU, torch.Generator().manual_seed(0), "sweep"
    )
    finite = torch.arange(1 << 16).sub(1 << 15).to(torch.int16).view(dtype)
    finite = finite[finite.isfinite()]
    assert set(made["x"].flatten().tolist()) == set(finite.tolist())
    assert not made["bias"].any()


@pytest.mark.parametrize("kind", ["normal", "zero_bias", "sweep"])
def test_inputs_repeat_for_a_seed(bias_gelu, kind):
    def make(seed):
        generator = torch.Generator().manual_seed(seed)
        return bias_gelu.make_inputs((4, 8), torch.float32, CPU, generator, kind)["x"]

    assert torch.equal(make(1), make(1)) and not torch.equal(make(1), make(2))


@pytest.mark.parametrize("size", [(0, 8), (3, 0), (8,), (2, 1, 3)])
def test_inputs_of_any_size(bias_gelu, size):
    for kind in bias_gelu.kinds:
        made = bias_gelu.make_inputs(size, torch.float32, CPU, torch.Generator(), kind)
        assert made["x"].shape == size and made["bias"].shape == size[-1:]
