"""What every gate works with: the case, the device, reproducible inputs, and calls that are safe."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from truefuse.case import Case, Inputs, Mode, Size
from truefuse.compare import Reference

HALF_TYPES = (torch.bfloat16, torch.float16)
SHORT_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}


class CandidateRaised(Exception):
    """The candidate raised on input that it has to accept; the text says what and on which input."""


@dataclass
class Context:
    case: Case
    device: torch.device
    seed: int
    target: str = ""  # the case as it was named on the command line
    contract: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.target = self.target or self.case.name

    def replay(self, gate: str | None = None) -> str:
        """A command that shows the same again."""
        command = f"truefuse check {self.target} --device {self.device} --seed {self.seed}"
        return f"{command} --gate {gate}" if gate else command

    def generator(self, *labels: object) -> torch.Generator:
        """Depends on the seed and the labels only, not on what ran before."""
        mixed = zlib.crc32(repr((self.seed, *map(str, labels))).encode())
        return torch.Generator().manual_seed(mixed)

    def inputs(self, size: Size, dtype: torch.dtype, kind: str, *labels: object) -> Inputs:
        generator = self.generator(size, dtype, kind, *labels)
        return self.case.make_inputs(size, dtype, self.device, generator, kind)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def call(self, function: Callable[..., Tensor], inputs: Inputs, mode: Mode) -> Tensor:
        """`function` on `inputs`; device faults show here, not in a later call."""
        result = function(*inputs.values(), **mode)
        self.synchronize()
        return result

    def candidate(self, inputs: Inputs, mode: Mode) -> Tensor:
        try:
            return self.call(self.case.candidate, inputs, mode)
        except Exception as error:
            raise CandidateRaised(
                f"{type(error).__name__}: {error} [{describe(inputs, mode)}]"
            ) from error

    def eager(self, inputs: Inputs, mode: Mode) -> Tensor:
        return self.call(next(iter(self.case.baselines.values())), inputs, mode)

    def yardstick(self, inputs: Inputs, mode: Mode, dtype: torch.dtype) -> Tensor:
        """Eager for float32 and float64; for half types the same in float32, rounded once (eager
        may round more often than an operator has to)."""
        if dtype not in HALF_TYPES:
            return self.eager(inputs, mode)
        wide = {name: tensor.float() for name, tensor in inputs.items()}
        return self.eager(wide, mode).to(dtype)

    def reference(self, inputs: Inputs, mode: Mode, exact: bool = False) -> Reference:
        """Mathematics, on the CPU: in float64, or (`exact`) beyond it as a sum of two float64."""
        wide = {name: tensor.detach().cpu().double() for name, tensor in inputs.items()}
        high = self.case.reference(*wide.values(), **mode)
        dtype = next(iter(inputs.values())).dtype
        if not exact or self.case.exact is None:
            return Reference(high, torch.zeros_like(high), dtype)
        values = self.case.exact(wide, mode)
        tops = [float(value) for value in values]
        rests = [float(value - top) for value, top in zip(values, tops, strict=True)]
        tensors = (torch.tensor(part, dtype=torch.float64) for part in (tops, rests))
        return Reference(*(part.reshape(high.shape) for part in tensors), dtype)


def short(dtype: torch.dtype) -> str:
    return SHORT_NAMES.get(dtype, str(dtype).removeprefix("torch."))


def describe(inputs: Inputs, mode: Mode) -> str:
    """ "x f32 [2, 8] strides [8, 1], bias f32 [8], approximate="tanh"": enough to see a call again."""
    parts = []
    for name, value in inputs.items():
        if not isinstance(value, Tensor):
            parts.append(f"{name}={value!r}")
            continue
        text = f"{name} {short(value.dtype)} {list(value.shape)}"
        if not value.is_contiguous():
            text += f" strides {list(value.stride())}"
        if value.storage_offset():
            text += f" offset {value.storage_offset()}"
        parts.append(text)
    parts += [f'{name}="{value}"' for name, value in mode.items()]
    return ", ".join(parts)


def mode_name(mode: Mode) -> str:
    return ", ".join(str(value) for value in mode.values()) or "-"
