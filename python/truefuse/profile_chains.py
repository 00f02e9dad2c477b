"""Chains of operators that could be one kernel, and what that could save at most."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from truefuse.profile_ops import Op, Profile
from truefuse.stats import INDIFFERENCE

SHOWN_LENGTH = 12  # operators of a chain that are named


@dataclass
class Chain:
    """Operators that pass values to one another; `before` and `after` are bytes moved, as they are and
    as one kernel that reads each input and writes each result once."""

    ops: list[int]
    names: tuple[str, ...] = ()
    seconds: float = 0.0
    before: int = 0
    after: int = 0


@dataclass
class Group:
    """Equal chains. `bound` is the most that fusing all of them could speed up the whole: Amdahl's law
    with a kernel that is limited by the bytes it has to move, or by being one launch for many."""

    names: tuple[str, ...]
    count: int = 0
    seconds: float = 0.0
    before: int = 0
    after: int = 0
    share: float = field(default=0.0)

    @property
    def saved(self) -> int:
        return self.before - self.after

    @property
    def bound(self) -> float:
        left = min(self.after / self.before, 1 / len(self.names)) if self.before else 1.0
        return 1 / (1 - self.share * (1 - left))

    @property
    def label(self) -> str:
        if len(self.names) <= SHOWN_LENGTH:
            return " → ".join(self.names)
        return f"{' → '.join(self.names[:SHOWN_LENGTH])} → … ({len(self.names)})"

    def to_json(self) -> dict[str, Any]:
        return {
            "operators": list(self.names),
            "count": self.count,
            "share": self.share,
            "bytes_before": self.before,
            "bytes_saved": self.saved,
            "bound": self.bound,
        }


def groups(profile: Profile) -> list[Group]:
    """Those that save bytes, the most promising first."""
    found: dict[tuple[str, ...], Group] = {}
    for chain in chains(profile.ops):
        group = found.setdefault(chain.names, Group(chain.names))
        group.count += 1
        group.seconds += chain.seconds
        group.before += chain.before
        group.after += chain.after
    whole = profile.seconds
    for group in found.values():
        group.share = group.seconds / whole if whole else 0.0
    saving = [group for group in found.values() if group.saved > 0]
    return sorted(saving, key=lambda group: -group.bound)


def worth(group: Group) -> bool:
    return group.bound >= 1 + INDIFFERENCE


def chains(ops: list[Op]) -> list[Chain]:
    """An operator joins the chain of the last one whose result it reads, unless something that is not
    in the chain would have to run between the two."""
    writer: dict[object, int] = {}
    chain_of: dict[int, int] = {}
    found: dict[int, Chain] = {}
    waits: list[set[int]] = []  # chains that an operator waits for, its own included
    chain_waits: dict[int, set[int]] = {}
    for i, op in enumerate(ops):
        sources = sorted({writer[v.name] for v in op.reads if v.name in writer}, reverse=True)
        needed = set().union(*(waits[j] for j in sources)) if sources else set()
        if op.fusible:

            def can_join(chain: int, sources: list[int] = sources) -> bool:
                outside = [waits[j] for j in sources if chain_of.get(j) != chain]
                first = set().union(*outside) if outside else set()
                return chain not in first.union(*(chain_waits[c] for c in first))

            joined = (chain_of[j] for j in sources if j in chain_of)
            chain = next(filter(can_join, joined), i)
            found.setdefault(chain, Chain([])).ops.append(i)
            chain_of[i] = chain
            chain_waits.setdefault(chain, set()).update(needed - {chain})
            needed = needed | {chain}
        waits.append(needed)
        for value in op.writes:
            writer[value.name] = i
    several = [chain for chain in found.values() if len(chain.ops) > 1]
    readers = _readers(ops)
    for chain in several:
        _account(chain, ops, readers)
    return several


def _readers(ops: list[Op]) -> dict[object, set[int]]:
    readers: dict[object, set[int]] = {}
    for i, op in enumerate(ops):
        for value in op.reads:
            readers.setdefault(value.name, set()).add(i)
    return readers


def _account(chain: Chain, ops: list[Op], readers: dict[object, set[int]]) -> None:
    members = set(chain.ops)
    written: set[object] = set()
    inputs: dict[object, int] = {}
    for i in chain.ops:
        op = ops[i]
        chain.seconds += op.seconds
        chain.before += sum(value.bytes for value in (*op.reads, *op.writes))
        for value in op.reads:
            if value.name not in written:
                inputs[value.name] = max(inputs.get(value.name, 0), value.bytes)
        written.update(value.name for value in op.writes)
    results = {
        value.name: value.bytes
        for i in chain.ops
        for value in ops[i].writes
        # Read elsewhere, or by nobody that was seen: then it is a result.
        if not readers.get(value.name) or readers[value.name] - members
    }
    chain.after = sum(inputs.values()) + sum(results.values())
    chain.names = tuple(ops[i].name for i in chain.ops)
