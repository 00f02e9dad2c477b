"""`truefuse check OP --device sim:wave64`: the gates on a simulated device, and never a figure of speed.

To the gates the simulated device is just another candidate: its calls run in the simulator, under
AddressSanitizer and UndefinedBehaviorSanitizer. One more gate, `orders`, runs the edge sizes in every
order of lanes and blocks, watched for unordered accesses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from truefuse import environment, gates, simulate_orders
from truefuse.case import Case
from truefuse.context import Context
from truefuse.gates import contract, edges, gradients, numerics, outputs, special, training
from truefuse.report import Report
from truefuse.simulate import ARCHS, Device, Simulated, prepare
from truefuse.verdict import Result, Status, combine

COMPILE = "compile"
GATES: tuple[ModuleType, ...] = (
    contract,
    outputs,
    edges,
    simulate_orders,
    special,
    numerics,
    training,
    gradients,
)


@dataclass
class SimulatedContext(Context):
    """A context whose candidate runs on a simulated device."""

    simulated: Device = field(default_factory=Device)
    original: Callable[..., Any] | None = None  # the candidate as the case has it

    def running(self) -> Simulated:
        return Simulated(self.simulated)

    def replay(self, gate: str | None = None) -> str:
        return self.command(self.simulated.arch, gate)


def names() -> list[str]:
    return [gate.NAME for gate in GATES]


def on_device(candidate: Callable[..., Any], device: Device) -> Callable[..., Any]:
    """`candidate`, with its calls of registered operators on the simulated device."""

    @functools.wraps(candidate)
    def simulated(*tensors: Tensor, **mode: Any) -> Any:
        with Simulated(device):
            return candidate(*tensors, **mode)

    return simulated


def require_device(arch: str) -> None:
    """Raises ValueError for an arch that is none of the simulator's."""
    if arch not in ARCHS:
        raise ValueError(f"device '{arch}' is not here. Simulated devices: {', '.join(ARCHS)}.")


def context(
    case: Case, arch: str, seed: int, target: str, contract: dict[str, Any] | None
) -> SimulatedContext:
    """Raises ValueError for an arch that is none of the simulator's."""
    require_device(arch)
    device = Device(arch)
    return SimulatedContext(
        replace(case, candidate=on_device(case.candidate, device)),
        torch.device("cpu"),
        seed,
        target,
        contract,
        simulated=device,
        original=case.candidate,
    )


def run(
    context: SimulatedContext,
    only: Collection[str] = (),
    on_result: Callable[[Result], None] = lambda result: None,
    on_step: Callable[[str], None] = lambda name: None,
) -> Report:
    """As `check.run`, without measuring."""
    results: list[Result] = []
    # A few gates call a few variants, compiled when called.
    if context.case.operator and context.case.uses_shipped_variants and not only:
        on_step(COMPILE)
        failure = _does_not_compile(context)
        if failure:
            results.append(failure)
            on_result(failure)
    for gate in () if results else GATES:
        if not only or gate.NAME in only:
            on_step(gate.NAME)
            results.append(gates.run_one(gate, context))
            on_result(results[-1])
    return Report(
        case=context.case.name,
        device=context.simulated.arch,
        seed=context.seed,
        replay=context.replay(),
        verdict=combine(results, complete=not only),
        results=results,
        environment=environment.describe(context.device),
    )


def _does_not_compile(context: SimulatedContext) -> Result | None:
    """Every variant ahead; the compiler's words, if it does not take one."""
    try:
        prepare(context.case.operator, context.simulated)
    except RuntimeError as error:
        return Result(
            COMPILE,
            Status.FAIL,
            "kernel-does-not-compile",
            str(error),
            expected="a kernel that compiles",
            seed=context.seed,
            replay=context.replay(),
        )
    return None
