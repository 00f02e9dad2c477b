"""Options of a module are refused where it is made, not at its first call."""

from __future__ import annotations

from functools import cache

from truefuse import _native


def require(operator: str, **options: str) -> None:
    """Raises ValueError unless the operator's contract allows each."""
    for name, value in options.items():
        allowed = _texts(operator)[name]
        if value not in allowed:
            wanted = " or ".join(f'"{text}"' for text in allowed)
            raise ValueError(f"{name} is {value!r}; it must be {wanted}")


@cache
def _texts(operator: str) -> dict[str, list[str]]:
    """By argument, what it may be."""
    named = {(one["namespace"], one["name"]): one["contract"] for one in _native.operators()}
    contract = named["truefuse", operator]
    return {one["name"]: one["values"] for one in contract["arguments"] if one["kind"] == "string"}
