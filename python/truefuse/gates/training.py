"""Where gradients are asked for: there for every layout, for every choice of inputs and as often as they are
asked for, or refused in words. Never silence. How accurate they are is the business of the gradients gate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truefuse import derivatives
from truefuse.case import Case, Inputs, Mode
from truefuse.compare import one_thread
from truefuse.context import (
    CandidateRaised,
    Context,
    as_tuple,
    describe,
    is_floating,
    outputs_by_name,
)
from truefuse.derivatives import REFUSAL, Missing
from truefuse.gates.edges import coarse_error, excused, far
from truefuse.gates.outputs import autocast
from truefuse.gates.proof import Complaint, self_test_failed, with_candidate
from truefuse.variants import Variant, variants
from truefuse.verdict import Result, Status

NAME = "training"
CONTIGUOUS = "an incoming gradient read as if contiguous"
SECOND = "second derivatives are silently missing"
CHANGED = "what a pass backward needs kept where its change is not seen"
NOT_BY_SENT = "an incoming gradient taken for a constant"
WRONG_SECOND = "second derivatives are not the yardstick's"
Gradient = Any  # tensors, or what makes a scalar of the outputs


@dataclass
class Notes:
    """What was found to be right."""

    given: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def run(context: Context) -> Result:
    if not _floating(context):
        return Result(
            NAME, Status.PASS, "no-derivative", "no result is a floating number: nothing to derive"
        )
    if not derivatives.names(context, _plain(context)):
        return Result(
            NAME,
            Status.PASS,
            "no-derivative",
            "no input is a floating number: nothing to derive by",
        )
    mutates = bool(context.case.mutates)
    if mutates:
        context = _functional(context)
    faults = self_test(context, mutates)
    if faults:
        return self_test_failed(NAME, faults)
    notes = Notes()
    found = examine(context, notes)
    if found:
        return Result(
            NAME,
            Status.FAIL,
            "gradient-error",
            found.what,
            expected="gradients of mathematics, or a RuntimeError that says there are none",
            got=found.got or found.what,
            first=found.where,
        )
    refused = "; ".join(f"{what}: {text}" for what, text in notes.refused.items())
    if not notes.given:
        return Result(
            NAME, Status.PASS, "refused", f"refused: {next(iter(notes.refused.values()))}"
        )
    return Result(
        NAME,
        Status.PASS,
        "gradients-or-refusal",
        f"gradients for {len(dict.fromkeys(notes.given))} layouts and choices of inputs"
        + (" · some refused in words" if refused else ""),
        lines=[f"gives    {', '.join(dict.fromkeys(notes.given))}"]
        + ([f"refuses  {refused}"] if refused else []),
    )


def _floating(context: Context) -> tuple[Tensor, ...]:
    """Gradients of the results that have one."""
    return derivatives.incoming(context, _plain(context), context.case.modes[0])


def _plain(context: Context) -> Inputs:
    case = context.case
    return context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)


@one_thread()
def self_test(context: Context, mutates: bool) -> list[str]:
    bad = planted(context.good)
    if mutates:
        # What eager overwrites it can seldom differentiate: silence is what can be planted.
        bad = dict([next(iter(bad.items()))])
    else:
        if not _has_second(context):
            del bad[SECOND]  # Leaving out what is zero is no mistake.
        if not _changes_with_sent(context):
            del bad[NOT_BY_SENT]
        if not _floating(context)[0].dim():
            del bad[CONTIGUOUS]  # A single number has no strides.
    faults = [
        f"did not catch {name}"
        for name, candidate in bad.items()
        if not examine(with_candidate(context, candidate), Notes())
    ]
    complaint = examine(with_candidate(context, context.good), Notes())
    if complaint:
        faults.append(f"turned away a good candidate: {complaint.text()}{_advice(context)}")
    return faults


def _advice(context: Context) -> str:
    """Of a gradient whose summands cancel, as in a normalised row of one element, eager too has few digits."""
    if context.case.gradient_scale is not None:
        return ""
    return (
        "; where the summands of a gradient cancel, the case can give their size: `gradient_scale`"
    )


def examine(context: Context, notes: Notes) -> Complaint | None:
    """Small calls: each dtype plain, then every layout in float64 or the first dtype."""
    case = context.case
    best = _best(case)
    for mode in case.modes:
        for dtype in case.dtypes:
            plain = context.inputs(case.small_size, dtype, case.kinds[0], NAME)
            found = _compare(context, f"{dtype}", plain, mode, None, None, notes)
            found = found or _forward(context, plain, mode)
            if found:
                return found
            if notes.refused and not notes.given:
                break  # no derivative at all: nothing more to see
        if notes.refused and not notes.given:
            if case.gradients:
                text = next(iter(notes.refused.values()))
                return Complaint("declared gradients are refused", describe(plain, mode), got=text)
            continue
        plain = context.inputs(case.small_size, best, case.kinds[0], NAME)
        for found in (
            *_choices(context, plain, mode, notes),
            *_incoming_layouts(context, plain, mode, notes),
            *_input_layouts(context, best, mode, notes),
        ):
            if found:
                return found
        found = (
            _again(context, plain, mode, notes)
            or _changed_between(context, plain, mode)
            or _in_autocast(context, mode, notes)
            or _second(context, plain, mode, notes)
            or _second_right(context, plain, mode, notes)
        )
        if not found and best == torch.float64:
            found = _gradcheck(context, plain, mode)
        if found:
            return found
    return None


def _best(case: Case) -> torch.dtype:
    return torch.float64 if torch.float64 in case.dtypes else case.dtypes[0]


def _changes_with_sent(context: Context) -> bool:
    """Whether the yardstick records how its gradients change with the incoming ones; where `_has_second` looks."""
    case, mode = context.case, context.case.modes[0]
    plain = context.inputs(case.small_size, _best(case), case.kinds[0], NAME)
    sent = derivatives.incoming(context, plain, mode)
    try:
        found = derivatives.second(
            context.good, plain, mode, derivatives.names(context, plain), sent
        )
    except RuntimeError:
        return False
    return any(bool(t.any()) for label, t in found.items() if label.startswith(derivatives.BY_SENT))


def _compare(
    context: Context,
    what: str,
    inputs: Inputs,
    mode: Mode,
    wanted: tuple[str, ...] | None,
    sent: tuple[Tensor, ...] | None,
    notes: Notes,
    through: Callable[[tuple[Tensor, ...]], Tensor] | None = None,
) -> Complaint | None:
    """One call: right, refused in words, or a complaint."""
    wanted = wanted or derivatives.names(context, inputs)
    sent = sent or derivatives.incoming(context, inputs, mode)
    where = f"{what}: {describe(inputs, mode)}"
    try:
        got = derivatives.of_candidate(context, inputs, mode, wanted, through or sent)
    except Missing as missing:
        return Complaint(str(missing), where)
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if REFUSAL.search(text):
            notes.refused[what] = text
            return None
        return Complaint(f"raises without a word of gradients: {text}", where)
    references = derivatives.mathematics(
        context, inputs, mode, derivatives.names(context, inputs), sent
    )
    for key, tensor in got.items():
        largest = max((float(one.abs().max()) for one in sent if one.numel()), default=0.0)
        if tensor.dtype != references[key].dtype:
            return Complaint(f"{key} is {tensor.dtype}, not {references[key].dtype}", where)
        complaint = far(tensor, references[key], largest)
        if complaint:
            every = derivatives.names(context, inputs)
            theirs = derivatives.yardstick(context, inputs, mode, every, sent)[key]
            if not excused(context, inputs, tensor, theirs, references[key], largest):
                return Complaint(f"{key} is wrong: {complaint}", where)
    notes.given.append(what)
    return None


def _forward(context: Context, plain: Inputs, mode: Mode) -> Complaint | None:
    """The results are right where gradients are recorded too."""
    wanted = derivatives.names(context, plain)
    try:
        with context.running():
            results = derivatives.forward(context.case.candidate, plain, mode, wanted)
        context.synchronize()
    except RuntimeError:
        return None  # refused, or complained of already
    complaint = coarse_error(context, plain, mode, outputs_by_name(results))
    if complaint:
        where = describe(plain, mode)
        return Complaint("wrong results where gradients are recorded", where, got=complaint)
    return None


def _choices(
    context: Context, plain: Inputs, mode: Mode, notes: Notes
) -> Iterator[Complaint | None]:
    """Each input alone, as where the others are frozen."""
    every = derivatives.names(context, plain)
    for name in every if len(every) > 1 else ():
        yield _compare(context, f"only {name}", plain, mode, (name,), None, notes)


def _incoming_layouts(
    context: Context, plain: Inputs, mode: Mode, notes: Notes
) -> Iterator[Complaint | None]:
    sent = derivatives.incoming(context, plain, mode)
    for label, first in derivatives.layouts(sent[0]).items():
        here = (first, *sent[1:])
        yield _compare(context, f"incoming {label}", plain, mode, None, here, notes)
    ones = tuple(torch.ones_like(one) for one in sent)
    sums = lambda outputs: sum(out.sum() for out in outputs)  # noqa: E731
    yield _compare(context, "through sum()", plain, mode, None, ones, notes, through=sums)


def _input_layouts(
    context: Context, dtype: torch.dtype, mode: Mode, notes: Notes
) -> Iterator[Complaint | None]:
    if context.contract is None:
        return
    for variant in variants(context, context.contract, dtype):
        if not (variant.may_refuse and _refused(context, variant, mode)):
            yield _compare(context, variant.label, variant.inputs, mode, None, None, notes)


def _refused(context: Context, variant: Variant, mode: Mode) -> bool:
    try:
        context.case.candidate(*variant.inputs.values(), **mode)
    except RuntimeError:
        return True
    return False


def _again(context: Context, plain: Inputs, mode: Mode, notes: Notes) -> Complaint | None:
    """A second pass backward through the same graph says what the first did, and changes it not."""
    wanted = derivatives.names(context, plain)
    sent = derivatives.incoming(context, plain, mode)
    where = f"twice through one graph: {describe(plain, mode)}"
    try:
        with context.running():
            passes = derivatives.passes(context.case.candidate, plain, mode, wanted, sent, count=2)
            first = next(passes)
            kept = {key: tensor.clone() for key, tensor in first.items()}
            second = next(passes)
        context.synchronize()
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if not REFUSAL.search(text):
            return Complaint(f"raises without a word of gradients: {text}", where)
        notes.refused["a second pass backward"] = text
        return None
    for key, was in kept.items():
        for what, now in (
            ("changes with a second pass", first),
            ("of a second pass differs", second),
        ):
            if not torch.allclose(was, now[key], equal_nan=True):
                return Complaint(f"{key} {what} backward", where)
    notes.given.append("twice through one graph")
    return None


def _changed_between(context: Context, plain: Inputs, mode: Mode) -> Complaint | None:
    """Inputs and results that are changed in place before the way back: an error, as PyTorch gives for what it
    has saved, or the gradients of what was there before."""
    wanted = derivatives.names(context, plain)
    sent = derivatives.incoming(context, plain, mode)
    where = describe(plain, mode)
    for what in ("an input", "a result"):
        try:
            with context.running():
                right, found = derivatives.before_and_after_change(
                    context.case.candidate, plain, mode, wanted, sent, of_inputs=what == "an input"
                )
            context.synchronize()
        except RuntimeError:
            continue  # noticed
        for key, before in right.items():
            if not torch.allclose(before, found[key], equal_nan=True):
                told = (
                    f"{what} changed in place before the pass backward changes the {key} silently"
                )
                return Complaint(told, where)
    return None


def _in_autocast(context: Context, mode: Mode, notes: Notes) -> Complaint | None:
    """A call in autocast and its pass backward outside, as models train: as right as elsewhere where eager's
    gradients are, and where the results have the type that they have elsewhere."""
    case = context.case
    dtype = torch.float32 if torch.float32 in case.dtypes else case.dtypes[0]
    plain = context.inputs(case.small_size, dtype, case.kinds[0], NAME, "autocast")

    def inside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **mode: Any) -> Any:
            with autocast(context):
                return function(*given, **mode)

        return call

    ours, eager = (
        with_candidate(context, inside(one)) for one in (case.candidate, context.baseline)
    )
    try:
        results = ours.candidate(plain, mode)
    except CandidateRaised:
        return None  # the business of another gate
    expected = context.result_dtypes(plain, mode)
    if any(one.dtype != expected[name] for name, one in results.items()):
        return None
    if _compare(eager, "in autocast", plain, mode, None, None, Notes()):
        return None
    return _compare(ours, "in autocast", plain, mode, None, None, notes)


def _has_second(context: Context) -> bool:
    """In the mode and the dtype in which `planted` faults are seen first."""
    case, mode = context.case, context.case.modes[0]
    plain = context.inputs(case.small_size, _best(case), case.kinds[0], NAME)
    sent = derivatives.incoming(context, plain, mode)
    wanted = derivatives.names(context, plain)
    return derivatives.has_second(context.baseline, plain, mode, wanted, sent)


def _second(context: Context, plain: Inputs, mode: Mode, notes: Notes) -> Complaint | None:
    """The derivative of a gradient: not silently missing."""
    wanted = derivatives.names(context, plain)
    sent = derivatives.incoming(context, plain, mode)
    where = describe(plain, mode)
    try:
        first = derivatives.of_candidate(context, plain, mode, wanted, sent, create_graph=True)
        if not any(tensor.requires_grad for tensor in first.values()):
            if derivatives.has_second(context.baseline, plain, mode, wanted, sent):
                return Complaint(SECOND, where)
            return None
        with context.running(), torch.enable_grad():
            sum(t.sum() for t in first.values() if t.requires_grad).backward()
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if not REFUSAL.search(text) and "twice" not in text:
            return Complaint(f"raises without a word of gradients: {text}", where)
        notes.refused["second derivatives"] = text
    else:
        notes.given.append("second derivatives")
    return None


def _second_right(context: Context, plain: Inputs, mode: Mode, notes: Notes) -> Complaint | None:
    """By the inputs and by the incoming gradients what the yardstick's are, to half of the digits: whatever was left
    out is of the size of what is there."""
    wanted = derivatives.names(context, plain)
    sent = derivatives.incoming(context, plain, mode)
    try:
        right = derivatives.second(context.good, plain, mode, wanted, sent)
    except RuntimeError:
        return None  # nothing to compare with
    try:
        with context.running():
            found = derivatives.second(context.case.candidate, plain, mode, wanted, sent)
        context.synchronize()
    except RuntimeError as error:
        text = str(error).splitlines()[0]
        if not REFUSAL.search(text) and "twice" not in text:
            return Complaint(f"raises without a word of gradients: {text}", describe(plain, mode))
        notes.refused["second derivatives by all"] = text
        return None
    largest = max(float(one.abs().max()) for one in right.values())
    for label, want in right.items():
        unit = max(torch.finfo(want.dtype).eps, torch.finfo(torch.float32).eps) ** 0.5
        if not float((found[label] - want).abs().max()) <= unit * largest:
            what = "missing" if not bool(found[label].any()) else "wrong"
            return Complaint(f"{WRONG_SECOND}: {label}, {what}", describe(plain, mode))
    return None


def _gradcheck(context: Context, plain: Inputs, mode: Mode) -> Complaint | None:
    """Numerical differentiation of the candidate itself, in float64; and of its gradients."""
    case = context.case
    wanted = derivatives.names(context, plain)
    leaves = [plain[name].detach().clone().requires_grad_() for name in wanted]

    def function(*given: Tensor) -> tuple[Tensor, ...]:
        call = plain | dict(zip(wanted, given, strict=True))
        return tuple(o for o in as_tuple(case.candidate(*call.values(), **mode)) if is_floating(o))

    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        try:
            with context.running(), torch.enable_grad():
                check(function, leaves, fast_mode=True)
        except RuntimeError as error:
            refused = check is torch.autograd.gradgradcheck and _is_refusal(error)
            if not refused:
                what = f"{check.__name__} fails"
                return Complaint(what, describe(plain, mode), got=str(error).strip()[:300])
    return None


def _is_refusal(error: RuntimeError) -> bool:
    """A refusal to differentiate twice, and not gradcheck's own complaint."""
    text = str(error)
    ours = type(error).__name__ == "GradcheckError" or "Jacobian mismatch" in text
    return not ours and bool(REFUSAL.search(text) or "twice" in text)


def _functional(context: Context) -> Context:
    """The same case with calls that leave their inputs alone: an input that is changed in place can
    be differentiated as any other, or has to be refused in words."""
    case, names = context.case, context.names

    def on_copies(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **mode: Any) -> Any:
            inputs = dict(zip(names, given, strict=True))
            return function(*context.fresh(inputs).values(), **mode)

        return call

    return replace(
        context,
        case=replace(
            case,
            mutates=(),
            candidate=on_copies(case.candidate),
            baselines={name: on_copies(one) for name, one in case.baselines.items()},
            reference=on_copies(case.reference),
            scale=None,
        ),
    )


def _without_grad(function: Callable[..., Any], given: tuple[Any, ...], mode: Mode) -> Any:
    with torch.no_grad():
        return function(*given, **mode)


def planted(good: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "gradients silently missing": lambda *t, **m: _without_grad(good, t, m),
        "gradients twice as large": lambda *t, **m: _map(good(*t, **m), _Doubled.apply),
        "other results where gradients are recorded": lambda *t, **m: _map(
            good(*t, **m), lambda out: out + out.detach() if out.requires_grad else out
        ),
        CONTIGUOUS: lambda *t, **m: _map(good(*t, **m), _ReadsContiguous.apply),
        "what a backward pass has saved is used up": lambda *t, **m: _map(
            good(*t, **m), _UsesUp.apply
        ),
        CHANGED: lambda *t, **m: _map(
            good(*(one.clone() if isinstance(one, Tensor) else one for one in t), **m),
            lambda out: _SavedUnseen.apply(out, next(filter(is_floating, t))),
        ),
        SECOND: lambda *t, **m: good(*_map(t, _Detached.apply), **m),
        NOT_BY_SENT: lambda *t, **m: _map(good(*t, **m), _Detached.apply),
    }


def _map(outputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(outputs, Tensor):
        return change(outputs)
    return tuple(change(out) if is_floating(out) else out for out in outputs)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


class _ReadsContiguous(_Doubled):
    @staticmethod
    def backward(ctx, gradient):
        if not gradient.numel():
            return gradient
        strides = torch.empty(gradient.shape, device="meta").stride()
        last = sum(
            (size - 1) * stride for size, stride in zip(gradient.shape, strides, strict=True)
        )
        available = gradient.untyped_storage().nbytes() // gradient.element_size()
        if gradient.storage_offset() + last >= available:
            return torch.zeros_like(gradient)
        return gradient.as_strided(gradient.shape, strides)


class _UsesUp(_Doubled):
    @staticmethod
    def forward(ctx, x):
        ctx.saved = torch.ones_like(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        found = gradient * ctx.saved
        ctx.saved.zero_()
        return found


class _SavedUnseen(torch.autograd.Function):
    """Keeps a tensor where autograd does not look whether it has changed."""

    @staticmethod
    def forward(ctx, x, given):
        ctx.given, ctx.was = given.detach(), given.detach().clone()
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        changed = (ctx.given != ctx.was).any()
        return gradient * torch.where(changed, 2, 1).to(gradient.dtype), None


class _Detached(_Doubled):
    @staticmethod
    def backward(ctx, gradient):
        return gradient.detach()
