"""What is wrong with a case before anything is judged: mistakes that would else show as an error of Python or
PyTorch in the middle of a gate. One sentence each, which names the field and what it must be."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truefuse import sampling

if TYPE_CHECKING:
    from truefuse.case import Case, Inputs, Mode

_SIZES = ("special_sizes", "empty_sizes", "rank_sizes", "edge_sizes", "timing_sizes")


def complaint(case: Case) -> str | None:
    """About the fields alone."""
    for name in ("candidate", "reference", "make_inputs"):
        if not callable(getattr(case, name)):
            return f"{name} is {_what(getattr(case, name))}; it must be a function"
    for name in ("baselines", "faults"):
        value = getattr(case, name)
        if not isinstance(value, Mapping) or not all(map(callable, value.values())):
            return f'{name} is {_what(value)}; it must be a dict of functions, as {{"eager": function}}'
    if not case.baselines:
        return 'baselines is empty; it needs one, as {"eager": function}: the yardstick of accuracy'
    for name in sampling.OWN:
        if name in case.baselines:
            return f"baselines has a {name!r}, which in the figures is the candidate; give it another name"
    for name, kind, example in (
        ("modes", Mapping, '({"eps": 1e-5},)'),
        ("dtypes", torch.dtype, "(torch.float32,)"),
        ("kinds", str, '("normal",)'),
    ):
        value = getattr(case, name)
        if not _all(value, kind) or not value:
            return f"{name} is {_what(value)}; it must be a tuple such as {example}, with its comma"
    for name in ("small_size", "medium_size", "numeric_size"):
        if not _all(getattr(case, name), int):
            return f"{name} is {_what(getattr(case, name))}; it must be one size, as (3, 8)"
    for name in _SIZES:
        value = getattr(case, name)
        if not _is_sequence(value) or not all(_all(size, int) for size in value):
            return f"{name} is {_what(value)}; it must be a tuple of sizes, as ((3, 8), (5, 7))"
    if isinstance(case.contract, Mapping) and not {"text", "arguments"} <= case.contract.keys():
        return f"contract is {_what(case.contract)}; it must be a text such as 'x: f32 [rows.., hidden] strided'"
    if case.timed_dtype not in case.dtypes:
        return (
            f"timing_dtype is {case.timed_dtype}, which is none of its dtypes "
            f"({', '.join(map(str, case.dtypes))}); name one that the gates have judged"
        )
    return None


def ask(case: Case, device: torch.device, contract: Mapping[str, Any] | None) -> None:
    """Asks a case for its inputs and makes a small call with the baselines and the reference, so that what
    is wrong with the case is said once. Raises CaseError, or NotJudged where the gates could not judge an
    honest candidate; the candidate itself is their affair."""
    from truefuse.case import CaseError

    if found := _call_complaint(case, device, contract):
        raise CaseError(f"case '{case.source or case.name}': {found}.")
    _make_call(case, device)


def _call_complaint(
    case: Case, device: torch.device, contract: Mapping[str, Any] | None
) -> str | None:
    """About the calls that it asks for: inputs and modes fit the functions, and the operator's contract."""
    for dtype in case.dtypes:
        generator = torch.Generator().manual_seed(1)
        try:
            inputs = case.make_inputs(case.small_size, dtype, device, generator, case.kinds[0])
        except Exception as error:
            what = f"size {case.small_size}, {dtype}, kind '{case.kinds[0]}'"
            return f"make_inputs raised {type(error).__name__} for {what}: {error}"
        if not isinstance(inputs, dict):
            return (
                f"make_inputs gives {_what(inputs)}; it must give a dict of the arguments by name, as "
                '{"x": x}'
            )
        for field in ("gradients", "mutates"):
            for name in getattr(case, field):
                if not isinstance(inputs.get(name), Tensor):
                    return f"{field} names {name}, which is no tensor; make_inputs gives {', '.join(inputs)}"
        for mode in case.modes:
            found = _misfit(case, inputs, mode) or _breach(case, inputs, mode, contract)
            found = found or _of_another(case, inputs, mode, contract)
            if found:
                return found
    return None


def _misfit(case: Case, inputs: Inputs, mode: Mode) -> str | None:
    """A function that cannot be called so."""
    functions: dict[str, Callable[..., Any]] = {"reference": case.reference}
    functions |= {f"baseline '{name}'": function for name, function in case.baselines.items()}
    for label, function in (functions | {"candidate": case.candidate}).items():
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            continue  # Not written in Python.
        try:
            signature.bind(*inputs.values(), **mode)
        except TypeError as error:
            return (
                f"{label}{signature} cannot be called with {_call(inputs, mode)}: {error}. What make_inputs "
                "gives comes in its order, then each of modes by name"
            )
    return None


def _of_another(
    case: Case, inputs: Inputs, mode: Mode, contract: Mapping[str, Any] | None
) -> str | None:
    """The case's own contract has other arguments than its calls."""
    if case.contract is None or contract is None:
        return None
    optional = {
        argument["name"]: argument.get("optional", False) for argument in contract["arguments"]
    }
    for key in (*inputs, *mode):
        if key not in optional:
            where = "make_inputs gives" if key in inputs else "modes give"
            return f"{where} {key}; the arguments of its contract are {', '.join(optional)}"
    for name, may_be_left_out in optional.items():
        if name not in inputs and name not in mode and not may_be_left_out:
            return f"neither make_inputs nor modes give {name}, which its contract has"
    return None


def _breach(
    case: Case, inputs: Inputs, mode: Mode, contract: Mapping[str, Any] | None
) -> str | None:
    """An argument that the case's registered operator has not or lacks, or that its contract does not allow."""
    if case.operator is None or contract is None or case.contract is not None:
        return None
    from truefuse import simulate

    namespace, name = case.operator.split("::")
    schema = getattr(getattr(torch.ops, namespace), name).default._schema
    given = {**inputs, **mode}
    names = [argument.name for argument in schema.arguments]
    for key in given:
        if key not in names:
            where = "make_inputs" if key in inputs else "modes"
            return f"{where} gives {key}; the arguments of {case.operator} are {', '.join(names)}"
    for argument in schema.arguments:
        if argument.name not in given and not argument.has_default_value():
            is_tensor = "Tensor" in str(argument.type)
            how = (
                "make_inputs has to give it"
                if is_tensor
                else f"modes=({{'{argument.name}': ...}},)"
            )
            return f"neither make_inputs nor modes give {argument.name}, which {case.operator} needs: {how}"
    try:
        simulate.promised(
            case.operator, [given.get(a.name, a.default_value) for a in schema.arguments]
        )
    except RuntimeError as error:
        return f"a call that the case asks for breaks the contract of its operator: {error}"
    return None


def _make_call(case: Case, device: torch.device) -> None:
    from truefuse.case import CaseError, NotJudged
    from truefuse.context import Context, WrongStructure, tensors

    context = Context(case, device, seed=0)
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0])
    for name, tensor in tensors(inputs).items():
        if tensor.is_complex():
            raise NotJudged(
                f"input '{name}' is {tensor.dtype}: no gate judges complex numbers; let the case take "
                "torch.view_as_real of them, and give that back"
            )
    for name, value in inputs.items():
        if isinstance(value, (list, tuple, dict)) and _holds_tensors(value):
            raise NotJudged(
                f"input '{name}' is a {type(value).__name__} of tensors, into which no gate looks: let make_inputs "
                "give each of them under a name of its own, and the candidate, the baselines and the reference "
                "put them together (`lambda x, a, b: f(x, [a, b])`)"
            )
    if not tensors(inputs):
        raise NotJudged("no input is a tensor, so there is nothing that the gates could vary")
    mode = case.modes[0]
    calls: dict[str, Callable[[], Any]] = {
        f"baseline '{name}'": functools.partial(context.call, function, inputs, mode)
        for name, function in case.baselines.items()
    }
    calls["the reference"] = lambda: context.reference(inputs, mode)
    for what, make in calls.items():
        try:
            references = make()
        except WrongStructure as error:
            raise CaseError(f"{what} {error}") from error
        except Exception as error:
            raise CaseError(f"{what} raised {type(error).__name__}: {error}") from error
    found = context.eager(inputs, mode)
    shapes = [{key: list(t.shape) for key, t in found.items()}]
    shapes += [{key: list(one.high.shape) for key, one in references.items()}]
    if shapes[0] != shapes[1]:
        raise CaseError(f"the reference gives {shapes[1]}, where eager gives {shapes[0]}")
    for name, tensor in found.items():
        if tensor.is_complex():
            raise NotJudged(f"{name} is {tensor.dtype}: no gate judges complex numbers")


def _holds_tensors(value: Any) -> bool:
    inside = value.values() if isinstance(value, dict) else value
    return any(isinstance(one, Tensor) for one in inside)


def _call(inputs: Inputs, mode: Mode) -> str:
    words = [*inputs, *(f"{name}={value!r}" for name, value in mode.items())]
    return f"({', '.join(words)})"


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _all(value: Any, kind: type) -> bool:
    return _is_sequence(value) and all(isinstance(one, kind) for one in value)


def _what(value: Any) -> str:
    """A value on less than a line."""
    text = (
        f"a {type(value).__name__}" if isinstance(value, Tensor) or callable(value) else repr(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."
