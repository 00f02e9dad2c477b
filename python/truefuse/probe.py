"""Which layout a kernel really uses, found out by asking it.

Elements that an output position follows alone are found in a few calls (see probe_marks), and so the
others, one by one: the kernel is called with one element of an argument changed, many to a batch, and what
then changes is compared with what changes in a reference if one logical element is changed. All other
elements of the argument are equal, so that nothing has to be known about their order. Elements that the
reference itself cannot tell apart stay unknown. What was found is held against random rows at last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from truefuse import probe_marks
from truefuse.compare import one_thread
from truefuse.layout_describe import describe
from truefuse.layouts import BoundLayout

Tensors = Mapping[str, Tensor]
#: More numbers than this many, drawn at random, tell two responses apart.
FINGERPRINT = 24
#: Up to this many elements are asked about one by one if what copies show is not the whole of it.
FEW = 2048
UNREAD = -1
UNKNOWN = -2


@dataclass(frozen=True)
class Probe:
    """What to ask. `rows` is the number of independent rows in a call.

    Args:
        argument: name of the argument whose layout is asked for, for the report.
        declared: its layout as declared; its segments are the logical tensors.
        kernel: packed rows [rows, declared.size] -> outputs, each [rows, ...]. All other inputs are
            the kernel's own affair; they must be the reference's, the same in every row, and differ
            from head to head, or elements cannot be told apart. States that the kernel changes in
            place are given to it afresh in each call, and returned as outputs.
        reference: {segment: [rows, axes in the declared order]} in float64, on the CPU -> the same
            outputs, by definition rather than by layout.
        base, step: an element is `base`, the one that is asked about `base + step`; both exact in
            `dtype`.
        batch: rows to a call.
        tolerance: responses that differ by less, relative to the larger, are the same.
    """

    argument: str
    declared: BoundLayout
    kernel: Callable[[Tensor], Tensors]
    reference: Callable[[Tensors], Tensors]
    base: float = 0.25
    step: float = 1.0
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    batch: int = 256
    tolerance: float = 2e-2
    #: Other references, by what they do differently ("heads tiled"), tried if the kernel does not fit.
    alternatives: Mapping[str, Callable[[Tensors], Tensors]] = field(default_factory=dict)


@dataclass(frozen=True)
class Finding:
    argument: str
    declared: BoundLayout
    #: Per offset of the argument the offset that its element has in `declared`; UNREAD, UNKNOWN.
    elements: Tensor = field(repr=False)
    #: Of each unknown offset, the declared offsets that fit it.
    candidates: dict[int, list[int]] = field(repr=False)
    found: (
        str | None
    )  #: The layout, in the language; None if it is not known whole or is no layout.
    alternative: str | None = None  #: The alternative reference that the kernel was held against.
    #: What the kernel computes otherwise, though every element comes from where it says.
    otherwise: str | None = None

    @property
    def agrees(self) -> bool | None:
        """None: not known, because elements could not be told apart."""
        if self.alternative or self.otherwise:
            return False
        where = torch.arange(len(self.elements))
        held = _held(self.declared)
        wrong = (self.elements != where) & (self.elements != UNKNOWN) & held
        impossible = any(i not in fits and held[i] for i, fits in self.candidates.items())
        if bool(wrong.any()) or impossible or bool((~held & (self.elements != UNREAD)).any()):
            return False
        return None if bool(((self.elements == UNKNOWN) & held).any()) else True

    def who(self, element: int) -> str:
        return who(self.declared, element)

    def first_disagreement(self) -> str | None:
        held = _held(self.declared)
        for offset, element in enumerate(self.elements.tolist()):
            if element == offset:
                continue
            declared = self.who(offset) if held[offset] else "padding"
            if element == UNKNOWN:
                fits = self.candidates[offset]
                if offset not in fits:
                    names = ", ".join(map(self.who, fits[:4]))
                    read = f"as one of {names}" if fits else "in a way that is no single element's"
                    return f"offset {offset}: declared {declared}, read {read}"
            elif element == UNREAD:
                if held[offset]:
                    return f"offset {offset}: declared {declared}, not read at all"
            else:
                return f"offset {offset}: declared {declared}, read as {self.who(element)}"
        return None

    def lines(self) -> list[str]:
        sizes = " ".join(f"{name}={size}" for name, size in self.declared.sizes.items())
        lines = [f"declared  {self.argument}: {self.declared.text}   {sizes}"]
        unknown = int((self.elements == UNKNOWN).sum())
        unread = int((_held(self.declared) & (self.elements == UNREAD)).sum())
        if self.found:
            lines.append(f"found     {self.argument}: {self.found}")
        elif unknown:
            lines.append(
                f"found     {self.argument}: UNKNOWN at {unknown} of {len(self.elements)} offsets"
            )
            offset = max(self.candidates, key=lambda offset: len(self.candidates[offset]) > 0)
            names = [self.who(element) for element in self.candidates[offset]]
            more = f" and {len(names) - 4} more" if len(names) > 4 else ""
            fits = f"may be {', '.join(names[:4])}{more}" if names else "is like no element alone"
            lines.append(f"          offset {offset} {fits}")
        elif unread:
            held = int(_held(self.declared).sum())
            lines.append(f"found     {self.argument}: {unread} of {held} elements are not read")
        else:
            lines.append(f"found     {self.argument}: an order that no layout is known for")
        if self.alternative:
            lines.append(f"✗ the kernel fits only with: {self.alternative}")
        if self.otherwise:
            lines.append(f"✗ {self.otherwise}")
        first = self.first_disagreement()
        if first:
            lines.append(f"✗ {first}")
        elif self.alternative or self.otherwise:
            pass
        elif unknown:
            lines.append(
                "? nothing contradicts the declared layout, but not every element is told apart"
            )
        else:
            lines.append("✓ the kernel reads the declared layout")
        return lines


def who(declared: BoundLayout, element: int) -> str:
    """ "q[1,0]": the element at an offset."""
    found = declared.element_at(element)
    indices = ",".join(map(str, found.index))
    return f"{found.segment}[{indices}]" if found.index else found.segment


def run(probe: Probe) -> Finding:
    """Asks the kernel about every offset and the reference about every element."""
    finding = _from_marks(probe)
    if finding is None:
        return _one_by_one(probe)
    is_whole = not finding.otherwise and all(finding.candidates.values())
    return finding if is_whole or probe.declared.size > FEW else _one_by_one(probe)


def _kernel(probe: Probe) -> Callable[[Tensor], Tensors]:
    def call(rows: Tensor) -> Tensors:
        outputs = probe.kernel(rows.to(probe.device, probe.dtype))
        if isinstance(outputs, Mapping):
            return outputs
        raise probe_marks.CannotAsk(
            f"the kernel returns a {type(outputs).__name__}; it must return its outputs by name, "
            "each [rows, ...]"
        )

    return call


def _from_marks(probe: Probe) -> Finding | None:
    """What copies show, and responses for the rest; None if there are no copies."""
    size = probe.declared.size
    held = _held(probe.declared).nonzero().flatten()
    settings = {"base": probe.base, "step": probe.step, "batch": probe.batch}
    elements = torch.full((size,), UNKNOWN)
    offsets, wanted = torch.arange(size), held
    while len(offsets):
        ours, moves = probe_marks.spelled(_kernel(probe), size, offsets, **settings)
        if not moves:
            elements[offsets] = UNREAD
            break
        if not len(wanted):
            wanted = held  # Read a second time, perhaps.
            break
        theirs, _ = probe_marks.spelled(_unpacked(probe, probe.reference), size, wanted, **settings)
        pairs = probe_marks.paired(ours, theirs)
        if not pairs:
            break
        elements[list(pairs)] = torch.tensor(list(pairs.values()))
        offsets = (elements == UNKNOWN).nonzero().flatten()
        wanted = wanted[~torch.isin(wanted, elements)]
    if not bool((elements >= 0).any()):
        return None
    candidates: dict[int, list[int]] = {}
    if bool((elements == UNKNOWN).any()):
        project = _Projection()
        asked = _responses(probe, _kernel(probe), offsets, project)
        known = _responses(probe, _unpacked(probe, probe.reference), wanted, project)
        rest, fits = _match(asked, known, wanted, probe.tolerance)
        elements[offsets] = rest
        candidates = {int(offsets[i]): which for i, which in fits.items()}
    found = None if candidates else describe(elements, probe.declared)
    finding = Finding(probe.argument, probe.declared, elements, candidates, found)
    return finding if candidates else _confirmed(probe, finding)


def _confirmed(probe: Probe, finding: Finding) -> Finding:
    """On random rows: the same outputs as the reference's, an alternative's, or nobody's."""
    generator = torch.Generator().manual_seed(0)
    shape = (probe.batch, probe.declared.size)
    rows = torch.randn(shape, generator=generator, dtype=torch.float64).to(probe.dtype)
    outputs = _kernel(probe)(rows)
    logical = torch.full(shape, probe.base, dtype=torch.float64)
    read = finding.elements >= 0
    logical[:, finding.elements[read]] = rows[:, read].double()

    def farthest(reference: Callable[[Tensors], Tensors]) -> tuple[float, str]:
        wanted = _unpacked(probe, reference)(logical)
        return max((_relative(outputs[name], wanted[name]), name) for name in sorted(outputs))

    distance, name = farthest(probe.reference)
    if distance <= probe.tolerance:
        return finding
    for alternative, reference in probe.alternatives.items():
        if farthest(reference)[0] <= probe.tolerance:
            return replace(finding, alternative=alternative)
    text = f"every element is where it says, and yet '{name}' is something else, by {distance:.2g}"
    return replace(finding, otherwise=f"{text} of its size, on random rows")


def _relative(output: Tensor, wanted: Tensor) -> float:
    wanted = wanted.flatten(1).double().cpu()
    difference = output.detach().cpu().flatten(1).double() - wanted
    distance = float(difference.norm() / wanted.norm().clamp(min=1e-30))
    return distance if math.isfinite(distance) else math.inf


def _unpacked(probe: Probe, reference: Callable[[Tensors], Tensors]) -> Callable[[Tensor], Tensors]:
    @one_thread()
    def call(rows: Tensor) -> Tensors:
        return reference(_logical(rows, probe.declared))

    return call


def _one_by_one(probe: Probe) -> Finding:
    held = _held(probe.declared).nonzero().flatten()
    project = _Projection()
    asked = _responses(probe, _kernel(probe), torch.arange(probe.declared.size), project)

    def against(reference: Callable[[Tensors], Tensors], name: str | None) -> Finding:
        known = _responses(probe, _unpacked(probe, reference), held, project)
        elements, candidates = _match(asked, known, held, probe.tolerance)
        found = None if candidates else describe(elements, probe.declared)
        return Finding(probe.argument, probe.declared, elements, candidates, found, name)

    finding = against(probe.reference, None)
    if all(finding.candidates.values()):
        return finding
    # Some element is used as no element of the reference is: by another rule, perhaps.
    others = (against(reference, name) for name, reference in probe.alternatives.items())
    return next((other for other in others if all(other.candidates.values())), finding)


class _Projection:
    """The same random numbers for the kernel's outputs and the reference's."""

    def __init__(self) -> None:
        self.matrices: dict[str, Tensor] = {}

    def __call__(self, name: str, output: Tensor) -> Tensor:
        flat = output.detach().to("cpu", torch.float64).flatten(1)
        if name not in self.matrices:
            generator = torch.Generator().manual_seed(len(self.matrices))
            shape = (flat.shape[1], FINGERPRINT)
            matrix = torch.randn(shape, generator=generator, dtype=torch.float64)
            self.matrices[name] = matrix / math.sqrt(FINGERPRINT)
        probe_marks.require_same(name, len(self.matrices[name]), flat.shape[1])
        return flat @ self.matrices[name]


def _responses(
    probe: Probe, call: Callable[[Tensor], Tensors], offsets: Tensor, project: _Projection
) -> Tensor:
    """[len(offsets), outputs * FINGERPRINT]: how the outputs change with each element."""
    changes = []
    for begin in range(0, len(offsets), probe.batch - 1):
        chosen = offsets[begin : begin + probe.batch - 1]
        # Always the same number of rows: some kernels are compiled for it. The last row is unchanged.
        rows = torch.full((probe.batch, probe.declared.size), probe.base, dtype=torch.float64)
        rows[torch.arange(len(chosen)), chosen] += probe.step
        outputs = call(rows)
        parts = [project(name, outputs[name]) for name in sorted(outputs)]
        change = torch.cat([part[:-1] - part[-1:] for part in parts], dim=-1)
        changes.append(change[: len(chosen)])
    return torch.cat(changes)


@one_thread()
def _match(
    asked: Tensor, known: Tensor, held: Tensor, tolerance: float
) -> tuple[Tensor, dict[int, list[int]]]:
    """For each response of the kernel the reference's that is the same."""
    if not bool(asked.isfinite().all() and known.isfinite().all()):
        raise probe_marks.CannotAsk("an output is not finite; choose a smaller base or step")
    quiet = 1e-6 * max(float(known.norm(dim=-1).max()), 1e-30)
    elements = torch.full((len(asked),), UNREAD)
    candidates: dict[int, list[int]] = {}
    norms = known.norm(dim=-1)
    strengths = asked.norm(dim=-1)
    for begin in range(0, len(asked), 128):
        # Without the matrix product, which would cancel where responses are nearly the same.
        distances = torch.cdist(
            asked[begin : begin + 128], known, compute_mode="donot_use_mm_for_euclid_dist"
        )
        for offset, distance in enumerate(distances, begin):
            if float(strengths[offset]) <= quiet:
                continue
            fits = distance <= tolerance * norms.clamp(min=float(strengths[offset]))
            # Those that are as good as the best, up to its own error.
            fits &= distance <= 4 * distance.min() + quiet
            which = held[fits.nonzero().flatten()].tolist()
            if len(which) == 1:
                elements[offset] = which[0]
            else:
                elements[offset] = UNKNOWN
                candidates[offset] = which
    return elements, candidates


def _held(declared: BoundLayout) -> Tensor:
    """Which offsets hold an element."""
    return declared.index_map(declared) >= 0


def _logical(rows: Tensor, declared: BoundLayout) -> dict[str, Tensor]:
    """The segments of packed rows, [rows, axes]."""
    tensors = {}
    for segment in declared.segments:
        if segment["padding"]:
            continue
        index = torch.tensor(segment["base"])
        for axis in segment["axes"]:
            steps = torch.arange(axis["size"])
            offsets = sum(
                steps // part["divisor"] % part["extent"] * part["stride"] for part in axis["parts"]
            )
            index = index[..., None] + offsets
        tensors[segment["name"]] = rows[:, index.to(rows.device)]
    return tensors
