"""The contract: what it allows works, what it forbids is refused with a sentence that helps."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse import launches
from truefuse.case import Mode
from truefuse.compare import one_thread
from truefuse.context import Context, Results, describe
from truefuse.gates.edges import coarse_error
from truefuse.gates.proof import self_test_failed
from truefuse.gates.traced import overload_of
from truefuse.negatives import Negative, contains, negatives
from truefuse.variants import Variant, variants
from truefuse.verdict import Result, Status

NAME = "contract"
SIZE = (2, 8)


def run(context: Context) -> Result:
    contract = context.contract
    if contract is None:
        return Result(
            NAME,
            Status.UNKNOWN,
            "no-contract",
            "the case states no contract, so nothing says what has to be refused; give it "
            "`contract` or `operator`",
        )
    operator = context.case.operator or context.case.name
    forbidden = _forbidden(context, contract)
    faults = self_test(forbidden, operator)
    if faults:
        return self_test_failed(NAME, faults)
    accepted, failure = _accepts(context, contract, operator)
    if failure:
        return failure
    refusals, failure = _refuses(context, forbidden, operator)
    if failure:
        return failure
    empty = _launches_when_empty(context, contract)
    if empty:
        return Result(
            NAME,
            Status.FAIL,
            "empty-launches",
            "an empty input launches work on the device",
            expected="0 launches",
            got=f"{empty} launches",
            first=f"empty {list(context.case.empty_sizes[0])}",
        )
    unasked = len(forbidden) - len(refusals)
    not_asked = f", {unasked} not asked: meta tensors are for shapes alone" if unasked else ""
    forms = list(dict.fromkeys(accepted))
    counted = "launches not counted on this device" if empty is None else "nothing launched"
    return Result(
        NAME,
        Status.PASS,
        "kept",
        f"{len(accepted)} allowed calls right, {len(refusals)} forbidden calls refused by name{not_asked}",
        lines=[
            contract["text"],
            f"accepts  {len(forms)} forms of a call, such as {', '.join(forms[::4])} (empty: {counted})",
            *(
                f"refuses  {rule}: {text}"
                for rule, text in sorted(refusals.items(), key=_size_first)
            ),
        ],
        numbers={
            "contract": contract["text"],
            "accepted": accepted,
            "refused": refusals,
            "empty_launches": empty,
        },
    )


def _size_first(refusal: tuple[str, str]) -> bool:
    """A wrong size is the mistake that is made most: its sentence is the one to be shown."""
    return not refusal[0].endswith("short")


def _forbidden(context: Context, contract: dict[str, Any]) -> list[Negative]:
    case = context.case
    size = SIZE if len(case.small_size) == 2 else case.small_size
    inputs = context.inputs(size, case.dtypes[0], case.kinds[0], NAME)
    overload = overload_of(case.operator)
    schema = overload._schema.arguments if overload else ()
    defaults = {argument.name for argument in schema if argument.has_default_value()}
    return negatives(contract, inputs, case.modes[0], context.device, defaults)


def self_test(forbidden: list[Negative], operator: str) -> list[str]:
    faults = [] if forbidden else ["the contract yields no forbidden call"]
    for negative in forbidden:
        ideal = negative.ideal(operator)
        complaint = negative.complaint(ideal, operator)
        if complaint:
            faults.append(f"turned away a good refusal of '{negative.rule}': {complaint}")
        for name, bad in (
            ("an acceptance", None),
            ("an error of another kind", ValueError(str(ideal))),
            ("an error without words", RuntimeError("invalid argument")),
        ):
            if not negative.complaint(bad, operator):
                faults.append(f"did not catch {name} of '{negative.rule}'")
    return faults


def _accepts(
    context: Context, contract: dict[str, Any], operator: str
) -> tuple[list[str], Result | None]:
    accepted = []
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            called = [
                (variant, *_called(context, variant, mode, operator))
                for variant in variants(context, contract, dtype)
            ]
            for variant, complaint in _judged(context, called, mode):
                if complaint:
                    where = f"{variant.label}: {describe(variant.inputs, mode)}"
                    return [], Result(
                        NAME,
                        Status.FAIL,
                        "allowed-call-wrong",
                        f"a call that the contract allows goes wrong: {variant.label}",
                        expected="the result of mathematics",
                        got=complaint + variant.advice,
                        first=where,
                    )
                accepted.append(variant.label)
    return accepted, None


def _called(
    context: Context, variant: Variant, mode: Mode, operator: str
) -> tuple[Results | None, str]:
    """(what comes back, what is wrong with an error that comes instead)."""
    try:
        return context.call(context.case.candidate, variant.inputs, mode), ""
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        named = isinstance(error, RuntimeError) and contains(str(error), operator.split("::")[-1])
        return None, "" if variant.may_refuse and named else text


@one_thread()
def _judged(
    context: Context, called: list[tuple[Variant, Results | None, str]], mode: Mode
) -> list[tuple[Variant, str]]:
    return [
        (
            variant,
            wrong if results is None else coarse_error(context, variant.inputs, mode, results),
        )
        for variant, results, wrong in called
    ]


def _refuses(
    context: Context, forbidden: list[Negative], operator: str
) -> tuple[dict[str, str], Result | None]:
    refusals: dict[str, str] = {}
    for negative in forbidden:
        error, is_unasked = _outcome(context, negative)
        if is_unasked:
            continue
        complaint = negative.complaint(error, operator)
        if complaint:
            tensors = {k: v for k, v in negative.inputs.items()}
            return {}, Result(
                NAME,
                Status.FAIL,
                "forbidden-call",
                f"{negative.rule}: {complaint}",
                expected="RuntimeError naming the operator, the argument, "
                "what it has and what is wanted",
                got=complaint,
                first=f"{negative.rule}: {describe(tensors, negative.mode)}",
            )
        refusals[negative.rule] = str(error).splitlines()[0]
    return refusals, None


def _outcome(context: Context, negative: Negative) -> tuple[BaseException | None, bool]:
    """What a forbidden call raises; and whether nobody was asked."""
    asked = _Elsewhere()
    error: BaseException | None = None
    try:
        inputs, named = negative.arguments()
        with asked:
            context.as_given.case.candidate(*inputs, **named)
        context.synchronize()
    except Exception as raised:
        error = raised
    unanswered = error is None or isinstance(error, NotImplementedError)
    return error, asked.found and unanswered and context.case.operator is None


class _Elsewhere(TorchDispatchMode):
    """Whether an operator of somebody's own is called with a meta tensor, which stands for another device where
    there is none. PyTorch then asks its form for shapes alone, or says that it has none, and never the operator."""

    found = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace not in ("aten", "prims", "prim"):
            given = (*args, *(kwargs or {}).values())
            self.found |= any(isinstance(one, Tensor) and one.is_meta for one in given)
        return function(*args, **(kwargs or {}))


def _launches_when_empty(context: Context, contract: dict[str, Any]) -> int | None:
    context = context.as_given
    case = context.case
    if not case.empty_sizes:
        return None
    inputs = context.inputs(case.empty_sizes[0], case.dtypes[0], case.kinds[0], NAME)
    return launches.count(context, lambda: case.candidate(*inputs.values(), **case.modes[0]))
