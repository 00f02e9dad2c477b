"""use(model, ops=...): operators in, and out again."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MethodType, TracebackType
from typing import Any

import torch
import transformers
from torch import nn

from truefuse.integrations.hits import Hits
from truefuse.integrations.transformers import gdn, mlp
from truefuse.integrations.transformers.replacement import (
    Place,
    Replacement,
    Unsupported,
    foreign,
    other_forward,
    refuse,
)

TESTED = ("5.17", "5.23", "5.24")
REPLACEMENTS: tuple[Replacement, ...] = (*mlp.REPLACEMENTS, *gdn.REPLACEMENTS)
OPERATORS = tuple(dict.fromkeys(replacement.operator for replacement in REPLACEMENTS))


class Swap:
    """Operators that are in a model now. A context manager; leaving it takes them out.

    `layers` are the names of the replaced layers by operator, `skipped` those of a right class that could
    not be replaced, with the reason; `disabled` the operators that TRUEFUSE_DISABLE kept out.
    """

    def __init__(self) -> None:
        self.layers: dict[str, list[str]] = {}
        self.skipped: dict[str, str] = {}
        self.disabled: tuple[str, ...] = ()
        self._hits = Hits()
        self._in: list[tuple[str, nn.Module, MethodType]] = []

    def hits(self) -> dict[str, int]:
        """Calls so far, by "operator@layer"."""
        return dict(self._hits.counts)

    def restore(self) -> None:
        """The model as it was. A second call does nothing.

        Raises RuntimeError if others have put their forward over an operator's (hooks of accelerate do):
        taking theirs away would break what they will restore. Once it is gone, call this again.
        """
        self._in = [
            (name, module, forward)
            for name, module, forward in self._in
            if not _take_out(module, forward)
        ]
        if self._in:
            names = [name for name, _, _ in self._in]
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise RuntimeError(
                f"restore: another forward was put over the operator in {names[0]}{more} and may still call it. "
                "Take that out first, then call restore() again; all other layers are as they were."
            )

    def __enter__(self) -> Swap:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.restore()

    def _put(self, module: nn.Module, name: str, replacement: Replacement, call: Any) -> None:
        refuse(foreign(module) or other_forward(module))
        hit = functools.partial(self._hits.add, replacement.operator, name)
        forward = replacement.bind(Place(module, name, type(module).forward, call, hit))
        method = MethodType(forward, module)
        module.forward = method  # type: ignore[method-assign]
        self._in.append((name, module, method))
        self.layers.setdefault(replacement.operator, []).append(name)


def _take_out(module: nn.Module, forward: MethodType) -> bool:
    """False if something else is there now."""
    if module.__dict__.get("forward", forward) is not forward:
        return False
    module.__dict__.pop("forward", None)
    return True


def use(
    model: nn.Module,
    ops: Iterable[str],
    implementations: Mapping[str, Callable[..., torch.Tensor]] | None = None,
) -> Swap:
    """Swaps operators into the layers of a transformers model that they can compute.

    Layers keep their parameters, modules and state dict; only their forward is another. Where a gradient
    is needed, and in a prefill, the original runs.

    Args:
        ops: "bias_gelu", "swiglu", "gdn_decode".
        implementations: callables to use instead of torch.ops.truefuse.NAME.

    Raises:
        RuntimeError: for a version of transformers that this was not tested with, an unknown operator, an
            operator that this build lacks, a model without a layer for it, or one that is in already.
    """
    _check_version(transformers.__version__)
    wanted = [ops] if isinstance(ops, str) else list(ops)
    unknown = [name for name in wanted if name not in OPERATORS]
    if unknown or not wanted:
        given = f"'{unknown[0]}'" if unknown else "none"
        raise RuntimeError(f"use: ops has {given}; operators are {', '.join(OPERATORS)}.")
    swap = Swap()
    disabled = _disabled()
    swap.disabled = tuple(name for name in wanted if name in disabled)
    try:
        for name in wanted:
            if name not in disabled:
                _swap_in(swap, model, name, implementations or {})
    except BaseException:
        swap.restore()
        raise
    return swap


def _swap_in(
    swap: Swap, model: nn.Module, operator: str, implementations: Mapping[str, Any]
) -> None:
    call = implementations.get(operator) or _of_library(operator)
    table = {
        kind: replacement
        for replacement in REPLACEMENTS
        if replacement.operator == operator
        for kind in replacement.classes
    }
    for name, module in model.named_modules():
        replacement = table.get(type(module).__name__)
        if replacement is None:
            continue
        if getattr(module.forward, "__module__", "").startswith("truefuse."):
            raise RuntimeError(
                f"use: {name or type(model).__name__} has an operator in it already; restore() the "
                "earlier use first."
            )
        try:
            swap._put(module, name or type(module).__name__, replacement, call)
        except Unsupported as reason:
            swap.skipped[name] = str(reason)
    if operator not in swap.layers:
        reasons = "; ".join(_by_reason(swap.skipped))
        raise RuntimeError(
            f"use: {type(model).__name__} has no layer that {operator} can compute. It replaces "
            f"{', '.join(table)}{'; skipped ' + reasons if reasons else ''}."
        )


def _by_reason(skipped: Mapping[str, str]) -> Iterator[str]:
    """A model has dozens of layers, and mostly one reason for all."""
    names: dict[str, list[str]] = {}
    for name, reason in skipped.items():
        names.setdefault(reason, []).append(name)
    for reason, (first, *others) in names.items():
        yield f"{first}{f' and {len(others)} more' if others else ''}: {reason}"


def _of_library(operator: str) -> Callable[..., torch.Tensor]:
    import truefuse  # noqa: F401  (registers torch.ops.truefuse)

    found = getattr(torch.ops.truefuse, operator, None)
    if found is None:
        raise RuntimeError(
            f"use: this build of truefuse has no operator {operator}. Build one that has it, or pass "
            f"implementations={{'{operator}': a callable}}."
        )
    # These layers store act(gate) in the rows' dtype before they multiply.
    return functools.partial(found, gate_rounding="storage") if operator == "swiglu" else found


def _check_version(version: str) -> None:
    if ".".join(version.split(".")[:2]) not in TESTED:
        raise RuntimeError(
            f"use: this is transformers {version}; the layers that are replaced were tested with "
            f"{', '.join(TESTED)}, and others may compute something else under the same names. Install one "
            "of them."
        )


def _disabled() -> set[str]:
    """Of TRUEFUSE_DISABLE, a list with commas: operators, or "all"."""
    named = {name.strip() for name in os.environ.get("TRUEFUSE_DISABLE", "").split(",")} - {""}
    unknown = named - {"all", *OPERATORS}
    if unknown:
        raise RuntimeError(
            f"TRUEFUSE_DISABLE names '{min(unknown)}'; it is \"all\" or of {', '.join(OPERATORS)}."
        )
    return set(OPERATORS) if "all" in named else named
