"""Reading a Chrome trace: of torch.profiler, or of another tool that writes complete ("X") events."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from truefuse.profile_ops import Op, Profile, Value, is_fusible

DEVICE_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "kernels"}
_SIZES = {
    "float": 4,
    "double": 8,
    "c10::BFloat16": 2,
    "c10::Half": 2,
    "int": 4,
    "long": 8,
    "long int": 8,
    "bool": 1,
    "unsigned char": 1,
    "signed char": 1,
}
_VIEWS = {
    "alias",
    "as_strided",
    "chunk",
    "contiguous",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "expand",
    "narrow",
    "permute",
    "reshape",
    "resize_",
    "select",
    "slice",
    "split",
    "split_with_sizes",
    "squeeze",
    "t",
    "transpose",
    "unbind",
    "unsqueeze",
    "view",
    "_reshape_alias",
    "_unsafe_view",
}


class BadTrace(Exception):
    """A file that is no trace; the text is for the user."""


def read(path: Path) -> Profile:
    """Raises BadTrace."""
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            data = json.load(file)
    except (OSError, ValueError, EOFError, RecursionError, zlib.error) as error:
        raise BadTrace(f"{path}: {error}. A trace is JSON, or JSON compressed by gzip") from error
    events = data.get("traceEvents") if isinstance(data, dict) else data
    if not isinstance(events, list):
        raise BadTrace(f"{path} has no traceEvents: it is no Chrome trace")
    whole = [e for e in events if isinstance(e, dict) and e.get("ph") == "X" and _timed(e)]
    if not whole:
        raise BadTrace(f"{path} has no complete event (ph X with ts and dur)")
    return from_events(whole)


def _timed(event: dict[str, Any]) -> bool:
    begin, length = (
        _number(event[key]) if isinstance(event.get(key), (int, float, str)) else None
        for key in ("ts", "dur")
    )
    return begin is not None and length is not None and length >= 0


def _number(text: Any) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def from_events(events: list[dict[str, Any]]) -> Profile:
    """Operators of torch.profiler with the device time they caused; without operators, the kernels."""
    operators = [e for e in events if e.get("cat") == "cpu_op"]
    kernels = [e for e in events if str(e.get("cat", "")).lower() in DEVICE_CATEGORIES]
    if not operators:
        return _without_operators(kernels, events)
    operators.sort(key=_outer_first)
    times: dict[Any, float] = _device_seconds(kernels) if kernels else _standing_seconds(operators)
    ops, shaped = _with_flow(operators, times, by_id=bool(kernels))
    # What no operator of the trace launched (a replayed graph, a kernel of another library) takes its time too.
    ops += [_by_name(kernel) for kernel in kernels if _external_id(kernel) in times]
    flow = "by shapes" if shaped else "unknown"
    clock = "device time of what each operator launched" if kernels else "CPU time"
    return Profile(ops, "gpu" if kernels else "cpu", flow, f"a trace of torch.profiler: {clock}")


def _without_operators(kernels: list[dict[str, Any]], events: list[dict[str, Any]]) -> Profile:
    if kernels:
        ops = [_by_name(kernel) for kernel in sorted(kernels, key=_outer_first)]
        return Profile(ops, "gpu", "unknown", "a trace without operators: its kernels by name")
    events = sorted(events, key=_outer_first)
    ops = []
    for event, within in zip(events, _children(events), strict=True):
        begin, duration = float(event["ts"]), float(event["dur"])
        # An event that only overlaps the one that it began in goes on after it.
        inner = sum(
            min(float(events[i]["dur"]), begin + duration - float(events[i]["ts"])) for i in within
        )
        ops.append(Op(str(event.get("name", "?")), max(0.0, duration - inner) * 1e-6))
    method = "a trace without operators: its events by name, without the events within them"
    return Profile(ops, "unknown", "unknown", method)


def _by_name(event: dict[str, Any]) -> Op:
    return Op(str(event.get("name", "?")), float(event["dur"]) * 1e-6)


def _outer_first(event: dict[str, Any]) -> tuple[float, float]:
    return float(event["ts"]), -float(event["dur"])


def _args(event: dict[str, Any]) -> dict[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _external_id(event: dict[str, Any]) -> Any:
    """None where it is not given."""
    found = _args(event).get("External id")
    return found if isinstance(found, (int, str)) else None


def _device_seconds(kernels: Iterable[dict[str, Any]]) -> dict[Any, float]:
    found: dict[Any, float] = defaultdict(float)
    for kernel in kernels:
        found[_external_id(kernel)] += float(kernel["dur"]) * 1e-6
    return found


def _children(events: list[dict[str, Any]]) -> list[list[int]]:
    """Of events, outer first: the positions of those that began directly within each."""
    found: list[list[int]] = [[] for _ in events]
    open_by_thread: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for i, event in enumerate(events):
        begin, duration = float(event["ts"]), float(event["dur"])
        stack = open_by_thread[str(event.get("pid")), str(event.get("tid"))]
        while stack and stack[-1][0] <= begin:
            stack.pop()
        if stack:
            found[stack[-1][1]].append(i)
        stack.append((begin + duration, i))
    return found


def _standing_seconds(operators: list[dict[str, Any]]) -> dict[int, float]:
    """By position, of operators that stand for whatever they call: those that a fused kernel takes in, and
    those whose time is mostly their own. The others are wrappers; what they call stands for them."""
    children = _children(operators)
    found = {}
    waiting = sorted(set(range(len(operators))).difference(*children))
    while waiting:
        i = waiting.pop()
        duration = float(operators[i]["dur"])
        within = sum(float(operators[child]["dur"]) for child in children[i])
        if is_fusible(_plain_name(operators[i])) or 2 * within <= duration:
            found[i] = duration * 1e-6
        else:
            waiting += children[i]
    return found


def _plain_name(event: dict[str, Any]) -> str:
    return str(event.get("name", "?")).removeprefix("aten::")


def _with_flow(
    operators: list[dict[str, Any]], times: dict[Any, float], by_id: bool
) -> tuple[list[Op], bool]:
    """Ops in order, with their times taken out of `times`; one that takes a tensor of the shape that its predecessor gave is taken to read it."""
    ops: list[Op] = []
    shaped = False
    last_shape: list[int] | None = None
    for number, event in enumerate(operators):
        name = _plain_name(event)
        key = _external_id(event) if by_id else number
        seconds = 0.0 if key is None else times.pop(key, 0.0)
        if name in _VIEWS or seconds <= 0:
            continue
        tensors = _tensors(event)
        shaped |= bool(tensors)
        reads = []
        linked = False
        for position, (shape, size) in enumerate(tensors):
            previous = ops[-1].writes if ops else ()
            if previous and not linked and shape == last_shape:
                reads.append(Value(previous[0].name, size))
                linked = True
            else:
                reads.append(Value((number, position), size))
        shape, size = _result(name, tensors)
        last_shape = shape
        writes = () if shape is None else (Value(number, size),)
        ops.append(Op(name, seconds, tuple(reads), writes))
    return ops, shaped


def _tensors(event: dict[str, Any]) -> list[tuple[list[int], int]]:
    """(shape, bytes) of every tensor argument."""
    shapes, kinds = (_args(event).get(key) for key in ("Input Dims", "Input type"))
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    found = []
    for shape, kind in zip(shapes, kinds, strict=False):
        flat = isinstance(shape, list) and all(isinstance(n, int) and n >= 0 for n in shape)
        if flat and isinstance(kind, str) and kind in _SIZES:
            found.append((shape, math.prod(shape) * _SIZES[kind]))
    return found


def _result(name: str, tensors: list[tuple[list[int], int]]) -> tuple[list[int] | None, int]:
    """Of a pointwise operator: the largest argument's shape. Others' results are not in a trace."""
    if not is_fusible(name) or name in ("sum", "mean", "cat", "amax", "amin") or not tensors:
        return None, 0
    return max(tensors, key=lambda tensor: tensor[1])
