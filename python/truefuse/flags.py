"""Global state that a call has no business with: settings of PyTorch, random generators, the current
device and stream, and the functions that this tool itself relies on."""

from __future__ import annotations

import ctypes
import functools
import gc
import inspect
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

TO_NEAREST = 0  # <fenv.h> of x86-64 and of AArch64
TOWARDS_ZERO = {"x86_64": 0xC00, "aarch64": 0xC00000}  # by machine
ELEMENTS_OF_A_THREAD = 1 << 15  # PyTorch gives a further thread work from so many elements on

# By identity: one that was replaced is a clock or a comparison that somebody else has written.
_OURS: dict[str, tuple[Any, str]] = {
    "time.perf_counter": (time, "perf_counter"),
    "time.monotonic": (time, "monotonic"),
    "torch.allclose": (torch, "allclose"),
    "torch.equal": (torch, "equal"),
    "torch.empty": (torch, "empty"),
    "torch.cuda.Event": (torch.cuda, "Event"),
    "torch.cuda.synchronize": (torch.cuda, "synchronize"),
    "torch.cuda.current_stream": (torch.cuda, "current_stream"),
    "torch.cuda.CUDAGraph": (torch.cuda, "CUDAGraph"),
    "torch.Tensor.data_ptr": (torch.Tensor, "data_ptr"),
    "torch.Tensor.__eq__": (torch.Tensor, "__eq__"),
}


@functools.cache
def _called() -> dict[str, tuple[Any, str]]:
    """What baselines and references are made of, and what this tool relies on. Of `torch` itself, whose
    functions in Python some of its modules wrap when they are imported, those in C++."""
    owners = {"torch": torch, "torch.Tensor": torch.Tensor, "torch.nn.functional": functional}
    found = dict(_OURS)
    for prefix, owner in owners.items():
        for attribute in dir(owner):
            value = getattr(owner, attribute)
            wrapped = owner is torch and inspect.isfunction(value)
            if inspect.isroutine(value) and not attribute.startswith("__") and not wrapped:
                found[f"{prefix}.{attribute}"] = (owner, attribute)
    return found


def settings(device: torch.device) -> dict[str, str]:
    """What is worth showing of a snapshot."""
    return {k: str(v) for k, v in snapshot(device).items() if k not in _called()}


def snapshot(device: torch.device) -> dict[str, Any]:
    state: dict[str, Any] = {name: _read(read) for name, read in _SETTINGS.items()}
    state |= {name: getattr(owner, attribute) for name, (owner, attribute) in _called().items()}
    state["random generator"] = _digest(torch.get_rng_state())
    state["random generator of Python"] = hash(random.getstate())
    state |= _arithmetic()
    if device.type == "cuda":
        tiny = torch.tensor(2.0**-140, device=device)
        state["subnormal numbers of the device"] = bool(tiny.mul(2.0**100) != 0)
        state["random generator of the device"] = _digest(torch.cuda.get_rng_state(device))
        state["current device"] = torch.cuda.current_device()
        state["current stream"] = torch.cuda.current_stream(device).cuda_stream
    return state


def _arithmetic() -> dict[str, Any]:
    """How the processor computes, on every thread of PyTorch's pool: denormals flushed, where a product
    that is subnormal reads as zero, and results that are not rounded to the nearest."""
    ones = torch.ones(torch.get_num_threads() * ELEMENTS_OF_A_THREAD)
    subnormal = (ones * 2.0**-140) * 1.0
    sums = [ones + part * 2.0**-23 for part in (0.25, 0.75)] + [-ones - 0.75 * 2.0**-23]
    return {
        "subnormal numbers": bool((subnormal != 0).all()),
        "rounding": [(float(s.min()), float(s.max())) for s in sums],
    }


def changes(before: dict[str, Any], after: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """{name: (before, after)}."""
    return {
        name: (_text(before[name]), _text(after.get(name)))
        for name in before
        if before[name] != after.get(name)
    }


def changed_since(before: dict[str, Any], device: torch.device) -> dict[str, tuple[str, str]]:
    """`changes` until now but for the random generators: that they were drawn from says nothing of who
    did it."""
    found = changes(before, snapshot(device))
    return {name: values for name, values in found.items() if not name.startswith("random")}


def restore(before: dict[str, Any]) -> None:
    """Puts back what a planted fault has changed."""
    for name, write in _WRITERS.items():
        if _read(_SETTINGS[name]) != before[name]:
            write(before[name])
    for name, (owner, attribute) in _called().items():
        if getattr(owner, attribute) != before[name]:
            setattr(owner, attribute, before[name])
    if before["rounding"] != _arithmetic()["rounding"]:
        set_rounding(TO_NEAREST)


@contextmanager
def subnormals_kept() -> Iterator[None]:
    """Around a call that is not the candidate's. Older versions of PyTorch, with a GCC before 13, compile
    for a CPU in such a way that loading the kernel makes the thread flush subnormal numbers for good."""
    before = _flushes()
    try:
        yield
    finally:
        if _flushes() != before:
            torch.set_flush_denormal(before)


def _flushes(smallest: float = 2.0**-1074, one: float = 1.0) -> bool:
    """Whether this thread does. A product of Python's is one of the processor's."""
    return smallest * one == 0.0


def set_rounding(mode: int) -> None:
    """Of this thread, as C has it."""
    ctypes.CDLL(None).fesetround(mode)


def _read(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (AttributeError, RuntimeError, OSError):  # not in this version, or not in this build
        return None


_SETTINGS: dict[str, Callable[[], Any]] = {
    "float32 matmul precision": torch.get_float32_matmul_precision,
    "TF32 in matmul": lambda: torch.backends.cuda.matmul.allow_tf32,
    "reduced fp16 sums": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "reduced bf16 sums": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "TF32 in cuDNN": lambda: torch.backends.cudnn.allow_tf32,
    "cuDNN benchmark": lambda: torch.backends.cudnn.benchmark,
    "cuDNN deterministic": lambda: torch.backends.cudnn.deterministic,
    "deterministic algorithms": torch.get_deterministic_debug_mode,
    "default dtype": torch.get_default_dtype,
    "default device": lambda: str(torch.get_default_device()),
    "threads": torch.get_num_threads,
    "gradients": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "processors": lambda: os.sched_getaffinity(0),
    "priority": lambda: os.getpriority(os.PRIO_PROCESS, 0),
    "working directory": os.getcwd,
    "interval of Python's threads": sys.getswitchinterval,
    "garbage collection": gc.isenabled,
    "PyTorch's operators registered anew": lambda: _registered_anew(),
    "autocast on CPU": lambda: torch.is_autocast_enabled("cpu"),
    "autocast on GPU": lambda: torch.is_autocast_enabled("cuda"),
}
_WRITERS: dict[str, Callable[[Any], None]] = {
    "float32 matmul precision": torch.set_float32_matmul_precision,
    "deterministic algorithms": torch.set_deterministic_debug_mode,
    "default dtype": torch.set_default_dtype,
    "threads": torch.set_num_threads,
    "processors": lambda value: os.sched_setaffinity(0, value),
    "working directory": os.chdir,
    "garbage collection": lambda value: gc.enable() if value else gc.disable(),
    "interval of Python's threads": sys.setswitchinterval,
    "cuDNN benchmark": lambda value: setattr(torch.backends.cudnn, "benchmark", value),
}


def _registered_anew() -> tuple[str, ...]:
    """From Python, for a device: PyTorch itself does so for its own tracers alone."""
    known = getattr(torch.library, "_impls", ())
    return tuple(
        sorted(one for one in known if one.startswith("aten/") and one.endswith(("/CPU", "/CUDA")))
    )


def _digest(state: torch.Tensor) -> int:
    return hash(bytes(state.tolist()))


def _text(value: Any) -> str:
    return getattr(value, "__qualname__", None) or str(value)
