"""The baseline does no work that nobody asked for: copies whose removal changes no result, and arithmetic
in float64 on narrower inputs.

Each copy that a baseline makes is left out, and the result compared. Work that was not needed makes the
candidate look faster than it is; a case whose model really does it says so (`baseline_copies`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse.case import Inputs, Mode
from truefuse.context import Context, Results, as_tuple, describe, tensors
from truefuse.context import copies as copies_of
from truefuse.gates.outputs import same_bits
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "baseline"
_ATEN = torch.ops.aten


class Copies(TorchDispatchMode):
    """Lists copies to the same dtype and device; leaves out the one numbered `without`."""

    def __init__(self, without: int | None = None) -> None:
        super().__init__()
        self.without = without
        self.found: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        source = args[0] if args else None
        if function in (_ATEN.clone.default, _ATEN._to_copy.default) and isinstance(source, Tensor):
            same = kwargs.get("dtype") in (None, source.dtype) and kwargs.get("device") in (
                None,
                source.device,
            )
            if same:
                self.found.append((str(function), source.numel() * source.element_size()))
                if self.without == len(self.found) - 1:
                    return source.view(source.shape)
        return function(*args, **kwargs)


class Doubles(TorchDispatchMode):
    """The first operator that gives float64."""

    found = ""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        outputs = function(*args, **(kwargs or {}))
        for one in as_tuple(outputs):
            if isinstance(one, Tensor) and one.dtype == torch.float64 and one.numel() > 1:
                self.found = self.found or str(function)
        return outputs


def run(context: Context) -> Result:
    context = context.as_given
    if not _is_double(context) and not doubles(context, _in_double(context)):
        return self_test_failed(NAME, ["did not catch arithmetic in float64"])
    if not needless(context, _copies_too(context.baseline)):
        return self_test_failed(NAME, ["did not catch a copy that nobody needs"])
    notes = []
    for name, baseline in context.baselines.items():
        found = [
            (
                "needless-copy",
                f"'{name}' makes a copy of {size} bytes ({label}) that changes no result",
                label,
                where,
            )
            for label, size, where in needless(context, baseline)
        ]
        found += [
            ("wide-arithmetic", f"'{name}' computes in float64 ({label})", label, where)
            for label, where in doubles(context, baseline)
        ]
        for reason, text, label, where in found:
            if context.case.baseline_copies:
                notes.append(f"{text}; the case says: {context.case.baseline_copies}")
                continue
            return Result(
                NAME,
                Status.UNKNOWN,
                reason,
                text,
                expected="a baseline without it, or `baseline_copies` saying that the model does it",
                got=label,
                first=where,
            )
    return Result(
        NAME,
        Status.PASS,
        "no-needless-work",
        notes[0]
        if notes
        else "no baseline makes a copy that could be left out, or computes in float64",
        lines=notes,
    )


def needless(context: Context, baseline: Callable[..., Any]) -> list[tuple[str, int, str]]:
    """[(operator, bytes, call)] of the copies that could be left out one by one."""
    case = context.case
    inputs = context.inputs(case.medium_size, case.dtypes[0], case.kinds[0], NAME)
    found = []
    for mode in case.modes:
        everything = Copies()
        wanted = _run(context, baseline, inputs, mode, everything)
        for number, (label, size) in enumerate(everything.found):
            try:
                got = _run(context, baseline, inputs, mode, Copies(without=number))
            except RuntimeError:
                continue  # it was needed
            # Without it an output may come to lie in an input's memory: then it was needed.
            if all(same_bits(got[k], wanted[k]) for k in wanted):
                found.append((label, size, describe(inputs, mode)))
    return found


def doubles(context: Context, baseline: Callable[..., Any]) -> list[tuple[str, str]]:
    """[(operator, call)] of the modes in which a baseline computes in float64, where no input is of it."""
    case = context.case
    if _is_double(context):
        return []
    inputs = _timed(context)
    found = []
    for mode in case.modes:
        seen = Doubles()
        with seen:
            baseline(*copies_of(inputs).values(), **mode)
        if seen.found:
            found.append((seen.found, describe(inputs, mode)))
    return found


def _timed(context: Context) -> Inputs:
    case = context.case
    return context.inputs(case.medium_size, case.timed_dtype, case.kinds[0], NAME)


def _is_double(context: Context) -> bool:
    """Whether there is float64 among the inputs, so that nobody computes wider than was asked for."""
    return any(value.dtype == torch.float64 for value in tensors(_timed(context)).values())


def _in_double(context: Context) -> Callable[..., Any]:
    """Work on the inputs in float64, whether or not the baseline itself takes them so."""

    def candidate(*given: Any, **mode: Any) -> Any:
        for tensor in given:
            if isinstance(tensor, Tensor):
                tensor.double().square()
        return context.baseline(*given, **mode)

    return candidate


def _run(
    context: Context, baseline: Callable[..., Any], inputs: Inputs, mode: Mode, copies: Copies
) -> Results:
    """Results and inputs afterwards, and which outputs share memory with an input."""
    own = copies_of(inputs)
    with copies:
        outputs = baseline(*own.values(), **mode)
    held = {tensor.untyped_storage().data_ptr() for tensor in tensors(own).values()}
    shared = [out.untyped_storage().data_ptr() in held for out in as_tuple(outputs)]
    groups = (("result", context.named(outputs, own)), ("input", tensors(own)))
    found = {f"{kind} {key}": value for kind, group in groups for key, value in group.items()}
    return found | {"shared": torch.tensor(shared)}


def _copies_too(baseline: Callable[..., Any]) -> Callable[..., Any]:
    def candidate(*given: Any, **mode: Any) -> Any:
        for tensor in given:
            if isinstance(tensor, Tensor):
                tensor.clone()  # whose copy nobody reads
        return baseline(*given, **mode)

    return candidate
