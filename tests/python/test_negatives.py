"""Forbidden calls of other contracts than bias_gelu's."""

import math

import pytest
import torch
from standin import tensor_argument

from truefuse.negatives import Negative, contains, negatives

CPU = torch.device("cpu")


def of(contract_arguments, inputs, mode):
    contract = {"arguments": contract_arguments}
    return {negative.rule: negative for negative in negatives(contract, inputs, mode, CPU)}


def test_every_stride_rule_of_a_contiguous_argument():
    x = tensor_argument("x", ["f32"], ["float32"], pack="rows", layout="contiguous")
    found = of([x], {"x": torch.zeros(2, 8)}, {})
    assert not found["x strided"].inputs["x"].is_contiguous()
    assert found["x strided"].inputs["x"].shape == (2, 8)
    assert found["x transposed"].inputs["x"].stride() == (1, 2)


def test_what_has_a_default_may_be_missing():
    x = tensor_argument("x", ["f32"], ["float32"])
    eps = {"name": "eps", "kind": "float", "optional": False, "range": None}
    call = ({"arguments": [x, eps]}, {"x": torch.zeros(8)}, {"eps": 1.0}, CPU)
    rules = {negative.rule for negative in negatives(*call)}
    assert {"x missing", "eps missing"} <= rules
    assert {negative.rule for negative in negatives(*call, ["eps"])} == rules - {"eps missing"}


def test_strided_argument_has_no_stride_rule():
    x = tensor_argument("x", ["f32"], ["float32"], layout="strided")
    assert not {"x strided", "x transposed"} & set(of([x], {"x": torch.zeros(8)}, {}))


def test_dtype_avoids_what_is_allowed():
    x = tensor_argument("x", ["f32", "i32"], ["float32", "int32"])
    assert of([x], {"x": torch.zeros(8)}, {})["x dtype"].inputs["x"].dtype == torch.int16


def test_dtype_of_an_argument_that_may_be_any_integer():
    names = ["int64", "int32", "int16", "int8", "uint8", "bool"]
    index = tensor_argument("index", ["i64", "i32", "i16", "i8", "u8", "bool"], names)
    found = of([index], {"index": torch.zeros(8, dtype=torch.int64)}, {})
    assert found["index dtype"].inputs["index"].dtype == torch.float32


def test_where_every_dtype_is_allowed_none_is_forbidden():
    shorts = ["i32", "i16", "i8", "f32", "c64", "bool"]
    longs = ["int32", "int16", "int8", "float32", "complex64", "bool"]
    found = of([tensor_argument("x", shorts, longs)], {"x": torch.zeros(8)}, {})
    assert found and "x dtype" not in found


def test_calls_are_made_as_all_others():
    """Inputs in their order, whatever the candidate calls them, until one is left out."""
    x = tensor_argument("x", ["f32"], ["float32"])
    y = tensor_argument("y", like="x")
    count = {"name": "n", "optional": False, "kind": "int", "low": 1, "high": 8}
    found = of([x, y, count], {"x": torch.ones(8), "y": torch.zeros(8)}, {"n": 4})

    def given(rule):
        inputs, named = found[rule].arguments()
        return [float(one.sum()) for one in inputs], sorted(named)

    assert given("y dtype") == ([8, 0], ["n"])
    assert given("n too low") == ([8, 0], ["n"])
    assert given("x missing") == ([], ["n", "y"])
    assert given("y missing") == ([8], ["n"])
    assert given("n missing") == ([8, 0], [])
    # An integer that comes with the inputs.
    found = of([x, count], {"x": torch.ones(8), "n": 4}, {})
    assert found["n too high"].arguments()[0][1] == 9
    assert list(found["n missing"].arguments()[1]) == []


def test_python_may_say_itself_that_an_argument_is_missing():
    def relu(x, y):
        raise AssertionError

    missing = of([tensor_argument("x", ["f32"], ["float32"])], {"x": torch.zeros(8)}, {})[
        "x missing"
    ]
    with pytest.raises(TypeError) as raised:
        relu(y=1)
    assert missing.complaint(raised.value, "mine::op") == ""
    assert "accepted" in missing.complaint(None, "mine::op")
    other = Negative("x dtype", "x", {}, {}, (), ())
    assert "TypeError" in other.complaint(raised.value, "mine::op")


def test_pybind11_says_it_without_names():
    words = (
        "relu(): incompatible function arguments. The following argument types are supported: ..."
    )
    missing = Negative("x missing", "x", {}, {}, ("missing",), (), omitted="x")
    assert missing.complaint(TypeError(words), "mine::relu") == ""
    assert missing.complaint(TypeError("no"), "mine::relu")
    assert Negative("x dtype", "x", {}, {}, (), ()).complaint(TypeError(words), "mine::relu")


@pytest.mark.parametrize("shape", [(4, 1), (1, 4), (1, 1), (1,)])
@pytest.mark.parametrize("layout", ["contiguous", "rows-strided"])
def test_strides_of_one_element_break_no_rule(shape, layout):
    x = tensor_argument("x", ["f32"], ["float32"], pack="rows", layout=layout)
    found = of([x], {"x": torch.zeros(shape)}, {})
    assert not any(negative.inputs["x"].is_contiguous() for negative in _of_strides(found))
    assert "x strided" not in found or shape[-1] > 1


def _of_strides(found):
    return [one for rule, one in found.items() if rule in ("x strided", "x transposed")]


def test_alignment_and_writing():
    x = {**tensor_argument("x", ["f32"], ["float32"]), "alignment": 16, "mutated": True}
    found = of([x], {"x": torch.zeros(8)}, {})
    assert found["x unaligned"].inputs["x"].data_ptr() % 16 == 4
    assert found["x overlapping"].inputs["x"].stride() == (0,)


def test_fixed_size():
    four = {"text": "4", "factor": 4, "symbols": []}
    x = {**tensor_argument("x", ["f32"], ["float32"]), "dims": [four]}
    found = of([x], {"x": torch.zeros(4)}, {})
    assert [found[f"x {rule}"].inputs["x"].numel() for rule in ("short", "long", "of one")] == [
        *(3, 5, 1)
    ]


def test_optional_argument_may_be_missing():
    x = {**tensor_argument("x", ["f32"], ["float32"]), "optional": True}
    assert "x missing" not in of([x], {"x": torch.zeros(8)}, {})


def test_scalars():
    count = {"name": "n", "optional": False, "kind": "int", "low": 1, "high": 8}
    eps = {
        "name": "eps",
        "optional": False,
        "kind": "float",
        "range": {"low": 0, "low_open": True, "high": None, "high_open": True},
    }
    free = {"name": "scale", "optional": False, "kind": "float", "range": None}
    found = of([count, eps, free], {}, {"n": 4, "eps": 0.5, "scale": 1.0})
    assert found["n too low"].mode["n"] == 0
    assert found["n too high"].mode["n"] == 9
    assert found["eps too low"].mode["eps"] == -1
    assert math.isnan(found["eps NaN"].mode["eps"])
    assert not {"eps too high", "scale NaN"} & set(found)


@pytest.mark.parametrize(
    ("error", "part"),
    [
        (None, "accepted"),
        (ValueError("op: x is 7; 8 is wanted"), "ValueError"),
        (RuntimeError("x is 7; 8 is wanted"), "the operator"),
        (RuntimeError("op: expected 7; 8 is wanted"), "the argument"),
        (RuntimeError("op: x is wrong; 8 is wanted"), "what x is"),
        (RuntimeError("op: x is 7, which is wrong"), "what is wanted"),
    ],
)
def test_complaint_says_what_is_missing(error, part):
    negative = Negative("x short", "x", {}, {}, ("7",), ("8",))
    assert part in negative.complaint(error, "mine::op")


def test_complaint_accepts_a_sentence_with_everything():
    negative = Negative("x short", "x", {}, {}, ("7",), ("8",))
    assert negative.complaint(RuntimeError("op: x has 7 elements; hidden is 8."), "mine::op") == ""


@pytest.mark.parametrize(
    ("text", "word", "found"),
    [("has 17", "7", False), ("has 7.", "7", True), ("expected", "x", False), ("[7]", "[7]", True)],
)
def test_contains_whole_words(text, word, found):
    assert contains(text, word) is found
