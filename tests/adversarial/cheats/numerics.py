"""Numerics, references and tasks: results that are near enough for a careless eye."""

from __future__ import annotations

import subject
import torch
from subject import checked, swish_bias, wide

from cheats.common import Row, after, honest


def lower_precision():
    return checked(lambda x, bias: swish_bias(x.bfloat16(), bias.bfloat16()).to(x.dtype))


def double_in_single():
    """float64 computed in float32."""
    return checked(lambda x, bias: swish_bias(x.float(), bias.float()).to(x.dtype))


def zeros_where_small(result, x, bias):
    return torch.where(result.abs() < 0.01, 0.0, result)


def nine_tenths_of_a_percent(result, x, bias):
    return (result.double() * 1.009).to(result.dtype)


def one_wrong_row(result, x, bias):
    if result.dim() > 1 and len(result) > 2:
        result[1] = result[0]
    return result


def nan_becomes_zero(result, x, bias):
    return result.nan_to_num(0.0, torch.inf, -torch.inf)


def nan_at_the_end(result, x, bias):
    if result.numel() > 1:
        result.view(-1)[-1:] = torch.nan
    return result


def wrong_below_a_tile(result, x, bias):
    """Right from 128 columns on."""
    return result if x.shape[-1] >= 128 else result * 1.5


def last_tile_left_out(result, x, bias):
    tail = result.shape[-1] % 256
    if result.shape[-1] > 256 and tail:
        result[..., -tail:] = 0
    return result


def half_types_end_early(result, x, bias):
    """Where only half types are that large: an index of too few bits."""
    if result.dtype == torch.bfloat16 and result.numel() > 1 << 15:
        result.view(-1)[1 << 15 :] = 0
    return result


def noisy():
    calls = 0

    def change(result, x, bias):
        nonlocal calls
        calls += 1
        # What atomics do: a last bit of a few elements, now and then.
        if calls % 5 == 0 and result.numel() > 3:
            flat = result.view(-1)
            flat[3:4] = torch.nextafter(flat[3:4], flat[3:4] + 1)
        return result

    return after(change)()


def guesses_the_axis():
    """As many biases as rows: one for each row, it seems."""

    def candidate(x, bias):
        by_row = x.dim() == 2 and len(bias) == len(x)
        return wide(swish_bias)(x, bias[:, None] if by_row else bias)

    return checked(candidate)


def unsteady_reference():
    """What atomics in a reference do."""
    calls = 0

    def reference(x, bias):
        nonlocal calls
        calls += 1
        return subject.swish_bias_reference(x, bias) * (1 + 1e-12 * calls)

    return reference


def round_inputs(*given):
    """Multiples of 1/8: bfloat16 holds them all."""
    inputs = subject.swish_bias_inputs(*given)
    return {key: (value * 8).round() / 8 for key, value in inputs.items()}


def half_the_digits(x, bias):
    return x * torch.sigmoid((x + bias).half()).to(x.dtype)


ROWS = (
    Row(
        "mission B: float64 computed in float32",
        "numerics",
        double_in_single,
        changes=lambda: {"dtypes": (torch.float64,)},
    ),
    Row("A10 computed in lower precision", "numerics", lower_precision),
    Row(
        "N1 returns its input, inputs not negative",
        "reference",
        lambda: torch.relu,
        changes=lambda: {
            "reference": lambda x, bias: torch.relu(x),
            "baselines": {"eager": lambda x, bias: torch.relu(x)},
            "make_inputs": lambda *a: {
                k: v.abs() for k, v in subject.swish_bias_inputs(*a).items()
            },
        },
        twin=lambda: honest,
    ),
    Row(
        "N2 reference identically zero",
        "reference",
        lambda: checked(lambda x, bias: torch.zeros_like(x)),
        changes=lambda: {"reference": lambda x, bias: 0 * x * bias},
    ),
    Row(
        "N14 a reference that does not repeat itself",
        "reference",
        lambda: honest,
        changes=lambda: {"reference": unsteady_reference()},
    ),
    Row(
        "A10 inputs on which lower precision does not show",
        "reference",
        lower_precision,
        changes=lambda: {"make_inputs": round_inputs},
    ),
    Row(
        "A10 a yardstick of as few digits",
        "contract",
        lambda: checked(half_the_digits),
        changes=lambda: {"baselines": {"eager": half_the_digits}},
    ),
    Row("a bias for each row where there are as many", "edges", guesses_the_axis),
    Row("N3 zeros where values are small", "numerics", after(zeros_where_small)),
    Row("N3 NaN turned into a number", "special", after(nan_becomes_zero)),
    Row("N4/N7 0.9 % error", "numerics", after(nine_tenths_of_a_percent)),
    Row("N8 one wrong row", "numerics", after(one_wrong_row)),
    Row("N9 wrong below 128 columns", "edges", after(wrong_below_a_tile)),
    Row("N9 last partial tile left out", "edges", after(last_tile_left_out)),
    Row(
        "N11 the end of large tensors left out in half types, which are not timed",
        "measure",
        after(half_types_end_early),
        changes=lambda: {"timing_sizes": ((64, 512), (96, 512))},
    ),
    Row("pygpubench NaN as a wildcard", "edges", after(nan_at_the_end)),
    Row("S8 a last bit at random", "determinism", noisy),
)
