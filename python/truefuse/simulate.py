"""The simulated device: operators run their plans and kernels on CPU tensors, in waves of 32 or 64.

    with truefuse.simulate.Simulated(Device("sim:wave64")):
        y = truefuse.bias_gelu(x, bias, approximate="tanh")

Whatever is wrong with a kernel is a RuntimeError with the kernel's line. Nothing here says how fast
anything is.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from truefuse import _native

ARCHS = ("sim:wave32", "sim:wave64")
ORDERS = ("forward", "reverse", "random", "interleaved")
NONE, TENSOR, INTEGER, NUMBER, BOOLEAN, TEXT = range(6)


class _Argument(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("string", ctypes.c_char_p),
        ("device", ctypes.c_char_p),
        ("dims", ctypes.c_int),
        ("sizes", ctypes.POINTER(ctypes.c_longlong)),
        ("strides", ctypes.POINTER(ctypes.c_longlong)),
        ("data", ctypes.c_void_p),
        ("whole", ctypes.c_longlong),
        ("real", ctypes.c_double),
    )


class _Device(ctypes.Structure):
    _fields_ = (
        ("arch", ctypes.c_char_p),
        ("sanitizers", ctypes.c_char_p),
        ("order", ctypes.c_char_p),
        ("seed", ctypes.c_ulonglong),
        ("resident_blocks", ctypes.c_int),
        ("trace", ctypes.c_int),
    )


_ARGUMENTS, _DEVICE = ctypes.POINTER(_Argument), ctypes.POINTER(_Device)
_declare = _native._declare
_outputs = _declare("truefuse_sim_outputs", ctypes.c_char_p, _ARGUMENTS, ctypes.c_int)
_call = _declare(
    "truefuse_sim_call",
    ctypes.c_char_p, _ARGUMENTS, ctypes.c_int, _ARGUMENTS, ctypes.c_int, _DEVICE,
)  # fmt: skip
_prepare = _declare("truefuse_sim_prepare", ctypes.c_char_p, _DEVICE, ctypes.c_int)
_kernel = _declare(
    "truefuse_sim_kernel",
    ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint), ctypes.c_uint,
    _ARGUMENTS, ctypes.c_int, _DEVICE,
)  # fmt: skip


@dataclass(frozen=True)
class Device:
    """A simulated device: its wave size, what its kernels are watched for ("address" and "undefined",
    or "race"), and in which order lanes and blocks get their turns."""

    arch: str = "sim:wave64"
    sanitizers: tuple[str, ...] = ("address", "undefined")
    order: str = "forward"
    seed: int = 1
    resident_blocks: int = 2
    trace: bool = False

    def _as_c(self) -> _Device:
        return _Device(
            self.arch.encode(),
            ",".join(self.sanitizers).encode(),
            self.order.encode(),
            self.seed,
            self.resident_blocks,
            int(self.trace),
        )


def _list(values: Any) -> Any:
    return (ctypes.c_longlong * max(len(values), 1))(*values)


def argument(value: Any, written: bool = False, dtype: str = "") -> _Argument:
    """One argument as the library takes it; it refers to `value`, which must outlive it. `dtype` is
    for scalars of kernels."""
    result = _Argument(kind=NONE)
    if isinstance(value, Tensor):
        result = _Argument(TENSOR, str(value.dtype).removeprefix("torch.").encode())
        result.device = value.device.type.encode()
        result.dims = value.dim()
        result.sizes, result.strides = _list(value.shape), _list(value.stride())
        result.data = None if value.is_meta else value.data_ptr()
        result.whole = int(written)
    elif isinstance(value, bool):
        result = _Argument(BOOLEAN, whole=int(value))
    elif isinstance(value, int):
        result = _Argument(INTEGER, dtype.encode(), whole=value)
    elif isinstance(value, float):
        result = _Argument(NUMBER, dtype.encode(), real=value)
    elif isinstance(value, str):
        result = _Argument(TEXT, value.encode())
    elif value is not None:
        raise RuntimeError(f"a simulated call cannot take a {type(value).__name__}")
    return result


def _array(arguments: list[_Argument]) -> Any:
    return (_Argument * max(len(arguments), 1))(*arguments)


def prepare(operator: str, device: Device) -> None:
    """Compiles every variant of an operator ahead, on all cores."""
    cores = len(os.sched_getaffinity(0))
    _native._answer(_prepare(operator.encode(), ctypes.byref(device._as_c()), cores))


def run_kernel(
    name: str,
    source: str,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: list[_Argument],
    device: Device,
    shared_bytes: int = 0,
) -> dict[str, Any]:
    """Runs one kernel of a source text on host memory: {"fault": None or {"kind", "text", "message",
    "file", "line", "other_line"}, "lane_switches"}. Raises RuntimeError for a launch that no device
    would take and with the compiler's words."""
    shape = (ctypes.c_uint * 6)(*grid, *block)
    return _native._answer(
        _kernel(
            name.encode(), source.encode(), kernel.encode(), shape, shared_bytes,
            _array(arguments), len(arguments), ctypes.byref(device._as_c()),
        )
    )  # fmt: skip


def promised(operator: str, values: list[Any]) -> list[dict[str, Any]]:
    """Checks a call's arguments against the operator's contract; the name, dtype and sizes of each
    output that it promises. Raises RuntimeError with the contract's sentence."""
    arguments = [argument(value) for value in values]
    return _native._answer(_outputs(operator.encode(), _array(arguments), len(arguments)))


class Simulated(TorchDispatchMode):
    """While it is active, calls of registered operators on CPU tensors run on the simulated device;
    everything else is PyTorch's own. With `device.trace`, `calls` keeps what each call did."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = device
        self.calls: list[dict[str, Any]] = []
        self._names = {f"{op['namespace']}::{op['name']}" for op in _native.operators()}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        values = bound(func._schema, args, kwargs)
        on_cpu = any(isinstance(value, Tensor) and value.device.type == "cpu" for value in values)
        if name not in self._names or not on_cpu:
            return func(*args, **kwargs)
        return self.run(name, func._schema, values)

    def run(self, name: str, schema: Any, values: list[Any]) -> Any:
        arguments = [argument(value) for value in values]
        given = _array(arguments)
        outputs_of_call = promised(name, values)
        results = [
            torch.empty(o["sizes"], dtype=getattr(torch, o["dtype"])) for o in outputs_of_call
        ]
        outputs = [argument(result, written=True) for result in results]
        answer = _native._answer(
            _call(
                name.encode(), given, len(arguments), _array(outputs), len(outputs),
                ctypes.byref(self.device._as_c()),
            )
        )  # fmt: skip
        if self.device.trace:
            names = [argument.name for argument in schema.arguments]
            tensors = dict(zip(names, values, strict=True))
            tensors |= {o["name"]: r for o, r in zip(outputs_of_call, results, strict=True)}
            tensors = {k: v for k, v in tensors.items() if isinstance(v, Tensor)}
            self.calls.append({"operator": name, "tensors": tensors, **answer})
        if len(results) > 1:
            return tuple(results)
        return results[0] if results else None


def bound(schema: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """A value for every argument of the schema, in its order."""
    values = list(args)
    for parameter in schema.arguments[len(args) :]:
        values.append(kwargs.get(parameter.name, parameter.default_value))
    return values
