"""What comes back: structure, shape, dtype, device, strides and storage of its own, in inference mode too, and
the same numbers in autocast;
and of the inputs, those that the case declares mutated are, the others are not."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from truefuse import contents
from truefuse.case import Inputs, Mode
from truefuse.compare import another
from truefuse.context import (
    CandidateRaised,
    Context,
    as_tuple,
    contents_of,
    copies,
    describe,
    is_floating,
    like,
    short,
    tensors,
)
from truefuse.gates.edges import coarse_error
from truefuse.gates.proof import Complaint, judge
from truefuse.verdict import Result, Status

NAME = "outputs"


def run(context: Context) -> Result:
    mutates = context.case.mutates
    changed = f" · {', '.join(mutates)} changed in place" if mutates else ""
    return judge(
        NAME,
        context,
        examine,
        planted(context),
        "output-error",
        "outputs as eager's, inputs as declared",
        lambda: Result(
            NAME,
            Status.PASS,
            "as-declared",
            "structure, shape, dtype, device and strides right · fresh storage · "
            f"{'other ' if mutates else ''}inputs untouched{changed}",
        ),
    )


def planted(context: Context) -> dict[str, Callable[..., Any]]:
    good = context.good
    probe = context.inputs(
        context.case.small_size, context.case.dtypes[0], context.case.kinds[0], NAME
    )
    judged = contents_of(probe)
    kept = [p for p, n in enumerate(probe) if n in judged and _spare(context, n, judged[n])]
    bad: dict[str, Callable[..., Any]] = {
        "a version counter read in inference mode": _reads_version(good),
        "a tuple that is too long": _after(good, lambda o, given: (*as_tuple(o), given[0])),
    }
    made = as_tuple(good(*copies(probe).values(), **context.case.modes[0]))
    if made:
        bad |= _with_first_spoilt(good, made[0])
    if made and _precise_in_autocast(context, probe, context.case.modes[0]):
        bad["another result in autocast"] = _of_first(
            good, lambda out: another(out) if torch.is_autocast_enabled(out.device.type) else out
        )
    if kept:
        spare = kept[0]
        bad["an input overwritten once nobody else has its tensor"] = (
            _overwrites_what_it_alone_holds(good, spare)
        )
        bad["an input overwritten"] = _after(good, lambda o, given: _zero(given[spare], o))
        bad["an output inside an input's storage"] = _inside_an_input(good)
        if any(map(is_floating, probe.values())):
            bad["an input given back where it is zero"] = _zeros_given_back(good)
    if context.case.mutates:
        bad["a declared mutation left out"] = on_copies(good)
    return bad


def _with_first_spoilt(good: Callable[..., Any], first: Tensor) -> dict[str, Callable[..., Any]]:
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "an extra dimension": lambda out: out.unsqueeze(0),
        "another dtype": _other_dtype,
        "another result in inference mode": lambda out: (
            another(out) if torch.is_inference_mode_enabled() else out
        ),
    }
    if any(size > 1 for size in first.shape):
        changes["other strides"] = _strided
    if first.is_floating_point():
        changes["numbers that are not there yet"] = lambda out: torch._neg_view(-out)
    spoilt = {name: _of_first(good, change) for name, change in changes.items()}
    return {"an empty list": _after(good, lambda outputs, given: []), **spoilt}


def examine(context: Context) -> Complaint | None:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            inputs = context.inputs(context.case.small_size, dtype, context.case.kinds[0], NAME)
            found = (
                _examine_one(context, inputs, mode)
                or _for_inference(context, dtype, mode)
                or _in_autocast(context, inputs, mode)
                or _by_the_last_holder(context, inputs, mode)
            )
            if found:
                return found
    return _with_other_contents(context)


def _with_other_contents(context: Context) -> Complaint | None:
    """Where nothing is left to do the result is a tensor of its own all the same."""
    case = context.case
    usual = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    for label, inputs in contents.others(usual):
        found = _examine_one(context, inputs, case.modes[0])
        if found:
            return replace(found, what=f"{found.what} ({label})", where=f"{label}: {found.where}")
    return None


def _for_inference(context: Context, dtype: torch.dtype, mode: Mode) -> Complaint | None:
    """Tensors made in inference mode have no version counter, and no autograd to fall back on."""
    case = context.case
    with torch.inference_mode():
        inputs = context.inputs(case.small_size, dtype, case.kinds[0], NAME)
        where = f"in inference mode: {describe(inputs, mode)}"
        wanted = as_tuple(case_call(context, context.baseline, copies(inputs), mode))
        try:
            outputs = case_call(context, case.candidate, inputs, mode)
        except CandidateRaised as error:
            return Complaint("raises in inference mode", where, got=str(error))
        got = as_tuple(outputs)
        if len(got) != len(wanted):
            return Complaint(
                "wrong structure in inference mode", where, _structure(wanted), _structure(got)
            )
        for result, want in zip(got, wanted, strict=True):
            for what, expected, found in _facts(want, result):
                if found != expected:
                    return Complaint(
                        f"wrong {what} in inference mode", where, f"{what} {expected}", found
                    )
    # The same call again outside, where the case's own functions need not know of inference mode.
    plain = context.inputs(case.small_size, dtype, case.kinds[0], NAME)
    seen = {name: tensor.clone() for name, tensor in context.named(outputs, inputs).items()}
    complaint = coarse_error(context, plain, mode, seen)
    return Complaint("wrong in inference mode", where, got=complaint) if complaint else None


def _in_autocast(context: Context, inputs: Inputs, mode: Mode) -> Complaint | None:
    """What comes back in the type that it has elsewhere is as right as elsewhere, where eager's is."""
    where = f"in autocast: {describe(inputs, mode)}"
    if not _precise_in_autocast(context, inputs, mode):
        return None
    with autocast(context):
        try:
            ours = context.candidate(inputs, mode)
        except CandidateRaised as error:
            refused = isinstance(error.__cause__, RuntimeError)
            return None if refused else Complaint("raises in autocast", where, got=str(error))
    dtypes = context.result_dtypes(inputs, mode)
    if list(ours) == list(dtypes) and any(ours[name].dtype != d for name, d in dtypes.items()):
        return None  # a type that says so
    complaint = coarse_error(context, inputs, mode, ours)
    return Complaint("wrong in autocast", where, got=complaint) if complaint else None


def _precise_in_autocast(context: Context, inputs: Inputs, mode: Mode) -> bool:
    """Whether eager is: of a matrix product autocast makes one of half precision, and not every dtype is for it."""
    try:
        with autocast(context):
            theirs = context.eager(inputs, mode)
    except RuntimeError:
        return False
    return not coarse_error(context, inputs, mode, theirs)


def autocast(context: Context) -> AbstractContextManager[Any]:
    return torch.autocast(context.device.type, dtype=torch.bfloat16)


def _examine_one(context: Context, inputs: Inputs, mode: Mode) -> Complaint | None:
    case = context.case
    before, theirs = copies(inputs), copies(inputs)
    where = describe(before, mode)
    made = case_call(context, context.baseline, theirs, mode)
    wanted = as_tuple(made)
    outputs = case_call(context, case.candidate, inputs, mode)
    if _container(outputs) != _container(made):
        return Complaint("wrong structure", where, _container(made), _container(outputs))
    got = () if outputs is None else as_tuple(outputs)
    if len(got) != len(wanted) or not all(isinstance(one, Tensor) for one in got):
        return Complaint("wrong structure", where, _structure(wanted), _structure(got))
    for number, (result, want) in enumerate(zip(got, wanted, strict=True)):
        name = "" if len(wanted) == 1 else f" of output {number}"
        for what, expected, found in _facts(want, result):
            if found != expected:
                return Complaint(f"wrong {what}{name}", where, f"{what} {expected}", str(found))
        for other, tensor in tensors(inputs).items():
            given_back = other in case.mutates and _storage(want) == _storage(theirs[other])
            if result.numel() and _storage(result) == _storage(tensor) and not given_back:
                return Complaint(
                    f"the output{name} shares the storage of '{other}'",
                    where,
                    "an output with storage of its own",
                    f"that of '{other}'",
                )
    for other, tensor in tensors(inputs).items():
        if other not in case.mutates and not same_bits(tensor, before[other]):
            return Complaint(
                f"'{other}' was overwritten", where, f"'{other}' left as it was", "overwritten"
            )
        changed = not same_bits(theirs[other], before[other])
        if other in case.mutates and changed and same_bits(tensor, before[other]):
            return Complaint(
                f"'{other}' was not changed", where, f"'{other}' changed in place", "unchanged"
            )
    stored = [_storage(result) for result in got if result.numel()]
    if len(set(stored)) < len(stored):
        return Complaint("two outputs share storage", where, "storage of its own for each", "one")
    return None


def _by_the_last_holder(context: Context, inputs: Inputs, mode: Mode) -> Complaint | None:
    """A call that holds its arguments' tensors alone, as of `f(x.detach())`: their memory is others' all the same."""
    case = context.case
    memory = copies(inputs)
    before = copies(memory)
    given = [v.detach() if isinstance(v, Tensor) else v for v in reversed(memory.values())]
    where = f"of detached inputs: {describe(inputs, mode)}"
    call = _handing_over(len(given), tuple(mode))
    outputs = case_call(context, lambda **mode: call(case.candidate, given, mode), {}, mode)
    for name, tensor in tensors(memory).items():
        if name in case.mutates:
            continue
        if not same_bits(tensor, before[name]):
            return Complaint(
                f"'{name}' was overwritten where the call alone holds its tensor",
                where,
                f"'{name}' left as it was",
                "overwritten",
            )
        stored = [_storage(one) for one in as_tuple(outputs) if one.numel()]
        if tensor.numel() and _storage(tensor) in stored:
            return Complaint(
                f"the output shares the storage of '{name}' where the call alone holds its tensor",
                where,
                "an output with storage of its own",
                f"that of '{name}'",
            )
    return None


def _handing_over(count: int, keywords: tuple[str, ...]) -> Callable[..., Any]:
    """A call that keeps nothing of what it gives: neither a name nor a tuple of arguments."""
    arguments = ["given.pop()"] * count + [f"{name}=mode[{name!r}]" for name in keywords]
    return eval(f"lambda function, given, mode: function({', '.join(arguments)})")


def case_call(context: Context, function: Callable[..., Any], inputs: Any, mode: Mode) -> Any:
    """The plain call, on the inputs themselves."""
    try:
        outputs = function(*inputs.values(), **mode)
        context.synchronize()
    except Exception as error:
        raise CandidateRaised(
            f"{type(error).__name__}: {error} [{describe(inputs, mode)}]"
        ) from error
    return outputs


def _facts(want: Tensor, got: Tensor) -> list[tuple[str, Any, Any]]:
    return [
        ("shape", list(want.shape), list(got.shape)),
        ("dtype", short(want.dtype), short(got.dtype)),
        ("device", str(want.device), str(got.device)),
        ("strides", list(want.stride()), list(got.stride())),
        ("form", _form(want), _form(got)),
    ]


def _container(outputs: Any) -> str:
    if outputs is None or isinstance(outputs, Tensor):
        return "one tensor" if outputs is not None else "nothing"
    known = next((kind for kind in (tuple, list) if isinstance(outputs, kind)), type(outputs))
    return f"a {known.__name__}"


def _form(tensor: Tensor) -> str:
    """Memory that holds the numbers, or a promise to compute them when somebody looks."""
    name = type(tensor).__name__
    return f"{name} negated lazily" if tensor.is_neg() else name


def _structure(outputs: tuple[Any, ...]) -> str:
    if len(outputs) == 1:
        return "one tensor" if isinstance(outputs[0], Tensor) else type(outputs[0]).__name__
    return f"{len(outputs)} tensors"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, so that NaN equals itself and -0 does not equal +0."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(as_bits(a), as_bits(b))


def as_bits(tensor: Tensor) -> Tensor:
    """The same memory as integers, whose equality is that of bits. As it is where there is no such integer."""
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if tensor.dtype == torch.bool or tensor.element_size() not in bits:
        return tensor
    return tensor.contiguous().view(bits[tensor.element_size()])


def same_results(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return list(a) == list(b) and all(same_bits(a[name], b[name]) for name in a)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _spare(context: Context, name: str, value: Tensor) -> bool:
    """An input that nobody may change and whose change shows."""
    return name not in context.case.mutates and bool(value.any())


def _reads_version(good: Any) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        for tensor in given:
            if isinstance(tensor, Tensor):
                tensor._version  # noqa: B018
        return good(*given, **mode)

    return candidate


def _of_first(good: Any, change: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    def candidate(*given: Tensor, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        if isinstance(outputs, Tensor):
            return change(outputs)
        return like(outputs, (change(outputs[0]), *outputs[1:]))

    return candidate


def _after(good: Any, change: Callable[[Any, tuple[Tensor, ...]], Any]) -> Callable[..., Any]:
    return lambda *given, **mode: change(good(*given, **mode), given)


def _zero(tensor: Tensor, outputs: Any) -> Any:
    tensor.zero_()
    return outputs


def _other_dtype(tensor: Tensor) -> Tensor:
    return tensor.to(torch.float64 if tensor.dtype == torch.float32 else torch.float32)


def _strided(tensor: Tensor) -> Tensor:
    return torch.stack((tensor, tensor), dim=-1)[..., 0]


def _overwrites_what_it_alone_holds(good: Any, position: int) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        if sys.getrefcount(given[position]) <= 2:  # the tuple of arguments and the count's own
            given[position].zero_()
        return outputs

    return candidate


def _inside_an_input(good: Any) -> Callable[..., Any]:
    """A view of the first input that is large enough; where none is, one tensor too many."""

    def candidate(*given: Any, **mode: Any) -> Any:
        outputs = good(*given, **mode)
        first, *others = as_tuple(outputs)
        for tensor in given:
            same = isinstance(tensor, Tensor) and tensor.dtype == first.dtype
            if same and tensor.is_contiguous() and tensor.numel() >= first.numel():
                view = tensor.view(-1)[: first.numel()].view(first.shape)
                return like(outputs, (view, *others))
        return (first, *others, first)

    return candidate


def _zeros_given_back(good: Any) -> Callable[..., Any]:
    """Inside the storage of an input, where one is all zeros."""
    inside = _inside_an_input(good)

    def candidate(*given: Any, **mode: Any) -> Any:
        has_zeros = any(is_floating(t) and not bool(t.any()) for t in given)
        return (inside if has_zeros else good)(*given, **mode)

    return candidate


def on_copies(good: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        return good(*(t.clone() if isinstance(t, Tensor) else t for t in given), **mode)

    return candidate
