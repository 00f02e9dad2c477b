"""Every kernel variant for every target: what it needs, and the rules that it has to keep."""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from truefuse import _native

Row = dict[str, Any]

TARGETS = ("gfx906", "gfx908", "gfx90a", "gfx1030", "sm_80", "sm_90a", "sm_100")
# Waves that can be resident, of those that the target has room for; below, memory latency shows.
OCCUPANCY_FLOOR = 0.2
# On AMD, scalar registers may be kept in lanes of vector registers: no memory is touched.
SCALAR_SPILLS = 256
# Memory of a lane. NVIDIA's assembler may put a value or two there to have more waves resident.
SCRATCH_BYTES = 32

_table = _native._declare("truefuse_compile_table", ctypes.c_char_p, ctypes.c_int)


def compile_all(arch: str) -> list[Row]:
    """A row per variant of every operator; `error` instead of figures where it does not compile."""
    jobs = len(os.sched_getaffinity(0))
    return [{"arch": arch, **row} for row in _native._answer(_table(arch.encode(), jobs))]


def wave_of(arch: str) -> int:
    return 64 if arch.startswith("gfx9") else 32


def complaints(rows: Sequence[Row]) -> list[str]:
    """Which rule which row breaks; empty if all is well."""
    found = [text for row in rows for text in _alone(row)]
    return found + _shared_memory(rows)


def _alone(row: Row) -> list[str]:
    where = f"{row['arch']} {row['operator']} {row['label']}"
    if "error" in row:
        return [f"{where}: does not compile: {row['error'].splitlines()[0]}"]
    found = []
    if row["scratch_bytes"] > SCRATCH_BYTES:
        found.append(f"{row['scratch_bytes']} bytes of scratch memory, {row['spills']} spills")
    elif row["spills"] > SCALAR_SPILLS:
        found.append(f"{row['spills']} spills")
    if row["wave"] not in (-1, wave_of(row["arch"])):
        found.append(
            f"a wave of {row['wave']} in the object; the target has {wave_of(row['arch'])}"
        )
    share = (
        row["occupancy"] / row["occupancy_maximum"] if (row["occupancy_maximum"] or 0) > 0 else 1
    )
    if share < OCCUPANCY_FLOOR:
        found.append(f"occupancy {share:.0%} is below {OCCUPANCY_FLOOR:.0%}")
    if "vector" in row["label"].split() and row["wide_loads"] == 0:
        found.append("no 16-byte load, though the variant is called vector")
    return [f"{where}: {text}" for text in found]


def _shared_memory(rows: Sequence[Row]) -> list[str]:
    """A kernel declares its shared memory, so targets with one wave size have the same; LLVM may put
    an array of a lane there by itself. Larger waves have fewer partial results to keep."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if "error" not in row and row["shared_bytes"] >= 0:
            groups[row["operator"], row["label"]].append(row)
    found = []
    for (operator, label), group in groups.items():
        least = {
            wave: min(
                (r["shared_bytes"] for r in group if wave_of(r["arch"]) == wave), default=None
            )
            for wave in (32, 64)
        }
        for row in group:
            allowed = least[wave_of(row["arch"])]
            if least[32] is not None:
                allowed = min(allowed, least[32])
            if row["shared_bytes"] > allowed:
                found.append(
                    f"{row['arch']} {operator} {label}: {row['shared_bytes']} bytes of shared memory, "
                    f"{allowed} elsewhere"
                )
    return found


def summary(rows: Sequence[Row]) -> list[list[str]]:
    """A line per operator and target: the worst over its variants."""
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["operator"], row["arch"]].append(row)
    lines = []
    for (operator, arch), group in groups.items():
        good = [row for row in group if "error" not in row]
        if not good:
            lines.append([operator, arch, f"0 of {len(group)}", *["-"] * 7])
            continue
        share = min(good, key=lambda row: row["occupancy"] / (row["occupancy_maximum"] or 1))
        vectors = [r["wide_loads"] for r in good if "vector" in r["label"].split()]
        lines.append(
            [
                operator,
                arch,
                f"{len(good)} of {len(group)}",
                f"{good[0]['compiler']}",
                _stated(max(row["registers"] for row in good)),
                _stated(max(row["shared_bytes"] for row in good)),
                _stated(max(row["scratch_bytes"] for row in good)),
                _stated(max(row["spills"] for row in good)),
                f"{share['occupancy']:g}/{share['occupancy_maximum']:g} {share['occupancy_unit']}"
                if share["occupancy_maximum"] > 0
                else "-",
                _stated(min(vectors, default=-1)),
            ]
        )
    return lines


def _stated(value: int) -> str:
    return str(value) if value >= 0 else "-"


HEADER = (
    "operator", "target", "variants", "compiler", "registers", "shared B", "scratch B", "spills",
    "occupancy, least", "16-byte loads",
)  # fmt: skip


def text(rows: Sequence[Row]) -> list[str]:
    """The table in columns."""
    lines = [list(HEADER), *summary(rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def markdown(rows: Sequence[Row]) -> str:
    """The page docs/targets.md."""
    lines = [
        "# Targets",
        "",
        "Written by `truefuse compile --all --table --write docs/targets.md`: every variant of every",
        "kernel, compiled without a device. Registers, shared memory, scratch and spills are the most,",
        "occupancy and 16-byte loads (of variants called `vector`) the least over the variants; `-`: the",
        "object does not say, or there is no disassembler for it. The rules, which a test keeps: everything",
        "compiles; at most 32 bytes of scratch, so that no more than a few values are spilled to memory",
        "(AMD's scalar registers may be kept in vector registers, 256 at most); the wave size in the object is",
        "the target's; at least a fifth of the resident waves; 16-byte loads where the variant is called",
        "`vector`; no shared memory that other targets with the same wave size do not have.",
        "",
        "Compiled is not run: what has run on which device is in the READMEs and in `bench/`.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + "---|" * len(HEADER),
    ]
    lines += ["| " + " | ".join(line) + " |" for line in summary(rows)]
    return "\n".join(lines) + "\n"
