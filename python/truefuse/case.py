"""A case: everything a check needs to know about one operator, and nothing about how it is checked.

A case file is a short Python file that defines `case` (a Case) or `def case() -> Case`. The built-in
operators use the same door as everybody else.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from truefuse import case_check, source_file

if TYPE_CHECKING:
    from truefuse.layouts import BoundLayout

Inputs = dict[str, Any]  # tensors (or None) by argument name, in the order of the call
Outputs = Tensor | tuple[Tensor, ...]
Mode = dict[str, Any]  # keyword arguments that are no tensors
Size = tuple[int, ...]


@dataclass(frozen=True)
class Tolerance:
    """How a candidate is held against its yardstick: error <= factor * yardstick + ulps."""

    factor: float
    ulps: float = 1.0


DEFAULT_TOLERANCE: Mapping[torch.dtype, Tolerance] = {
    torch.float64: Tolerance(2),
    torch.float32: Tolerance(2),
    torch.bfloat16: Tolerance(3),
    torch.float16: Tolerance(3),
}


@dataclass(frozen=True)
class Case:
    """One operator to check. Every callable is called as `f(*inputs.values(), **mode)`, gives one
    tensor or a tuple of tensors, and changes the inputs named in `mutates` in place.

    The first baseline is eager PyTorch: the yardstick of accuracy for float32 and float64 (for half
    types the yardstick is that same baseline in float32, rounded once, or `yardstick`), and for
    gradients its autograd.
    """

    name: str
    candidate: Callable[..., Outputs]
    baselines: Mapping[str, Callable[..., Outputs]]
    # Mathematics: gets float64 in place of floating tensors and gives float64. Never the candidate,
    # nor its formula's weaknesses. With `gradients`, autograd can differentiate it.
    reference: Callable[..., Outputs]
    # (size, dtype, device, generator, kind) -> inputs. The generator is on the CPU.
    make_inputs: Callable[[Size, torch.dtype, torch.device, torch.Generator, str], Inputs]

    modes: Sequence[Mode] = ({},)
    dtypes: Sequence[torch.dtype] = (torch.float32,)
    kinds: Sequence[str] = ("normal",)
    gradients: tuple[str, ...] = ()  # names of the inputs that can be differentiated
    mutates: tuple[str, ...] = ()  # names of the inputs that are changed in place
    # Input -> who its elements are (truefuse.layout("...").bind(...)): drawn in the report.
    layouts: Mapping[str, BoundLayout] = field(default_factory=dict)
    # (inputs, mode) -> the same, where it depends on the call: `truefuse lanes` names elements by it.
    layouts_of: Callable[[Inputs, Mode], Mapping[str, BoundLayout]] | None = None
    # Kinds whose inputs leave no rounding before the function itself: here the candidate may be no
    # worse than eager in any binade (or 2 ulp where eager does better).
    strict_kinds: Sequence[str] = ()

    # Half types with declared rounding points: float32 arithmetic that rounds where the operator
    # does. Gets the half tensors themselves.
    yardstick: Callable[..., Outputs] | None = None
    # dtype -> the reference with the rounding points declared for that half type.
    rounded_reference: Callable[[torch.dtype], Callable[..., Outputs]] | None = None
    # Where a result is a sum that may cancel: the size of its summands, in the form of the outputs
    # (then the mutated inputs), from float64. Errors count in ulps of that size where it is larger.
    scale: Callable[..., Outputs] | None = None
    # (*gradients of the outputs, *inputs, **mode) -> one tensor for each of `gradients`, in float64:
    # where autograd of the reference loses digits or gives NaN, and the size of summands as in `scale`
    # (without it: of the sum over the rows to which an input was broadcast).
    reference_gradients: Callable[..., Outputs] | None = None
    gradient_scale: Callable[..., Outputs] | None = None

    # What a size means is for make_inputs to say; these suit [rows, hidden]. `small` and `medium` are
    # for checks of behaviour, `special` for infinities and the like, at lengths that reach vector
    # code, its tail, and both.
    small_size: Size = (5, 24)
    medium_size: Size = (67, 257)
    special_sizes: Sequence[Size] = ((1, 1), (1, 7), (1, 8), (1, 16), (1, 33))
    empty_sizes: Sequence[Size] = ((0, 8), (3, 0), (2, 0, 8))
    rank_sizes: Sequence[Size] = ((8,), (3, 8), (5, 1), (2, 3, 8), (2, 1, 3, 8), (2, 1, 3, 1, 8))
    edge_sizes: Sequence[Size] = ((1, 1), (2, 3), (3, 255), (2, 256), (5, 257), (7, 31), (1, 1009))
    numeric_size: Size = (128, 512)
    timing_sizes: Sequence[Size] = ((1024, 768), (4096, 1024), (8192, 2048))
    timing_dtype: torch.dtype | None = None  # None: float32, or the first of `dtypes`
    timing_mode: Mode | None = None  # None: the first of `modes`
    # Why a baseline makes copies that could be left out, or computes in float64: for instance that the
    # model does.
    baseline_copies: str = ""
    # (inputs, mode) -> multiplications and additions that no way to compute the results can do without,
    # where that is more than memory shows: 2 m n k of a matrix product.
    operations: Callable[[Inputs, Mode], float] | None = None
    # The largest magnitude that the operator is for, where a square, a product or a sum on the way overflows
    # beyond it: special values are no larger.
    largest: float = math.inf
    drift_steps: int = 256  # calls in a row, each on the state that the last one left

    # The operator's name in torch.ops, for its contract, its compiled kernels and its error texts.
    operator: str | None = None
    # Whether the operator's shipped variants are those that the sizes here ask for: then they are compiled
    # ahead, on all cores, for the simulator and on a GPU.
    uses_shipped_variants: bool = True
    # What a candidate accepts that is no registered operator: in the language of contracts, or as the
    # data that `truefuse ops --json` shows.
    contract: str | Mapping[str, Any] | None = None

    # (inputs, mode) -> flat list of mpmath numbers: beyond float64, to judge float64 itself.
    exact: Callable[[Inputs, Mode], list[Any]] | None = None
    # Plausible mistakes in this operator, as changes of what is computed: the numerics gate must
    # catch each of them before it may judge anybody.
    faults: Mapping[str, Callable[[Inputs, Mode], tuple[Inputs, Mode]]] = field(
        default_factory=dict
    )
    tolerance: Mapping[torch.dtype, Tolerance] = field(default_factory=dict)
    source: Path | None = None  # the case file, set by load()

    def __post_init__(self) -> None:
        for name in ("gradients", "mutates"):
            if isinstance(getattr(self, name), str):
                raise ValueError(f"{name} is a string; it must be a tuple of argument names")
        if self.contract is not None and not isinstance(self.contract, (str, Mapping)):
            raise ValueError(
                f"contract is {self.contract!r}; it must be a text such as 'x: f32 [rows.., hidden] strided'"
            )
        if self.gradients and self.mutates:
            raise ValueError(
                "a case cannot have both gradients and mutates: autograd keeps inputs as they were; "
                "write one case for each form"
            )

    def tolerance_for(self, dtype: torch.dtype) -> Tolerance:
        """Of integers and booleans: as mathematics has them, or at most twice as far off as eager."""
        return self.tolerance.get(dtype, DEFAULT_TOLERANCE.get(dtype, Tolerance(2, ulps=0)))

    @property
    def timed_dtype(self) -> torch.dtype:
        if self.timing_dtype is not None:
            return self.timing_dtype
        return torch.float32 if torch.float32 in self.dtypes else self.dtypes[0]

    @property
    def timed_mode(self) -> Mode:
        return self.modes[0] if self.timing_mode is None else self.timing_mode


def normal(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Standard normal values, drawn in float64 only for inputs that are float64: elsewhere that costs
    several times as much and is rounded away."""
    drawn = torch.float64 if dtype == torch.float64 else torch.float32
    return torch.randn(tuple(shape), generator=generator, dtype=drawn)


def sweep(
    size: Size,
    dtype: torch.dtype,
    generator: torch.Generator,
    low: float,
    high: float,
) -> Tensor:
    """Inputs for a function of one number: every finite value of a half type where there is room for
    them; else half of them uniform in [low, high], the other half with magnitudes spread evenly over
    binades."""
    count = math.prod(size)
    if dtype in (torch.float16, torch.bfloat16) and count >= 1 << 16:
        bits = torch.arange(count) % (1 << 16) - (1 << 15)
        values = bits.to(torch.int16).view(dtype)
        return torch.where(values.isfinite(), values, 0).reshape(size)
    uniform = torch.rand(3, count, generator=generator, dtype=torch.float64)
    dense = (high - low) * uniform[0] + low
    spread = torch.exp2(50 * uniform[0] - 40) * torch.where(uniform[1] < 0.5, -1.0, 1.0)
    return torch.where(uniform[2] < 0.5, dense, spread).reshape(size)


class CaseError(Exception):
    """A case file that raises, or says what cannot be; the text is for the user."""


class NotJudged(CaseError):
    """A case of something that no gate knows how to judge; the text is for the user."""


class NotFound(CaseError):
    """There is no such case, or the file is no case."""


def builtin_directory() -> Path:
    return Path(__file__).parent / "operators"


def builtin_names() -> list[str]:
    return sorted(path.parent.name for path in builtin_directory().glob("*/case.py"))


def load(name_or_path: str) -> Case:
    """A built-in operator's case by name, that of a described operator by its folder, which is loaded,
    or the case in a Python file. Raises CaseError."""
    path = Path(name_or_path)
    is_builtin = re.fullmatch(r"\w+", name_or_path) and name_or_path in builtin_names()
    if name_or_path and path.is_dir() and not is_builtin:
        return _of_folder(path)
    if path.suffix != ".py":
        path = builtin_directory() / name_or_path / "case.py"
        if not is_builtin:
            choices = ", ".join(builtin_names()) or "none in this installation"
            raise NotFound(
                f"unknown operator '{name_or_path}'. Operators: {choices}; or the folder of a described "
                "operator, or the path of a case file ending in .py."
            )
    if not path.is_file():
        raise NotFound(f"case file '{path}' does not exist.")
    return _from_file(path.resolve())


def _of_folder(folder: Path) -> Case:
    from truefuse import describe

    if not describe.is_folder(folder):
        raise NotFound(f"folder '{folder}' holds no {describe.DESCRIPTION}, so it is no operator.")
    try:
        described = describe.load(folder)
    except RuntimeError as error:
        raise CaseError(str(error)) from error
    path = folder.resolve() / describe.CASE
    found = _checked(getattr(described.module, "case", None), path)
    if found.operator is None:
        object.__setattr__(found, "operator", described.name)
    return found


def beside(file: str, name: str) -> ModuleType:
    """The module in the Python file `name` beside `file`, for a case in several files; run once."""
    return _run_once(Path(file).resolve().with_name(f"{name}.py"))


@functools.cache
def _run_once(path: Path) -> ModuleType:
    return source_file.run(path)


def _from_file(path: Path) -> Case:
    try:
        found = getattr(source_file.run(path), "case", None)
        if callable(found):
            found = found()
    except Exception as error:
        raise CaseError(f"case file {source_file.raised(path, error)}") from error
    return _checked(found, path)


def _checked(found: Any, path: Path) -> Case:
    if not isinstance(found, Case):
        raise NotFound(
            f"case file '{path}' defines no case: it needs `case = truefuse.case.Case(...)` or a "
            "function `def case()` that returns one."
        )
    complaint = case_check.complaint(found)
    if complaint:
        raise CaseError(f"case file '{path}': {complaint}.")
    object.__setattr__(found, "source", path)
    return found
