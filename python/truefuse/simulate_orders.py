"""No order of lanes and blocks changes a bit of the result, and nothing happens that is unordered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from truefuse.context import describe
from truefuse.gates.proof import self_test_failed
from truefuse.simulate import ORDERS, Device, Simulated, argument, run_kernel
from truefuse.verdict import Result, Status

if TYPE_CHECKING:
    from truefuse.simulate_check import SimulatedContext

NAME = "orders"

# Two blocks that share a row: one shifts it in place while the other reads it. Healthy: each block
# has a row of its own.
SHIFT = """#include "truefuse/device.h"
TF_KERNEL(64) void shift(float* rows, float* out, int rows_are_shared) {
  const tf::u32 t = tf::thread_x(), row = rows_are_shared ? 0 : tf::block_x();
  float* const own = rows + row * 128;
  out[tf::block_x() * 64 + t] = own[t] + own[64 + t];
  if (tf::block_x() == 0 || !rows_are_shared) own[t] = own[64 + t];
}
"""


def run(context: SimulatedContext) -> Result:
    faults = self_test(context.simulated.arch)
    if faults:
        return self_test_failed(NAME, faults)
    calls = 0
    for size in context.case.edge_sizes:
        for dtype in context.case.dtypes:
            inputs = context.inputs(size, dtype, context.case.kinds[0], NAME)
            for mode in context.case.modes:
                complaint = examine(context, inputs, mode)
                if complaint:
                    return Result(
                        NAME,
                        Status.FAIL,
                        "order-matters",
                        "the result depends on the order in which lanes or blocks run",
                        expected="the same bits in every order, and no unordered access",
                        got=complaint,
                        first=describe(inputs, mode),
                    )
                calls += len(ORDERS)
    return Result(
        NAME,
        Status.PASS,
        "no-order-matters",
        f"{', '.join(ORDERS)}: {calls} calls, the same bits, no unordered access",
    )


def examine(context: SimulatedContext, inputs: dict[str, Any], mode: dict[str, Any]) -> str:
    first: list[torch.Tensor] = []
    for order in ORDERS:
        device = Device(context.simulated.arch, ("race",), order, seed=context.seed)
        own = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()}
        try:
            with Simulated(device):
                result = context.original(*own.values(), **mode)
        except RuntimeError as error:
            return f"{order}: {error}"
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        # What is written in place is a result too.
        results += [value for value in own.values() if isinstance(value, torch.Tensor)]
        bits = [bytes_of(value) for value in results if isinstance(value, torch.Tensor)]
        first = first or bits
        if not all(map(torch.equal, first, bits)):
            return f"{order}: other bits than {ORDERS[0]}"
    return ""


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def self_test(arch: str) -> list[str]:
    faults = []
    for is_faulty in (True, False):
        rows, out = torch.ones(256), torch.zeros(128)
        arguments = [argument(rows, True), argument(out, True)]
        arguments.append(argument(int(is_faulty), dtype="int32"))
        device = Device(arch, ("race",))
        found = run_kernel("shift.hip", SHIFT, "shift", (2, 1, 1), (64, 1, 1), arguments, device)
        kind = (found["fault"] or {}).get("kind")
        if is_faulty and kind != "race":
            faults.append("did not catch a shift in place between blocks")
        if not is_faulty and kind is not None:
            faults.append(f"turned away a kernel without a race: {found['fault']['text']}")
    return faults
