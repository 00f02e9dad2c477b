"""How steady the gate's verdicts are, in counts.

    python bench/marks/gate.py [--runs 50] [--adversarial 10] [--slower 0.2] [--output FILE]

- the same operator against itself, at every size: how often it is called FASTER or SLOWER (wanted: never);
- the operator against itself with some of its own work repeated, so that it takes `--slower` longer: how
  often it is called SLOWER than the plain one (wanted: 48 of 50), and how much longer it was seen to take.
  At the last size, which on a GPU has to be one whose kernel takes longer than a call's own overhead;
- tests/adversarial, ten times: whether every verdict stays the same.

Runs where truefuse runs, on the GPU if there is one. A busy machine shows in the load that is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from truefuse import case as cases
from truefuse import environment, measure
from truefuse.context import Context

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--adversarial", type=int, default=10)
    gpu = torch.cuda.is_available()
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
    for size, share in [*((size, 0.0) for size in sizes), (sizes[-1], asked.slower)]:
        row = verdicts(device, size, asked.runs, share)
        found["verdicts"].append(row)
        print(f"{row}", flush=True)
    found["adversarial"] = adversarial(asked.adversarial)
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
    one = replace(case, candidate=candidate, baselines={"plain": plain}, timing_sizes=(size,))
    counts: dict[str, int] = {}
    speedups = []
    for run in range(runs):
        with torch.no_grad():
            shape = measure.measure(Context(one, device, run))["shapes"][0]
        baseline = shape["baselines"][0]
        counts[baseline["verdict"]] = counts.get(baseline["verdict"], 0) + 1
        speedups.append(baseline["speedup"]["value"])
        print(f"  {size} {share:g} {run + 1}/{runs}: {baseline['verdict']}", file=sys.stderr)
    return {
        "size": size,
        "slowed": share,
        "runs": runs,
        "verdicts": counts,
        "speedup": {
            "median": statistics.median(speedups),
            "least": min(speedups),
            "most": max(speedups),
        },
    }


def adversarial(runs: int) -> dict[str, Any]:
    """Outcomes of the tests, by test; those that differ between runs are named."""
    seen: dict[str, set[str]] = {}
    for _ in range(runs):
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-rA",
                "-p",
                "no:cacheprovider",
                "tests/adversarial",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        for line in done.stdout.splitlines():
            outcome, _, test = line.partition(" ")
            if outcome in ("PASSED", "FAILED", "ERROR", "SKIPPED"):
                seen.setdefault(test.split(" - ")[0], set()).add(outcome)
    changed = sorted(test for test, outcomes in seen.items() if len(outcomes) > 1)
    passed = sum(outcomes == {"PASSED"} for outcomes in seen.values())
    return {"runs": runs, "tests": len(seen), "passed_every_time": passed, "changed": changed}


if __name__ == "__main__":
    main()
