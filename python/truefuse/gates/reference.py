"""The case itself: a reference that says the same whatever it is given accepts everybody.

Its results must vary, depend on every floating input, be numbers, repeat themselves, leave the inputs
alone; the inputs must have both signs, or relu is the identity, and digits that a half type has not, or
nobody sees who reads them as one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Inputs, Mode
from truefuse.compare import one_thread
from truefuse.context import (
    HALF_TYPES,
    Context,
    Results,
    as_tuple,
    contents_of,
    copies,
    describe,
    is_floating,
    mode_name,
    tensors,
    widened,
)
from truefuse.gates.outputs import same_bits, same_results
from truefuse.gates.proof import Complaint, self_test_failed
from truefuse.verdict import Result, Status

NAME = "reference"
LEAST_SPREAD = 1e-4  # standard deviation of the results, as a share of the largest
HARDLY_VARIES = "a reference that hardly varies"
LEAST_CHANGED = 0.01  # share of the elements that another input has to change


@one_thread()
def run(context: Context) -> Result:
    bad = planted(context.case.reference)
    if all(tensor.numel() < 2 for tensor in _results(context).values()):
        del bad[HARDLY_VARIES]  # A single number varies from call to call.
    faults = [
        f"did not catch {name}"
        for name, reference in bad.items()
        if not examine(_with_reference(context, reference))
    ]
    if _has_floating(context) and not examine(_with_round_inputs(context)):
        faults.append("did not catch inputs of few digits")
    if faults:
        return self_test_failed(NAME, faults)
    found = examine(context)
    if found:
        return Result(
            NAME,
            Status.FAIL,
            "useless-reference",
            found.what,
            expected="a reference that varies with every input, on inputs of both signs and of all digits",
            got=found.got or found.what,
            first=found.where,
        )
    which = "floating input" if _has_floating(context) else "input"
    return Result(NAME, Status.PASS, "sensitive", f"varies, and with every {which}")


def examine(context: Context) -> Complaint | None:
    case = context.case
    for dtype in case.dtypes:
        given = context.inputs(case.medium_size, dtype, case.kinds[0], NAME)
        if not _detailed(given):
            what = "no floating input has more digits than bfloat16"
            return Complaint(f"{what}: lower precision would not show", describe(given, {}))
    for mode in case.modes:
        inputs = widened(context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME))
        where = f"{describe(inputs, mode)}"
        if not _signed(inputs):
            return Complaint("no floating input has both signs", where)
        results, disturbed = _call(context, inputs, mode)
        if disturbed:
            return Complaint(f"the reference changes '{disturbed}'", where)
        again, _ = _call(context, inputs, mode)
        if not same_results(results, again):
            return Complaint("the reference does not repeat itself", where)
        floating = [name for name, tensor in results.items() if tensor.is_floating_point()]
        for name in floating or results:  # a count beside other results may be constant
            complaint = _dull(results[name])
            if complaint:
                return Complaint(f"the reference's {name} is {complaint}", where)
        blind = _blind_to(context, inputs, mode, results)
        if blind:
            return Complaint(
                f"the reference does not depend on '{blind}' ({mode_name(mode)})", where
            )
    return None


def _results(context: Context) -> Results:
    case = context.case
    inputs = widened(context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME))
    return _call(context, inputs, case.modes[0])[0]


def _has_floating(context: Context) -> bool:
    case = context.case
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    return any(map(is_floating, inputs.values()))


def _signed(inputs: Inputs) -> bool:
    """Of integers and booleans nothing is asked: indices and packed numbers have no signs."""
    floating = [value for value in inputs.values() if is_floating(value)]
    return not floating or any(bool((value < 0).any() and (value > 0).any()) for value in floating)


def _detailed(inputs: Inputs) -> bool:
    """Whether reading the inputs as bfloat16 changes any of them, or half types is all they are."""
    wide = [v for v in inputs.values() if is_floating(v) and v.dtype not in HALF_TYPES]
    return not wide or any(
        float((value.bfloat16().to(value.dtype) != value).double().mean()) > LEAST_CHANGED
        for value in wide
    )


def _call(context: Context, inputs: Inputs, mode: Mode) -> tuple[Results, str]:
    """The results, and the name of an input that it changed though it is not declared mutated."""
    own = copies(inputs)
    results = context.named(context.case.reference(*own.values(), **mode), own)
    for name, tensor in tensors(own).items():
        if name not in context.case.mutates and not same_bits(tensor, inputs[name]):
            return results, name
    return results, ""


def _dull(tensor: Tensor) -> str:
    tensor = tensor.double()
    if not bool(tensor.isfinite().all()):
        return "not finite on finite inputs"
    if tensor.numel() < 2:
        return ""
    largest = float(tensor.abs().max())
    if float(tensor.std()) <= LEAST_SPREAD * largest:
        return f"nearly constant (standard deviation {float(tensor.std()):.3g} of {largest:.3g})"
    return ""


def _blind_to(context: Context, inputs: Inputs, mode: Mode, results: Results) -> str:
    """The first input of numbers that other contents do not change the results of."""
    case = context.case
    other = widened(context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME, "other"))
    for name, value in contents_of(inputs).items():
        if same_bits(value, other[name]):
            continue
        changed, _ = _call(context, inputs | {name: other[name]}, mode)
        moved = [float((changed[key] != results[key]).double().mean()) for key in results]
        if max(moved) < LEAST_CHANGED and not _only_written(context, name, mode):
            return name
    return ""


def _only_written(context: Context, name: str, mode: Mode) -> bool:
    """An argument that takes results, and whose old contents make no difference to eager either."""
    case = context.case
    if name not in case.mutates:
        return False
    inputs = context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME)
    cleared = inputs | {name: torch.zeros_like(inputs[name])}
    return same_results(context.eager(inputs, mode), context.eager(cleared, mode))


def _with_reference(context: Context, reference: Callable[..., Any]) -> Context:
    return replace(context, case=replace(context.case, reference=reference))


def _with_round_inputs(context: Context) -> Context:
    make = context.case.make_inputs

    def rounded(*given: Any) -> Inputs:
        inputs = make(*given)
        return {
            name: value.bfloat16().to(torch.float32) if is_floating(value) else value
            for name, value in inputs.items()
        }

    return replace(context, case=replace(context.case, make_inputs=rounded))


def _hardly(out: Tensor) -> Tensor:
    wide = out.double()
    return 1 + 1e-6 * wide / wide.abs().max().clamp(min=1)


def planted(reference: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    def changed(change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
        def planted(*given: Any, **mode: Any) -> Any:
            outputs = reference(*given, **mode)
            made = tuple(change(out) for out in as_tuple(outputs))
            return made[0] if isinstance(outputs, Tensor) else made

        return planted

    def blind(*given: Any, **mode: Any) -> Any:
        """To the first input of numbers."""
        chosen, value = next(iter(contents_of(dict(enumerate(given))).items()))
        constant = torch.zeros_like(value)
        if is_floating(value):
            constant += torch.linspace(-1, 1, value.numel()).view(value.shape)
        rest = list(given)
        rest[chosen] = constant.clone()
        outputs = reference(*rest, **mode)
        if not same_bits(rest[chosen], constant):
            value.copy_(rest[chosen])  # changed in place, it is a result
        return outputs

    return {
        "a reference of zeros": changed(torch.zeros_like),
        HARDLY_VARIES: changed(_hardly),
        "a reference with a NaN": changed(
            lambda out: out.double().masked_fill(out == out.max(), torch.nan)
        ),
        "a reference blind to an input": blind,
    }
