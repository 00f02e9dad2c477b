"""What operators do under torch.vmap, from their contracts.

Where every tensor that is batched, and every result, has leading dimensions under one name (`rows..`),
the batch is one more of them: one call, in which tensors that are not batched are expanded. Otherwise (a
bias for each, gradients that are summed over the rows) one call for each of the batch, stacked.

How a batched tensor lies in memory is the choice of the rules of other operators: one that does not lie
as the contract asks is copied, not refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from truefuse import _native


def register_vmap(operator: str) -> None:
    """The rule for a registered operator, "namespace::name", that does not write its arguments. Raises
    RuntimeError for another."""
    for known in _native.operators():
        if f"{known['namespace']}::{known['name']}" == operator:
            _register(operator, known["contract"])
            return
    raise RuntimeError(f"register_vmap: the operator '{operator}' is not registered")


def register_all() -> None:
    """For every operator that is registered and does not write its arguments."""
    for known in _native.operators():
        if not any(argument.get("mutated") for argument in known["contract"]["arguments"]):
            _register(f"{known['namespace']}::{known['name']}", known["contract"])


def _register(operator: str, contract: dict[str, Any]) -> None:
    arguments, outputs = contract["arguments"], contract["outputs"]
    if any(argument.get("mutated") for argument in arguments):
        raise RuntimeError(f"register_vmap: '{operator}' writes its arguments")
    namespace, name = operator.split("::")
    overload = getattr(getattr(torch.ops, namespace), name).default
    names = [argument["name"] for argument in arguments]
    layouts = {argument["name"]: argument.get("layout") for argument in arguments}

    def rule(info: Any, in_dims: tuple[int | None, ...], *given: Any, **options: Any) -> Any:
        # Keywords are never tensors.
        call = dict(zip(names, given, strict=False)) | options
        batched = {
            key: _laid_out(value.movedim(dim, 0), layouts[key])
            for (key, value), dim in zip(call.items(), in_dims, strict=False)
            if isinstance(value, Tensor) and dim is not None
        }
        missing = [output["if"] is not None and not call[output["if"]] for output in outputs]
        packs = {argument["pack"] for argument in arguments if argument["name"] in batched}
        packs |= {
            output["pack"] for output, absent in zip(outputs, missing, strict=True) if not absent
        }
        if len(packs) == 1 and None not in packs:
            for argument in arguments:
                key = argument["name"]
                if argument.get("pack") and key not in batched and call[key] is not None:
                    wide = call[key].expand(info.batch_size, *call[key].shape)
                    call[key] = _laid_out(wide, layouts[key])
            results = _called(overload, names, call | batched, len(given))
            dims = [None if absent else 0 for absent in missing]
        else:
            if info.batch_size == 0:
                raise RuntimeError(
                    f"{name}: vmap over a batch of 0, where the batch is no leading dimension of every "
                    "tensor and nothing says what shape the results have. Leave the call out"
                )
            each = [
                _called(overload, names, call | {k: v[b] for k, v in batched.items()}, len(given))
                for b in range(info.batch_size)
            ]
            results = [torch.stack(parts) for parts in zip(*each, strict=True)]
            dims = [0 for _ in outputs]
        return (results[0], dims[0]) if len(outputs) == 1 else (tuple(results), tuple(dims))

    torch.library.register_vmap(operator, rule)


def _laid_out(tensor: Tensor, layout: str | None) -> Tensor:
    if layout == "strided" or (layout == "rows-strided" and tensor.stride(-1) == 1):
        return tensor
    return tensor.contiguous()


def _called(overload: Any, names: list[str], call: dict[str, Any], positional: int) -> list[Tensor]:
    options = {name: call[name] for name in names[positional:] if name in call}
    found = overload(*(call[name] for name in names[:positional]), **options)
    return [found] if isinstance(found, Tensor) else list(found)
