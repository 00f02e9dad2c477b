"""Cheats and accidents that have fooled somebody in public, as tiny candidates; each with its honest twin.
A row says which gate has to catch it.
"""

from __future__ import annotations

from cheats import behaviour, between, gpu, memory, numerics, selective, surroundings, training
from cheats.common import Row

ROWS: tuple[Row, ...] = (
    *memory.ROWS,
    *numerics.ROWS,
    *behaviour.ROWS,
    *training.ROWS,
    *selective.ROWS,
    *between.ROWS,
    *surroundings.ROWS,
    *gpu.ROWS,
)

# Rows of the collection of public cases that have no candidate here.
LEFT_OUT: dict[str, str] = {
    "A7": "a lint that turned away honest graph replays: no lint is used here",
    "N5": "TF32 in matmul: only on a GPU with tensor cores; A10 is the same fault on any device",
    "N6": "a tolerance keyed on the wrong dtype: the rule here has one table, tested in N4 and N7",
    "N11 at its real size": "needs more than 2^31 elements; the GPU tests of each operator have them",
    "N12": "experts with unequal load: no such operator",
    "N15, M1-M4": "whole models: the comparison of models has its own tests",
    "N16": "timing on zeros: both sides get the same inputs by construction",
    "U2-U4": "the same fault as A1",
    "O2": "memory freed while a kernel uses it: needs a second stream; see A4 on a GPU",
    "B1-B3": "caches that survive a flush: no flush is relied on, inputs rotate",
    "B4, B5, B6, B12": "timers that miss work: no profiler is a clock here; two clocks are compared",
    "B8, B9": "bimodal and A/A runs: tested with synthetic timers",
    "memory of an argument used again by whoever knows that nobody else holds it": "nobody can tell, and what is "
    "timed is always held; where others look at that memory the row 'overwritten by its last holder' sees it",
    "one wrong call in ten thousand, or the first after an hour": "whatever number is tried, a larger one is not",
    "memory taken beside PyTorch's allocator": "NumPy's and malloc's are not in the figure of memory, which says whose "
    "it is",
    "wrong at sizes beyond all that are tried": "as N11: a case names the sizes that its operator is for",
    "a candidate that recognises the judge": "it runs in the same process and can read its stack",
    "a baseline slow by its own doing": "only needless copies and float64 are looked for",
    "B11": "baselines with other settings: flags are compared before and after each side",
}
