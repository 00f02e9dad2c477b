"""Units in the last place and binades against numpy; classes of values."""

import math

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from truefuse import accuracy, compare
from truefuse.compare import Reference
from truefuse.gates import edges

NUMPY = {torch.float16: numpy.float16, torch.float32: numpy.float32, torch.float64: numpy.float64}
DTYPES = [*NUMPY, torch.bfloat16]


def wide(*values):
    return torch.tensor(values, dtype=torch.float64)


def reference(*values, dtype=torch.float32):
    high = wide(*values)
    return Reference(high, dtype)


@pytest.mark.parametrize("dtype", NUMPY)
@given(data=st.data())
def test_ulp_is_numpys_spacing(dtype, data):
    kind = NUMPY[dtype]
    width = numpy.dtype(kind).itemsize * 8
    value = data.draw(st.floats(width=width, allow_nan=False, allow_infinity=False))
    spacing = float(numpy.spacing(kind(abs(value))))
    if not math.isfinite(spacing) or spacing > float(numpy.finfo(kind).max) * 1e-2:
        spacing = float(kind(abs(value)) - numpy.nextafter(kind(abs(value)), kind(0)))
    assert float(compare.ulp(wide(value), dtype)[0]) == spacing


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat16_ulp_is_65536_float32_ulps(value):
    single = float(compare.ulp(wide(value), torch.float32)[0])
    assert float(compare.ulp(wide(value), torch.bfloat16)[0]) == single * 65536


@pytest.mark.parametrize("dtype", NUMPY)
@given(data=st.data())
def test_neighbours_are_one_ulp_apart(dtype, data):
    kind = NUMPY[dtype]
    width = numpy.dtype(kind).itemsize * 8
    value = kind(data.draw(st.floats(0, width=width, allow_infinity=False)))
    neighbour = float(numpy.nextafter(value, kind(numpy.inf)))
    if not math.isfinite(neighbour):
        return
    found = compare.errors(
        torch.tensor([neighbour], dtype=dtype), reference(float(value), dtype=dtype)
    )
    assert found.ulps.item() == 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_binade(dtype):
    lowest = compare.minimum_exponent(dtype)
    values = wide(1.0, 1.99, 2.0, -0.75, 0.0, 2.0 ** (lowest - 1), 2.0**lowest, math.inf, math.nan)
    expected = [0, 0, 1, -1, lowest, lowest, lowest, lowest, lowest]
    assert compare.binade(values, dtype).tolist() == expected


def test_power_of_two_is_exact_over_the_whole_range():
    exponents = torch.arange(-1074, 1024)
    assert compare.power_of_two(exponents).tolist() == [math.ldexp(1.0, int(e)) for e in exponents]


@pytest.mark.parametrize("dtype", DTYPES)
def test_precision(dtype):
    expected = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
    assert compare.precision(dtype) == expected[dtype]


@pytest.mark.parametrize(
    ("got", "want", "wrong"),
    [
        (math.nan, math.nan, False),
        (math.nan, 1.0, True),
        (1.0, math.nan, True),
        (math.inf, math.inf, False),
        (-math.inf, math.inf, True),
        (math.inf, 1.0, True),
        (1.0, math.inf, True),
        (math.inf, 1e39, False),  # rounds to infinity in float32
        (3.4e38, 1e39, False),  # finite neighbour: an error in ulps instead
    ],
)
def test_classes(got, want, wrong):
    found = compare.errors(torch.tensor([got], dtype=torch.float32), reference(want))
    assert found.wrong_class.tolist() == [wrong]
    assert math.isinf(found.ulps.item()) == wrong


def test_low_part_of_the_reference_counts():
    exact = Reference(wide(1.0), torch.float64, low=wide(2.0**-54))
    found = compare.errors(wide(1.0 + 2.0**-52), exact)
    assert found.ulps.item() == 0.75


def test_summary_places_the_worst_element():
    truth = reference(*[1.0, 1.5, 4.0, 5.0])
    got = torch.tensor([[1.0, 1.5], [4.0, 5.0 + 2**-20]], dtype=torch.float32)
    truth = Reference(truth.high.view(2, 2), torch.float32)
    summary = compare.summarise(compare.errors(got, truth))
    offset = -compare.minimum_exponent(torch.float32)
    assert summary.binade_max[offset].item() == 0
    assert summary.binade_max[offset + 2].item() == 2
    assert summary.binade_max[offset + 1].item() == -1
    assert summary.binade_count[offset].item() == 2
    assert summary.row_max.tolist() == [0, 2**-20]
    assert summary.rmse == pytest.approx(2**-21)


@given(st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=20))
def test_root_mean_square(values):
    found = compare.root_mean_square(wide(*values))
    want = math.sqrt(math.fsum((v / 1e150) ** 2 for v in values) / len(values)) * 1e150
    assert found == pytest.approx(want, rel=1e-6, abs=1e-12)


def test_root_mean_square_does_not_overflow():
    assert compare.root_mean_square(wide(1e300, 1e300)) == pytest.approx(1e300)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"\[2\], not \[1\]"):
        compare.errors(torch.zeros(2), reference(0.0))


def test_index_of():
    assert compare.index_of(17, torch.Size([2, 3, 4])) == [1, 1, 1]


@pytest.mark.parametrize(
    ("values", "largest"),
    [
        ([2.0, -3.0], 3.0),
        ([2.0, 3.0], 3.0),
        ([-2.0, -3.0], 3.0),
        ([math.nan, 2.0, -3.0], 3.0),
        ([-math.inf, 2.0], 2.0),
        ([math.inf, -2.0, math.nan], 2.0),
        ([-0.0], 0.0),
        ([], 0.0),
    ],
)
def test_the_largest_finite_value(values, largest):
    assert edges._largest(wide(*values)) == largest


def decided_by_a_rounding(count, where, dtype=torch.int64):
    """Integers of which one is 3 or 5 for inputs nearby."""
    high = torch.zeros(count, dtype=torch.float64)
    nearby = [high.clone(), high.clone()]
    nearby[0][where], nearby[1][where] = 3, 5
    return Reference(high, dtype, nearby=lambda: nearby)


def test_an_integer_may_be_what_inputs_nearby_give():
    judged = decided_by_a_rounding(400, 7)
    for value, wrong in ((0, 0), (3, 0), (5, 0), (4, 1), (6, 1)):
        got = torch.zeros(400, dtype=torch.int64)
        got[7] = value
        assert compare.errors(got, judged).absolute[7] == wrong
    elsewhere = torch.zeros(400, dtype=torch.int64)
    elsewhere[8] = 3
    assert compare.errors(elsewhere, judged).absolute[8] == 3


def test_where_too_much_is_undecided_nothing_is_excused():
    judged = decided_by_a_rounding(400, slice(0, 5))
    got = torch.zeros(400, dtype=torch.int64)
    got[0] = 3
    assert judged.undecided is None and compare.errors(got, judged).absolute[0] == 3


SHAPES = ((), (0,), (1,), (3,), (1, 3), (2, 1), (2, 3), (4, 2, 3), (4, 1, 1))


@pytest.mark.parametrize("to", SHAPES)
def test_broadcasts_is_pytorchs(to):
    for shape in SHAPES:
        try:
            expected = torch.broadcast_shapes(shape, to) == to
        except RuntimeError:
            expected = False
        assert accuracy.broadcasts(torch.empty(shape), torch.Size(to)) == expected, shape
