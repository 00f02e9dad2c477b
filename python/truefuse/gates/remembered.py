"""No result is remembered: the same memory with other contents gives another answer.

The contents are changed through an alias, so that the tensor, its address, its shape and its version
counter all stay as they were: whatever a cache of results is keyed on but the contents.
"""

from __future__ import annotations

from torch import Tensor

from truefuse.case import Mode
from truefuse.context import Context, describe
from truefuse.gates.edges import coarse_error
from truefuse.gates.proof import unproven
from truefuse.verdict import Result, Status

NAME = "remembered"
SIZE = (6, 40)


def run(context: Context) -> Result:
    eager = next(iter(context.case.baselines.values()))
    planted = {
        "results kept by address": _keeps(eager, by_address),
        "results kept by tensor and version": _keeps(eager, by_version),
        "one output buffer for all calls": _one_buffer(eager),
    }
    unknown = unproven(NAME, context, examine, planted, eager)
    if unknown:
        return unknown
    complaint = examine(context)
    if complaint:
        what, _, where = complaint.partition(" | ")
        return Result(
            NAME,
            Status.FAIL,
            "stale-result",
            what,
            expected="the result of the contents at the time of the call, in memory of its own",
            got=what,
            first=where,
        )
    return Result(
        NAME, Status.PASS, "nothing-remembered", "new contents at the old address, new result"
    )


def examine(context: Context) -> str:
    for dtype in context.case.dtypes:
        for mode in context.case.modes:
            complaint = _examine_one(context, dtype, mode)
            if complaint:
                return complaint
    return ""


def _examine_one(context: Context, dtype, mode: Mode) -> str:
    inputs = context.inputs(SIZE, dtype, context.case.kinds[0], NAME, "old")
    fresh = context.inputs(SIZE, dtype, context.case.kinds[0], NAME, "new")
    earlier = context.candidate(inputs, mode)
    kept = earlier.clone()
    for name, tensor in inputs.items():
        tensor.data.copy_(fresh[name])  # .data: an alias with a version counter of its own
    later = context.candidate(inputs, mode)
    where = describe(inputs, mode)
    if later.numel() and later.untyped_storage().data_ptr() == earlier.untyped_storage().data_ptr():
        return f"a later call returns the memory of an earlier result | {where}"
    if coarse_error(context, fresh, mode, later):
        return f"the result does not follow the contents | {where}"
    if not kept.equal(earlier):
        return f"a later call changed an earlier result | {where}"
    return ""


def by_address(tensors: tuple[Tensor, ...]) -> object:
    return [(tensor.data_ptr(), tensor.shape) for tensor in tensors]


def by_version(tensors: tuple[Tensor, ...]) -> object:
    return [(id(tensor), tensor._version) for tensor in tensors]


def _keeps(eager, key_of):
    kept: dict[str, Tensor] = {}

    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        key = repr((key_of(tensors), tensors[0].dtype, mode))
        if key not in kept:
            kept[key] = eager(*tensors, **mode)
        return kept[key].clone()

    return candidate


def _one_buffer(eager):
    buffers: dict[object, Tensor] = {}

    def candidate(*tensors: Tensor, **mode: Mode) -> Tensor:
        result = eager(*tensors, **mode)
        buffer = buffers.setdefault((result.shape, result.dtype), result)
        return buffer.copy_(result)

    return candidate
