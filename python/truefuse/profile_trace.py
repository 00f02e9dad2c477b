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
        plain = sorted(kernels or events, key=lambda e: float(e["ts"]))
        ops = [Op(str(e.get("name", "?")), float(e["dur"]) * 1e-6) for e in plain]
        device = "gpu" if kernels else "unknown"
        return Profile(ops, device, "unknown", "a trace without operators: its kernels by name")
    operators.sort(key=lambda e: (float(e["ts"]), -float(e["dur"])))
    on_device = _device_seconds(kernels)
    times = on_device if kernels else _standing_seconds(operators)
    ops, shaped = _with_flow(operators, times, by_id=bool(kernels))
    flow = "by shapes" if shaped else "unknown"
    clock = "device time of what each operator launched" if kernels else "CPU time"
    return Profile(ops, "gpu" if kernels else "cpu", flow, f"a trace of torch.profiler: {clock}")


def _external_id(event: dict[str, Any]) -> Any:
    return (event.get("args") or {}).get("External id")


def _device_seconds(kernels: Iterable[dict[str, Any]]) -> dict[Any, float]:
    found: dict[Any, float] = defaultdict(float)
    for kernel in kernels:
        found[_external_id(kernel)] += float(kernel["dur"]) * 1e-6
    return found


def _standing_seconds(operators: list[dict[str, Any]]) -> dict[int, float]:
    """By position, of operators that stand for whatever they call: those that a fused kernel takes in, and
    those whose time is mostly their own. The others are wrappers; what they call stands for them."""
    children: dict[int | None, list[int]] = defaultdict(list)
    open_by_thread: dict[Any, list[tuple[float, int]]] = defaultdict(list)
    for i, event in enumerate(operators):
        begin, duration = float(event["ts"]), float(event["dur"])
        stack = open_by_thread[event.get("pid"), event.get("tid")]
        while stack and stack[-1][0] <= begin:
            stack.pop()
        children[stack[-1][1] if stack else None].append(i)
        stack.append((begin + duration, i))
    found = {}
    waiting = list(children[None])
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
    """Ops in order; one that takes a tensor of the shape that its predecessor gave is taken to read it."""
    ops: list[Op] = []
    shaped = False
    last_shape: list[int] | None = None
    for number, event in enumerate(operators):
        name = _plain_name(event)
        seconds = times.get(_external_id(event) if by_id else number, 0.0)
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
    args = event.get("args") or {}
    kinds = args.get("Input type") or []
    found = []
    for shape, kind in zip(args.get("Input Dims") or [], kinds, strict=False):
        flat = isinstance(shape, list) and all(isinstance(n, int) for n in shape)
        if flat and kind in _SIZES:
            found.append((shape, math.prod(shape) * _SIZES[kind]))
    return found


def _result(name: str, tensors: list[tuple[list[int], int]]) -> tuple[list[int] | None, int]:
    """Of a pointwise operator: the largest argument's shape. Others' results are not in a trace."""
    if not is_fusible(name) or name in ("sum", "mean", "cat", "amax", "amin") or not tensors:
        return None, 0
    return max(tensors, key=lambda tensor: tensor[1])
