"""How steady the gate's verdicts are, in counts.

    python bench/marks/gate.py [--runs 50] [--adversarial 10] [--workers N] [--slower 0.2] [--output FILE]

- the same operator against itself, at every size: how often it is called FASTER or SLOWER (wanted: never);
- the operator against itself with some of its own work repeated, so that it takes `--slower` longer: how
  often it is called SLOWER than the plain one (wanted: 48 of 50), and how much longer it was seen to take.
  At the last size, which on a GPU has to be one whose kernel takes longer than a call's own overhead;
- tests/adversarial, each test ten times: whether every verdict stays the same. With pytest-xdist in `--workers`
  processes, each of which starts once; what is judged is made anew every time.

Of a measurement only the turns and their verdict are made, on inputs that are drawn on the device: that every
result is right and no call faster than memory is what the other counts are about. Runs where truefuse runs, on the
GPU if there is one. A busy machine shows in the load that is printed. `--runs 0` and `--adversarial 0` leave
theirs out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from truefuse import case as cases
from truefuse import environment, measure, turns
from truefuse.context import Context

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--adversarial", type=int, default=10)
    gpu = torch.cuda.is_available()
    # On a GPU most of their time is compiling; on a CPU they would take each other's.
    workers = min(12, os.cpu_count() or 1) if gpu else 1
    parser.add_argument("--workers", type=int, default=workers, help="of tests/adversarial")
    parser.add_argument("--slower", type=float, default=0.03 if gpu else 0.2)
    sizes = ["4096x1024", "16384x8192"] if gpu else ["4096x1024"]
    parser.add_argument("--sizes", nargs="+", default=sizes, help="rows x hidden")
    parser.add_argument("--output", type=Path)
    asked = parser.parse_args()
    device = torch.device("cuda:0" if gpu else "cpu")
    found: dict[str, Any] = {"load_before": os.getloadavg()[0], "slower": asked.slower}
    found["environment"] = environment.describe(device)
    print(environment.one_line(found["environment"]))
    sizes = [tuple(map(int, text.split("x"))) for text in asked.sizes]
    found["verdicts"] = []
    if asked.runs:
        for size, share in [*((size, 0.0) for size in sizes), (sizes[-1], asked.slower)]:
            row = verdicts(device, size, asked.runs, share)
            found["verdicts"].append(row)
            print(f"{row}", flush=True)
    if asked.adversarial:
        found["adversarial"] = adversarial(asked.adversarial, asked.workers)
        print(f"adversarial: {found['adversarial']}")
    found["load_after"] = os.getloadavg()[0]
    print(f"load before {found['load_before']:.1f}, after {found['load_after']:.1f}")
    if asked.output:
        asked.output.write_text(json.dumps(found, indent=1))


def verdicts(
    device: torch.device, size: tuple[int, ...], runs: int, share: float
) -> dict[str, Any]:
    """Counts of the candidate's verdicts, and the median of its speed-ups over the plain operator."""
    case = cases.load("swish")
    plain = case.candidate
    rows = round(share * size[0])

    def slowed(x: torch.Tensor) -> torch.Tensor:
        """Its own work again on a part of the rows."""
        plain(x[:rows])
        return plain(x)

    candidate = slowed if rows else plain
    one = replace(case, candidate=candidate, baselines={"plain": plain}, make_inputs=drawn)
    counts: dict[str, int] = {}
    speedups = []
    begin = time.perf_counter()
    for run in range(runs):
        with torch.no_grad():
            shape = turns.Shape(Context(one, device, run), size)
            _, found, _ = measure.verdicts(shape, shape.turns())
        baseline = found["plain"]
        counts[baseline["verdict"]] = counts.get(baseline["verdict"], 0) + 1
        speedups.append(baseline["speedup"]["value"])
        print(f"  {size} {share:g} {run + 1}/{runs}: {baseline['verdict']}", file=sys.stderr)
    return {
        "size": size,
        "slowed": share,
        "runs": runs,
        "seconds": time.perf_counter() - begin,
        "verdicts": counts,
        "speedup": {
            "median": statistics.median(speedups),
            "least": min(speedups),
            "most": max(speedups),
        },
    }


def drawn(
    size: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
    generator: torch.Generator,
    kind: str,
) -> dict[str, Any]:
    """As swish's own, drawn where they are used: a CPU takes seconds for each of the large ones."""
    there = torch.Generator(device).manual_seed(generator.initial_seed())
    return {"x": 3 * torch.randn(size, generator=there, dtype=dtype, device=device)}


def adversarial(times: int, workers: int) -> dict[str, Any]:
    """Outcomes of the tests, by test; those that differ between repetitions are named."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider"]
    if workers > 1 and importlib.util.find_spec("xdist"):
        command += ["-n", str(workers)]
    begin = time.perf_counter()
    done = subprocess.run(
        [*command, "--repeat", str(times), "tests/adversarial"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    seen: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        outcome, _, test = line.partition(" ")
        if outcome in ("PASSED", "FAILED", "ERROR", "SKIPPED"):
            name = re.sub(r"\[time\d+-", "[", test.split(" - ")[0])
            seen.setdefault(name, []).append(outcome)
    if not seen:
        raise SystemExit(f"tests/adversarial: nothing ran.\n{done.stdout}{done.stderr}")
    changed = sorted(test for test, outcomes in seen.items() if len(set(outcomes)) > 1)
    passed = sum(set(outcomes) == {"PASSED"} for outcomes in seen.values())
    return {
        "runs": times,
        "seconds": time.perf_counter() - begin,
        "tests": len(seen),
        "outcomes": sum(map(len, seen.values())),
        "passed_every_time": passed,
        "changed": changed,
    }


if __name__ == "__main__":
    main()
