"""Special values against mathematics: zeros, infinities, NaN, huge and subnormal numbers; and the inputs as
they come at other magnitudes, or with padding, one sign or order in them, where the yardstick is near mathematics.

Each goes through every floating argument, the other ones being zero, where a sum shows it, and, of an
operator that works element by element, one, where a product does. Gradients too, where the case says what they are in the limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse import compare, contents, derivatives
from truefuse.accuracy import broadcasts
from truefuse.case import Inputs, Mode
from truefuse.compare import Reference
from truefuse.context import (
    CandidateRaised,
    Context,
    Results,
    as_tuple,
    describe,
    is_floating,
    mode_name,
    short,
    tensors,
)
from truefuse.gates.edges import coarse_error, longer_rows
from truefuse.gates.proof import Complaint, self_test_failed, with_candidate
from truefuse.verdict import Result, Status

NAME = "special"
# Beside zeros nothing is left but the value itself. Beside ones the rest of the operator counts too, and
# its accuracy is the business of other gates; what is flushed or overflows is further off than this.
ALLOWED_ULPS = {0.0: 2.0, 1.0: 16.0}
SHOWN = 6  # of the values that a result has seen
MAGNITUDES = (-10, -5, 4, 8)  # powers of two


def special_values(dtype: torch.dtype, largest: float = math.inf) -> list[float]:
    info = torch.finfo(dtype)
    smallest = info.smallest_normal * info.eps
    largest = min(info.max, largest)
    return [
        *(0.0, -0.0, math.inf, -math.inf, math.nan),
        *(largest, -largest, largest / 1024, -largest / 1024),
        *(info.smallest_normal, -info.smallest_normal),
        # Ones between them: halves of one tensor are multiplied with their neighbours in this list.
        *(2 * smallest, -2 * smallest, 1.0, 1000 * smallest, 1.0, info.smallest_normal / 2),
    ]


@dataclass(frozen=True)
class Tried:
    """One call, or its gradients, at special values of `name`."""

    name: str
    inputs: Inputs
    mode: Mode
    rest: float  # what the other arguments are
    what: str = ""  # "gradient "

    def references(self, context: Context) -> dict[str, Reference]:
        if not self.what:
            return context.reference(self.inputs, self.mode)
        wanted, sent = context.case.gradients, _ones(context, self.inputs, self.mode)
        return derivatives.mathematics(context, self.inputs, self.mode, wanted, sent)

    def yardstick(self, context: Context) -> Results:
        if not self.what:
            return context.yardstick(self.inputs, self.mode)
        wanted, sent = context.case.gradients, _ones(context, self.inputs, self.mode)
        return derivatives.yardstick(context, self.inputs, self.mode, wanted, sent)

    def results(self, context: Context) -> Results:
        if not self.what:
            return context.candidate(self.inputs, self.mode)
        wanted, sent = context.case.gradients, _ones(context, self.inputs, self.mode)
        try:
            return derivatives.of_candidate(context, self.inputs, self.mode, wanted, sent)
        except Exception as error:
            where = f"gradient of {describe(self.inputs, self.mode)}"
            raise CandidateRaised(f"{type(error).__name__}: {error} [{where}]") from error


def _ones(context: Context, inputs: Inputs, mode: Mode) -> tuple[Tensor, ...]:
    return tuple(torch.ones_like(one) for one in derivatives.incoming(context, inputs, mode))


def run(context: Context) -> Result:
    case = context.case
    plain = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    if not any(map(is_floating, plain.values())):
        return Result(
            NAME, Status.PASS, "no-floating-input", "no input is a floating number: none is special"
        )
    faults = self_test(context)
    if faults:
        return self_test_failed(NAME, faults)
    calls, shared = 0, 0
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            tried = [(one, one.results(context)) for one in trials(context, dtype, mode)]
            calls += len(tried)
            failure, as_yardstick = _judge(context, tried)
            if failure:
                return failure
            shared += as_yardstick
    found = other_magnitudes(context) or other_contents(context)
    if found:
        return Result(
            NAME,
            Status.FAIL,
            "other-inputs",
            found.what,
            expected="a result near mathematics, as the yardstick's is there",
            got=found.got,
            first=found.where,
        )
    sizes = ", ".join(str(list(size)) for size in context.case.special_sizes)
    gradients = " and their gradients" if _has_gradients(context) else ""
    huge = "huge" if context.case.largest == math.inf else f"{context.case.largest:g}"
    as_where = f" but for {shared}, as the yardstick has them" if shared else ""
    return Result(
        NAME,
        Status.PASS,
        "as-mathematics",
        f"±0 ±inf NaN ±{huge} ±subnormal at sizes {sizes}: {calls} calls{gradients} as in mathematics{as_where}",
        numbers={"calls": calls, "as_yardstick": shared},
    )


@compare.one_thread()
def _judge(context: Context, tried: list[tuple[Tried, Results]]) -> tuple[Result | None, int]:
    """What is wrong; and how many calls are right but for elements that the yardstick has too."""
    shared = 0
    for one, results in tried:
        references = one.references(context)
        complaint = complaint_about(one, references, results)
        if complaint:
            # The yardstick costs a call, so it is asked only where something seems wrong.
            complaint = complaint_about(one, references, results, one.yardstick(context))
            shared += complaint is None
        if complaint:
            expected, got, value = complaint
            if context.case.largest == math.inf and _overflows(one, got):
                got += (
                    " (where a square, a product or a sum on the way overflows, the case can say up to which "
                    "magnitude the operator is for: `largest`)"
                )
            dtype = short(one.inputs[one.name].dtype)
            others = sum(is_floating(tensor) for tensor in one.inputs.values()) > 1
            beside = f" beside {one.rest:g}" if others else ""
            where = f"{one.name}={value}{beside}, {dtype} {mode_name(one.mode)}"
            return Result(
                NAME,
                Status.FAIL,
                "special-gradient" if one.what else "special-value",
                f"wrong {one.what}at {where}",
                expected=expected,
                got=got,
                first=f"{where}, {one.what}{describe(one.inputs, one.mode)}",
            ), shared
    return None, shared


def _overflows(one: Tried, got: str) -> bool:
    """No number, where huge ones were given."""
    tensor = one.inputs[one.name]
    huge = tensor.isfinite() & (tensor.abs() >= torch.finfo(tensor.dtype).max / 2048)
    return not math.isfinite(float(got)) and bool(huge.any())


def other_magnitudes(context: Context) -> Complaint | None:
    """Whoever knows what the inputs are like computes what is enough for them."""
    for power, inputs, mode in _scaled(context):
        complaint = coarse_error(context, inputs, mode, context.candidate(inputs, mode))
        if complaint:
            what = f"wrong on inputs that are 2^{power} times as large"
            return Complaint(what, describe(inputs, mode), got=complaint)
    return None


def _scaled(context: Context) -> Iterator[tuple[int, Inputs, Mode]]:
    """Where the yardstick is near mathematics: not out of the domain of the operator, or of its dtype."""
    case = context.case
    for dtype in case.dtypes:
        usual = context.inputs(case.small_size, dtype, case.kinds[0], NAME, "magnitude")
        for power in MAGNITUDES:
            inputs = {k: v * 2.0**power if is_floating(v) else v for k, v in usual.items()}
            for mode in case.modes:
                if not coarse_error(context, inputs, mode, context.yardstick(inputs, mode)):
                    yield power, inputs, mode


def other_contents(context: Context) -> Complaint | None:
    """Whoever knows what is in the inputs leaves out what makes no difference there."""
    for label, inputs, mode in _patterned(context):
        complaint = coarse_error(context, inputs, mode, context.candidate(inputs, mode))
        if complaint:
            where = f"{label}: {describe(inputs, mode)}"
            return Complaint(f"wrong on other contents: {label}", where, got=complaint)
    return None


def _patterned(context: Context) -> Iterator[tuple[str, Inputs, Mode]]:
    """Where the yardstick is near mathematics: not out of the domain of the operator."""
    case = context.case
    mode = case.modes[0]
    sizes = [(case.medium_size, dtype) for dtype in case.dtypes]
    # What a row is worked on in parts for depends on its length.
    sizes += [(size, case.dtypes[0]) for size in longer_rows(case)[-1:]]
    for size, dtype in sizes:
        usual = context.inputs(size, dtype, case.kinds[0], NAME, "contents")
        for label, inputs in contents.others(usual):
            if not coarse_error(context, inputs, mode, context.yardstick(inputs, mode)):
                yield label, inputs, mode


def _padding_left_out(context: Context) -> Callable[..., Any]:
    """For padding is taken what begins with zeros."""
    good = context.good

    def candidate(*given: Any, **mode: Any) -> Any:
        floating = [value for value in given if is_floating(value)]
        padded = any(not bool(value.flatten()[:2].any()) for value in floating)
        outputs = good(*given, **mode)
        made = tuple(compare.another(out) if padded else out for out in as_tuple(outputs))
        return made[0] if isinstance(outputs, Tensor) else made

    return candidate


def _zeros_beyond_the_usual(context: Context) -> Callable[..., Any]:
    good, case = context.good, context.case
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME, "magnitude")
    usual = _largest(inputs.values())

    def candidate(*given: Any, **mode: Any) -> Any:
        within = usual / 2 < _largest(given) < 2 * usual
        outputs = good(*given, **mode)
        made = tuple(out if within else torch.zeros_like(out) for out in as_tuple(outputs))
        return made[0] if isinstance(outputs, Tensor) else made

    return candidate


def _largest(given: Iterable[Any]) -> float:
    return max((float(v.abs().max()) for v in given if is_floating(v) and v.numel()), default=0.0)


def _has_gradients(context: Context) -> bool:
    return bool(context.case.gradients) and context.case.reference_gradients is not None


def trials(
    context: Context, dtype: torch.dtype, mode: Mode, singles: bool = True
) -> Iterator[Tried]:
    """Calls, and gradients of those of several elements; `singles`: calls of one element as well."""
    for name, inputs, rest in special_inputs(context, dtype):
        is_single = inputs[name].numel() == 1
        if singles or not is_single:
            yield Tried(name, inputs, mode, rest)
        if _has_gradients(context) and not is_single:
            yield Tried(name, inputs, mode, rest, "gradient ")


def special_inputs(context: Context, dtype: torch.dtype) -> Iterator[tuple[str, Inputs, float]]:
    """(argument, inputs, what the others are): its elements walk through the special values."""
    for size in context.case.special_sizes:
        template = context.inputs(size, dtype, context.case.kinds[0], NAME)
        floating = [tensor for tensor in template.values() if is_floating(tensor)]
        others = len(floating) > 1 and _is_elementwise(context, template, floating)
        for name, tensor in template.items():
            if not is_floating(tensor) or not tensor.numel():
                continue
            values = torch.tensor(special_values(tensor.dtype, context.case.largest)).double()
            # In a single element only the first value would be seen: start at each value in turn.
            for start in range(len(values)) if tensor.numel() == 1 else (0, 3):
                for rest in (0.0, 1.0) if others else (0.0,):
                    yield name, _filled(template, name, values.roll(-start), rest), rest


def _is_elementwise(context: Context, template: Inputs, floating: list[Tensor]) -> bool:
    """Where an element of the result sees one of each input. Elsewhere a special value meets others of
    its kind, and what ones make of them is no limit of anything."""
    results = context.reference(template, context.case.modes[0])
    shape = next(iter(results.values())).high.shape
    return all(broadcasts(tensor, shape) for tensor in floating)


def _filled(template: Inputs, chosen: str, values: Tensor, rest: float) -> Inputs:
    filled = {k: torch.full_like(v, rest) if is_floating(v) else v for k, v in template.items()}
    target = filled[chosen]
    repeated = values.repeat(target.numel() // len(values) + 1)[: target.numel()]
    target.copy_(repeated.reshape(target.shape))
    return filled


def complaint_about(
    one: Tried, references: dict[str, Reference], results: Results, yardstick: Results | None = None
) -> tuple[str, str, str] | None:
    """(expected, got, special values) of the first wrong element. Where the yardstick is wrong in the same way, as
    every root of a mean of squares is where these overflow, nothing changes for whoever replaces it."""
    anything = "special values"
    if list(results) != list(references):
        return ", ".join(references), ", ".join(results), anything
    for name, reference in references.items():
        result = results[name]
        if result.shape != reference.high.shape:
            return f"shape {list(reference.high.shape)}", f"shape {list(result.shape)}", anything
        found = compare.errors(result, reference)
        allowed = ALLOWED_ULPS[one.rest] if result.is_floating_point() else reference.slack
        wrong = found.wrong_class | ~(found.ulps <= allowed)
        if yardstick is not None:
            wrong &= ~_alike(result, yardstick[name])
        if wrong.any():
            position = int(wrong.flatten().to(torch.int8).argmax())
            want = float(reference.rounded.flatten()[position])
            got = float(result.flatten()[position])
            return f"{want!r}", f"{got!r}", _seen_by(one, wrong.shape, position)
    return None


def _alike(result: Tensor, other: Tensor) -> Tensor:
    """Where both have the same number, or none."""
    result, other = (one.detach().cpu().double() for one in (result, other))
    return (result == other) | (result.isnan() & other.isnan())


def _seen_by(one: Tried, shape: torch.Size, position: int) -> str:
    """The special value that went into this element of a result; of a reduction, those of its row."""
    tensor = one.inputs[one.name]
    if broadcasts(tensor, shape):
        return repr(float(tensor.broadcast_to(shape).flatten()[position]))
    reduced = tensor.shape[: len(shape)] == shape
    seen = tensor.reshape(shape.numel(), -1)[position] if reduced else tensor.flatten()
    values = list(dict.fromkeys(map(repr, seen.tolist())))
    if len(values) == 1:
        return values[0]
    return f"[{', '.join(values[:SHOWN])}{', …' if len(values) > SHOWN else ''}]"


@compare.one_thread()
def self_test(context: Context) -> list[str]:
    faults = []
    mode = context.case.modes[0]
    planted = with_candidate(context, _zeros_beyond_the_usual(context))
    if next(_scaled(context), None) and not other_magnitudes(planted):
        faults.append("did not catch zeros beyond the usual magnitude")
    planted = with_candidate(context, _padding_left_out(context))
    if next(_patterned(context), None) and not other_contents(planted):
        faults.append("did not catch padding left out")
    for dtype in context.case.dtypes:
        seen: dict[str, tuple[bool, bool]] = {}  # (the fault changes something, it is caught)
        for one in trials(context, dtype, mode, singles=False):
            references = one.references(context)
            right = {name: reference.rounded for name, reference in references.items()}
            if complaint_about(one, references, right):
                faults.append(f"turned away mathematics rounded once ({one.what}{short(dtype)})")
                break
            for fault, results in _planted(context, one, right).items():
                changes = any(_differs(results[name], references[name]) for name in right)
                caught = complaint_about(one, references, results) is not None
                before = seen.get(fault, (False, False))
                seen[fault] = (before[0] or changes, before[1] or caught)
        faults += [
            f"did not catch '{fault}' ({short(dtype)})"
            for fault, (changes, caught) in seen.items()
            if changes and not caught
        ]
        is_number = any(one.dtype.is_floating_point for one in references.values())
        if is_number and not any(changes for changes, _ in seen.values()):
            faults.append(f"nothing to plant: no result is special ({short(dtype)})")
    return faults


def _planted(context: Context, one: Tried, right: Results) -> dict[str, Results]:
    """What common mistakes make of the first result."""
    name, out = next(((k, v) for k, v in right.items() if is_floating(v)), ("", None))
    if out is None:
        return {"another number": {key: compare.another(value) for key, value in right.items()}}
    smallest = torch.finfo(out.dtype).smallest_normal
    flushed = {
        k: v.masked_fill(v.abs() < torch.finfo(v.dtype).smallest_normal, 0.0)
        if is_floating(v)
        else v
        for k, v in one.inputs.items()
    }
    unseen = Tried(one.name, flushed, one.mode, one.rest, one.what).references(context)
    spoilt = {
        "NaN turned into 0": out.nan_to_num(0.0, math.inf, -math.inf),
        "-inf as inf * 0": _nan_where(one.inputs, out, lambda v: v == -math.inf),
        "NaN from a square that overflows": _nan_where(
            one.inputs, out, lambda v: v.isfinite() & (v.abs() > torch.finfo(v.dtype).max / 2)
        ),
        "subnormals lost": out.masked_fill(out.abs() < smallest, 0.0),
    }
    return {
        **{one.what + fault: right | {name: result} for fault, result in spoilt.items()},
        f"{one.what}subnormal inputs taken as 0": {k: ref.rounded for k, ref in unseen.items()},
    }


def _differs(one: Tensor, reference: Reference) -> bool:
    """In value: zeros of both signs are one, and so are NaNs. Of an integer only where mathematics has a number."""
    other, asked = reference.rounded, reference.high.isfinite()
    asked |= torch.tensor(reference.dtype.is_floating_point)
    return bool(((one != other) & ~(one.isnan() & other.isnan()) & asked).any())


def _nan_where(inputs: Inputs, right: Tensor, hit: Callable[[Tensor], Tensor]) -> Tensor:
    where = torch.zeros(right.shape, dtype=torch.bool)
    for tensor in tensors(inputs).values():
        if tensor.is_floating_point() and broadcasts(tensor, right.shape):
            where |= hit(tensor.cpu()).broadcast_to(right.shape)
    return right.masked_fill(where, math.nan)
