"""What every gate works with: the case, the device, reproducible inputs, and calls that are safe.

A call's results go by name: its outputs ("out", or "out[0]", "out[1]", ...), then the inputs that it has
changed in place, under their own names.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from truefuse import command_line, flags
from truefuse.case import Case, Inputs, Mode, Size
from truefuse.compare import Reference

HALF_TYPES = (torch.bfloat16, torch.float16)
SHORT_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}

# How often, and by how much, inputs are moved to see which integers and booleans they do not decide.
NEARBY, NEARBY_ULPS = 8, 8.0

Results = dict[str, Tensor]


class CandidateRaised(Exception):
    """The candidate raised on input that it has to accept; the text says what and on which input."""


class WrongStructure(Exception):
    """A call gave neither a tensor nor a tuple of tensors."""


@dataclass
class Context:
    case: Case
    device: torch.device
    seed: int
    target: str = ""  # the case as it was named on the command line
    contract: Mapping[str, Any] | None = None
    loading_changed: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # see `flags`
    at_start: dict[str, Any] = field(default_factory=dict)  # `flags` before the first call
    given: Case | None = (
        None  # the case as its file has it, where the gates judge another form (in_place)
    )
    _dtypes: dict[str, dict[str, torch.dtype]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.target = self.target or self.case.name

    @property
    def as_given(self) -> Context:
        """For whoever times calls or counts what they do."""
        return self if self.given is None else replace(self, case=self.given, given=None)

    def replay(self, gate: str | None = None) -> str:
        """A command that shows the same again."""
        return self.command(str(self.device), gate)

    def command(self, device: str, gate: str | None) -> str:
        chosen = ("--gate", gate) if gate else ()
        return command_line.of("check", self.target, device, self.seed, *chosen)

    def generator(self, *labels: object) -> torch.Generator:
        """Depends on the seed and the labels only, not on what ran before."""
        mixed = zlib.crc32(repr((self.seed, *map(str, labels))).encode())
        return torch.Generator().manual_seed(mixed)

    def inputs(self, size: Size, dtype: torch.dtype, kind: str, *labels: object) -> Inputs:
        generator = self.generator(size, dtype, kind, *labels)
        return self.case.make_inputs(size, dtype, self.device, generator, kind)

    def running(self) -> AbstractContextManager[Any]:
        """Around whatever runs the candidate outside of its call, as autograd does."""
        return nullcontext()

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    @property
    def baselines(self) -> dict[str, Callable[..., Any]]:
        return {name: _untouched(one) for name, one in self.case.baselines.items()}

    @property
    def baseline(self) -> Callable[..., Any]:
        """The first baseline: eager PyTorch."""
        return next(iter(self.baselines.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Of the inputs, in the order of the call."""
        case = self.case
        return tuple(self.inputs(case.small_size, case.dtypes[0], case.kinds[0], "names"))

    @property
    def good(self) -> Callable[..., Any]:
        """A candidate known to be right, from which faults are planted: the yardstick as a callable.
        (Eager itself may round more often in half types than any operator should.)"""
        names = self.names

        def candidate(*given: Any, **mode: Any) -> Any:
            inputs = dict(zip(names, given, strict=True))
            if not has_half(inputs):
                return self.baseline(*given, **mode)
            if self.case.yardstick is not None:
                return self.case.yardstick(*given, **mode)
            with torch.no_grad():
                dtypes = [*self.result_dtypes(inputs, mode).values()]
            wide = cast(inputs, torch.float32, HALF_TYPES)
            outputs = self.baseline(*wide.values(), **mode)
            for name in self.case.mutates:
                if wide[name] is not inputs[name]:
                    inputs[name].copy_(wide[name])
            # Behind the outputs' dtypes come those of the mutated inputs.
            made = [out.to(d) for out, d in zip(as_tuple(outputs), dtypes, strict=False)]
            return like(outputs, made)

        return candidate

    def fresh(self, inputs: Inputs) -> Inputs:
        """The same inputs, those that a call changes as copies."""
        return {k: _copy(v) if k in self.case.mutates else v for k, v in inputs.items()}

    def call(self, function: Callable[..., Any], inputs: Inputs, mode: Mode) -> Results:
        """`function` on `inputs`, which stay as they are; device faults show here, not later."""
        own = self.fresh(inputs)
        outputs = function(*own.values(), **mode)
        self.synchronize()
        return self.named(outputs, own)

    def named(self, outputs: Any, inputs: Inputs) -> Results:
        """The results of a call that was made on `inputs`. Raises WrongStructure."""
        return outputs_by_name(outputs) | {name: inputs[name] for name in self.case.mutates}

    def candidate(self, inputs: Inputs, mode: Mode) -> Results:
        try:
            return self.call(self.case.candidate, inputs, mode)
        except Exception as error:
            raise CandidateRaised(
                f"{type(error).__name__}: {error} [{describe(inputs, mode)}]"
            ) from error

    def eager(self, inputs: Inputs, mode: Mode) -> Results:
        return self.call(self.baseline, inputs, mode)

    def yardstick(self, inputs: Inputs, mode: Mode) -> Results:
        """Eager for float32 and float64; for half types the same in float32, rounded once (eager may
        round more often than an operator has to), or what the case gives."""
        if not has_half(inputs):
            return self.eager(inputs, mode)
        if self.case.yardstick is not None:
            return self.call(self.case.yardstick, inputs, mode)
        dtypes = self.result_dtypes(inputs, mode)
        wide = self.eager(cast(inputs, torch.float32, HALF_TYPES), mode)
        return {name: tensor.to(dtypes[name]) for name, tensor in wide.items()}

    def result_dtypes(self, inputs: Inputs, mode: Mode) -> dict[str, torch.dtype]:
        """Those of eager's results, by name."""
        kinds = [value.dtype if isinstance(value, Tensor) else None for value in inputs.values()]
        key = repr((kinds, mode, id(next(iter(self.case.baselines.values())))))
        if key not in self._dtypes:
            found = self.eager(inputs, mode)
            self._dtypes[key] = {name: tensor.dtype for name, tensor in found.items()}
        return self._dtypes[key]

    def mathematics(self, dtype: torch.dtype) -> Callable[..., Any]:
        """The reference for inputs of `dtype`."""
        if dtype in HALF_TYPES and self.case.rounded_reference is not None:
            return self.case.rounded_reference(dtype)
        return self.case.reference

    def reference(self, inputs: Inputs, mode: Mode, exact: bool = False) -> dict[str, Reference]:
        """Mathematics, on the CPU: in float64, or (`exact`) beyond it as a sum of two float64."""
        wide = widened(inputs)
        own = self.fresh(wide)
        dtypes = self.result_dtypes(inputs, mode)
        high = self.named(self.mathematics(main_dtype(inputs))(*own.values(), **mode), own)
        high = {name: tensor.double() for name, tensor in high.items()}
        scales: Results = {}
        if self.case.scale is not None:
            outputs = self.case.scale(*self.fresh(wide).values(), **mode)
            scales = dict(zip(high, as_tuple(outputs), strict=True))
        low: Results = {}
        if exact and self.case.exact is not None:
            name, shape = next(iter(high)), next(iter(high.values())).shape
            high[name], low[name] = _two_parts(self.case.exact(wide, mode), shape)

        nearby = functools.cache(lambda: self._nearby(inputs, wide, mode))

        def one(name: str) -> Reference:
            dtype = dtypes.get(name, torch.float64)
            if dtype.is_floating_point:
                return Reference(high[name], dtype, scales.get(name), low.get(name))
            slack = self.case.tolerance_for(dtype).ulps
            others = lambda: [found[name] for found in nearby()]  # noqa: E731
            return Reference(high[name], dtype, scales.get(name), None, slack, others)

        return {name: one(name) for name in high}

    def _nearby(self, inputs: Inputs, wide: Inputs, mode: Mode) -> list[Results]:
        """Mathematics of inputs moved by as much as arithmetic in their precision, or float32's, may move them."""
        generator = torch.Generator().manual_seed(zlib.crc32(b"nearby"))
        function = self.mathematics(main_dtype(inputs))
        found = []
        for _ in range(NEARBY):
            own = {
                name: _moved(value, inputs[name].dtype, generator) if is_floating(value) else value
                for name, value in self.fresh(wide).items()
            }
            results = self.named(function(*own.values(), **mode), own)
            found.append({name: tensor.double() for name, tensor in results.items()})
        return found


def _moved(value: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Each element up or down by a few ulps of the largest in its row."""
    if not value.numel():
        return value
    eps = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    size = value.abs().nan_to_num(0.0, 0.0, 0.0)
    size = size.amax(-1, keepdim=True) if value.dim() else size
    signs = torch.randint(0, 2, value.shape, generator=generator, dtype=torch.float64) * 2 - 1
    return value + NEARBY_ULPS * eps * size * signs


def _untouched(baseline: Callable[..., Any]) -> Callable[..., Any]:
    """One whose calls change nothing for the candidate's."""

    @functools.wraps(baseline)
    def call(*given: Any, **mode: Any) -> Any:
        with flags.subnormals_kept():
            return baseline(*given, **mode)

    return call


def _two_parts(values: list[Any], shape: torch.Size) -> tuple[Tensor, Tensor]:
    """mpmath numbers as sums of two float64."""
    tops = [float(value) for value in values]
    rests = [float(value - top) for value, top in zip(values, tops, strict=True)]
    high, low = (torch.tensor(part, dtype=torch.float64) for part in (tops, rests))
    return high.reshape(shape), low.reshape(shape)


def as_tuple(outputs: Any) -> tuple[Any, ...]:
    if outputs is None:
        return ()
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def like(outputs: Any, made: Sequence[Any]) -> Any:
    """Other tensors in the structure of `outputs`."""
    if isinstance(outputs, Tensor):
        return made[0]
    return list(made) if isinstance(outputs, list) else tuple(made)


def outputs_by_name(outputs: Any) -> Results:
    """Raises WrongStructure for anything but a tensor, or a tuple or list of tensors."""
    if isinstance(outputs, Tensor):
        return {"out": outputs}
    if outputs is None:
        return {}
    several = isinstance(outputs, (tuple, list))
    if not several or not all(isinstance(one, Tensor) for one in outputs):
        what = type(outputs).__name__
        if several:
            what += f" of {', '.join(type(one).__name__ for one in outputs)}"
        raise WrongStructure(f"gives {what}, not a tensor or a tuple of tensors")
    return {f"out[{number}]": one for number, one in enumerate(outputs)}


def main_dtype(inputs: Inputs) -> torch.dtype:
    """That of the first floating tensor, or where there is none of the first tensor, after which a call is named."""
    return next(iter(contents_of(inputs).values())).dtype


def contents_of(inputs: Mapping[Any, Any]) -> dict[Any, Tensor]:
    """The floating tensors; where there is none, all: whose contents the results are of."""
    found = {name: one for name, one in inputs.items() if isinstance(one, Tensor)}
    return {name: t for name, t in found.items() if t.is_floating_point()} or found


def is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def has_half(inputs: Inputs) -> bool:
    return any(is_floating(value) and value.dtype in HALF_TYPES for value in inputs.values())


def cast(inputs: Inputs, to: torch.dtype, of: tuple[torch.dtype, ...] | None = None) -> Inputs:
    """Floating tensors (of the dtypes `of`) as `to`; integers and None as they are."""
    return {
        name: value.to(to) if is_floating(value) and (of is None or value.dtype in of) else value
        for name, value in inputs.items()
    }


def widened(inputs: Inputs) -> Inputs:
    """On the CPU, detached, floating tensors as float64."""
    return cast(
        {k: v.detach().cpu() if isinstance(v, Tensor) else v for k, v in inputs.items()},
        torch.float64,
    )


def tensors(inputs: Inputs) -> Results:
    """Without optional arguments that are None."""
    return {name: value for name, value in inputs.items() if isinstance(value, Tensor)}


def _copy(value: Any) -> Any:
    """With the same strides, unless elements share an address."""
    if not isinstance(value, Tensor):
        return value
    if 0 in value.stride():
        return value.clone()
    return torch.empty_strided(
        value.shape, value.stride(), dtype=value.dtype, device=value.device
    ).copy_(value)


def copies(inputs: Inputs) -> Inputs:
    return {name: _copy(value) for name, value in inputs.items()}


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
        if value.is_neg():
            text += " negated lazily"
        parts.append(text)
    parts += [f'{name}="{value}"' for name, value in mode.items()]
    return ", ".join(parts)


def mode_name(mode: Mode) -> str:
    return ", ".join(str(value) for value in mode.values()) or "-"
