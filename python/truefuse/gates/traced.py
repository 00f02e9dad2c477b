"""Under PyTorch's tracers: fake tensors with the strides of real ones, opcheck, and the same result when
compiled with symbolic sizes. For a callable that is no registered operator: the same result compiled. Where
gradients are recorded, other graphs are made: their results and the gradients are looked at too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse import derivatives
from truefuse.case import Case, Inputs, Mode
from truefuse.context import Context, Results, as_tuple, copies, describe, outputs_by_name
from truefuse.gates.edges import coarse_error, excused, far
from truefuse.gates.outputs import same_results
from truefuse.gates.proof import Complaint, self_test_failed
from truefuse.verdict import Result, Status

NAME = "traced"
OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def run(context: Context) -> Result:
    faults = self_test() + _gradients_self_test(context.device)
    if faults:
        return self_test_failed(NAME, faults)
    overload = overload_of(context.case.operator)
    found = _examine(context, overload)
    if found:
        return Result(
            NAME,
            Status.FAIL,
            "traced-otherwise",
            found.what,
            expected=found.expected or "the same under the tracer as without",
            got=found.got or found.what,
            first=found.where,
        )
    what = "fake strides, opcheck, one graph with symbolic sizes" if overload else "compiled"
    return Result(NAME, Status.PASS, "as-untraced", f"{what}: the same as untraced")


def overload_of(operator: str | None) -> Any:
    if operator is None:
        return None
    namespace, name = operator.split("::")
    return getattr(getattr(torch.ops, namespace), name).default


def _examine(context: Context, overload: Any) -> Complaint | None:
    case = context.case
    for dtype in dict.fromkeys((case.dtypes[0], case.dtypes[-1])):
        inputs = context.inputs(case.small_size, dtype, case.kinds[0], NAME)
        for mode in case.modes:
            where = describe(inputs, mode)
            if overload is not None:
                arguments, keywords = _called_with(context, overload, inputs, mode)
                complaint = fake_complaint(overload, arguments, keywords)
                complaint = complaint or opcheck_complaint(overload, copies(arguments), keywords)
                if complaint:
                    return Complaint(complaint, where)
    inputs = context.inputs(case.small_size, case.dtypes[0], case.kinds[0], NAME)
    for mode in case.modes:
        whole = overload is not None
        found = _compiled(context, inputs, mode, whole) or _compiled_gradients(
            context, inputs, mode, whole
        )
        if found:
            return found
    return None


class _Recorder(TorchDispatchMode):
    """Keeps copies of the arguments of the first call of an operator."""

    def __init__(self, overload: Any) -> None:
        super().__init__()
        self.overload = overload
        self.seen: tuple[Inputs, Mode] | None = None

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is self.overload and self.seen is None:
            names = [argument.name for argument in function._schema.arguments]
            self.seen = copies(dict(zip(names, args, strict=False))), copies(kwargs)
        return function(*args, **kwargs)


def _called_with(
    context: Context, overload: Any, inputs: Inputs, mode: Mode
) -> tuple[Inputs, Mode]:
    """Positional and named arguments that the candidate calls its operator with."""
    recorder = _Recorder(overload)
    with recorder, torch.no_grad():
        context.candidate(inputs, mode)
    return recorder.seen or (inputs, mode)


def _compiled(context: Context, inputs: Inputs, mode: Mode, whole: bool) -> Complaint | None:
    torch._dynamo.reset()
    function = torch.compile(
        context.case.candidate, backend="aot_eager", fullgraph=whole, dynamic=True
    )
    where = describe(inputs, mode)
    plain = context.candidate(inputs, mode)
    try:
        compiled: Results = context.call(function, inputs, mode)
    except Exception as error:
        if not whole:
            return None  # it runs as it is written, which the other gates judge
        text = str(error).splitlines()[0]
        return Complaint("cannot be compiled", where, got=f"{type(error).__name__}: {text}")
    if same_results(plain, compiled):
        return None
    complaint = coarse_error(context, inputs, mode, compiled)
    return (
        Complaint("compiled, it gives another result", where, got=complaint) if complaint else None
    )


def _compiled_gradients(
    context: Context, inputs: Inputs, mode: Mode, whole: bool
) -> Complaint | None:
    """As right as without the compiler; whether they are right there is the business of other gates."""
    candidate, where = context.case.candidate, describe(inputs, mode)
    if context.case.mutates:
        return None
    wanted = derivatives.names(context, inputs)
    sent = derivatives.incoming(context, inputs, mode)
    try:
        plain = derivatives.of_candidate(context, inputs, mode, wanted, sent)
    except (RuntimeError, derivatives.Missing):
        return None  # there are none
    torch._dynamo.reset()
    function = torch.compile(candidate, backend="aot_eager", fullgraph=whole, dynamic=True)
    try:
        outputs = derivatives.forward(function, inputs, mode, wanted)
        compiled = derivatives.gradients(function, inputs, mode, wanted, sent)
    except derivatives.Missing as missing:
        return Complaint(f"compiled, {missing}", where)
    except Exception as error:
        if not whole:
            return None
        text = str(error).splitlines()[0]
        return Complaint(
            "cannot be compiled with gradients", where, got=f"{type(error).__name__}: {text}"
        )
    complaint = coarse_error(context, inputs, mode, outputs_by_name(outputs))
    if complaint:
        what = "compiled, it gives another result where gradients are recorded"
        return Complaint(what, where, got=complaint)
    if same_results(plain, compiled):
        return None
    largest = max((float(one.abs().max()) for one in sent if one.numel()), default=0.0)
    for key, right in derivatives.mathematics(context, inputs, mode, wanted, sent).items():
        complaint = far(compiled[key], right, largest)
        if complaint and not excused(context, inputs, compiled[key], plain[key], right, largest):
            return Complaint(f"compiled, the {key} is another", where, got=complaint)
    return None


def _gradients_self_test(device: torch.device) -> list[str]:
    """A gradient that only the compiled call loses, of an operator made for the purpose."""
    faults = []
    for candidate, is_good in ((_cubed, True), (_cubed_without_its_slope, False)):
        case = Case(
            name="proof",
            candidate=candidate,
            baselines={"eager": _cubed},
            reference=_cubed,
            make_inputs=_numbers,
            gradients=("x",),
        )
        context = Context(case, device, seed=0)
        inputs = context.inputs((4, 6), torch.float32, "normal")
        complaint = _compiled_gradients(context, inputs, {}, whole=False)
        if is_good and complaint:
            faults.append(f"turned away honest gradients once compiled: {complaint.text()}")
        if not is_good and not complaint:
            faults.append("did not catch a gradient that is another once compiled")
    return faults


def _numbers(size: Any, dtype: torch.dtype, device: Any, generator: Any, kind: str) -> Inputs:
    return {"x": torch.randn(size, generator=generator, dtype=torch.float64).to(device, dtype)}


def _cubed(x: Tensor) -> Tensor:
    return x * x * x


def _cubed_without_its_slope(x: Tensor) -> Tensor:
    return x * x * x.detach() if torch.compiler.is_compiling() else _cubed(x)


def fake_complaint(overload: Any, inputs: Inputs, mode: Mode) -> str:
    """What the operator's fake form says wrongly about the outputs, with other strides too."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    for given in (inputs, _every_second_row(inputs)):
        try:
            real = as_tuple(overload(*copies(given).values(), **mode))
        except RuntimeError:
            continue  # the contract forbids it
        with FakeTensorMode() as fakes:
            made = {
                k: fakes.from_tensor(v) if isinstance(v, Tensor) else v for k, v in given.items()
            }
            fake = as_tuple(overload(*made.values(), **mode))
        for number, (ours, theirs) in enumerate(zip(real, fake, strict=True)):
            for what in ("shape", "stride", "dtype", "device"):
                said, is_ = (_fact(one, what) for one in (theirs, ours))
                if said != is_:
                    return f"the fake form gives output {number} {what} {said}, it has {is_}"
    return ""


def _fact(tensor: Tensor, what: str) -> Any:
    value = getattr(tensor, what)
    return tuple(value() if callable(value) else value) if what in ("shape", "stride") else value


def _every_second_row(inputs: Inputs) -> Inputs:
    return {
        k: torch.stack((v, v), dim=1)[:, 0] if isinstance(v, Tensor) and v.dim() >= 2 else v
        for k, v in inputs.items()
    }


def opcheck_complaint(overload: Any, inputs: Inputs, mode: Mode) -> str:
    found = torch.library.opcheck(
        overload, tuple(inputs.values()), dict(mode), test_utils=OPCHECKS, raise_exception=False
    )
    for name, outcome in found.items():
        if outcome != "SUCCESS":
            return f"opcheck {name}: {str(outcome).strip().splitlines()[0]}"
    return ""


def self_test() -> list[str]:
    """Three operators made for the purpose: an honest one and two that lie."""
    honest, strided, writes = _planted()
    inputs = {"x": torch.randn(4, 6)}
    faults = []
    if complaint := fake_complaint(honest, inputs, {}) or opcheck_complaint(honest, inputs, {}):
        faults.append(f"turned away an honest operator: {complaint}")
    if not fake_complaint(strided, inputs, {}):
        faults.append("did not catch a fake form with other strides")
    if not opcheck_complaint(writes, inputs, {}):
        faults.append("did not catch an undeclared mutation")
    return faults


@functools.cache
def _planted() -> tuple[Any, Any, Any]:
    library = torch.library.Library("truefuse_proof", "DEF")
    _planted.library = library  # type: ignore[attr-defined]  # it lives as long as the operators

    def operator(name: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        library.define(f"{name}(Tensor x) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
        library.impl(name, real, "CompositeExplicitAutograd")
        library.impl(name, fake, "Meta")
        library.impl(name, torch.library.fallthrough_kernel, "Autograd")
        return getattr(torch.ops.truefuse_proof, name).default

    def writes(x: Tensor) -> Tensor:
        x.add_(1)
        return x.clone(memory_format=torch.contiguous_format)

    def dense(x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)

    return (
        operator("honest", lambda x: x.contiguous() + 1, dense),
        operator("strided", lambda x: x.t().contiguous().t(), dense),
        operator("writes", writes, dense),
    )
