"""Launch policies of an operator, one after the other: what each needs, whether it computes the same, and
then how long it takes. A policy reaches the plan as a user's choice does, through the tuning file, in
processes of their own."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from truefuse import supervise
from truefuse.report import replace_file
from truefuse.verdict import INTERRUPTED, Status

THREADS, ROWS, BYTES = (128, 256, 512), (1, 2, 4), (16, 8)
DTYPES = ("f32", "f64", "bf16", "f16")
# A choice has to be faster than the standard by more than what two runs differ by.
LEAST_GAIN = 0.02


@dataclass(frozen=True)
class Policy:
    """`threads` of a block, `rows` of vectors of so many `bytes` that a thread loads at once; none: as the
    plan has it."""

    threads: int | None = None
    rows: int | None = None
    bytes: int = 16

    def __str__(self) -> str:
        if self.threads is None:
            return "standard"
        return f"threads={self.threads} rows={self.rows} bytes={self.bytes}"


STANDARD = Policy()


def policies(
    threads: Sequence[int] = THREADS, rows: Sequence[int] = ROWS, bytes: Sequence[int] = BYTES
) -> list[Policy]:
    """The standard and every combination."""
    return [STANDARD, *(Policy(t, r, b) for b, t, r in itertools.product(bytes, threads, rows))]


@dataclass
class Row:
    """One policy on one target."""

    target: str
    policy: Policy
    variants: list[dict[str, Any]]  # label, registers, spills, occupancy
    refused: str = ""  # by which gate; then there is no time
    microseconds: dict[str, float] = field(default_factory=dict)  # by dtype

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "policy": str(self.policy)}


def lines(policy: Policy, arch: str, operator: str, dtypes: Sequence[str] = DTYPES) -> str:
    """Of a tuning file."""
    if policy == STANDARD:
        return ""
    base = arch.partition(":")[0]
    return "".join(f"{base} {operator} {dtype} {policy}\n" for dtype in dtypes)


def compiled(operator: str, arch: str, policy: Policy) -> Row:
    """What the kernels that are shown need. Raises RuntimeError where one does not compile."""
    with _environment(lines(policy, arch, operator)) as environment:
        command = [sys.executable, "-m", "truefuse", "compile", operator, "--arch", arch, "--json"]
        found = _json_of(command, environment)
    variants = []
    for one in found:
        if not one["ok"]:
            raise RuntimeError(f"{operator} {one['label']} for {arch}, {policy}: {one['error']}")
        occupancy = one["occupancy"]
        variants.append(
            {
                "label": one["label"],
                "registers": one["resources"]["registers"],
                "spills": one["resources"]["spills"],
                "occupancy": [occupancy["value"], occupancy["maximum"], occupancy["unit"]],
            }
        )
    return Row(arch, policy, variants)


def case_and_gates(operator: str) -> tuple[str, tuple[str, ...]]:
    """The case that uses an operator, and the gates that see its results."""
    case = operator.removesuffix("_backward")
    return case, ("edges", "numerics") if case == operator else ("training", "gradients")


def refusal(operator: str, device: str, arch: str, policy: Policy, seed: int) -> str:
    """The gate that turns the policy away; empty if none does."""
    case, gates = case_and_gates(operator)
    with _environment(lines(policy, arch, operator)) as environment:
        request = supervise.Request(case, device, seed, gates, environment=environment)
        report = supervise.run(request)
    for result in report.results:
        if result.reason == INTERRUPTED:
            signal.raise_signal(signal.Signals[result.got])
    bad = [result for result in report.results if result.status is not Status.PASS]
    return f"{bad[0].gate}: {bad[0].summary}" if bad or not report.results else ""


def timed(operator: str, device: str, arch: str, policy: Policy, seed: int) -> dict[str, float]:
    """Microseconds of device time by dtype, cold, at the largest size of the case."""
    with _environment(lines(policy, arch, operator)) as environment:
        asked = json.dumps({"operator": operator, "device": device, "seed": seed})
        return _json_of([sys.executable, "-m", "truefuse.tuning_worker", asked], environment)


def sweep(
    operator: str,
    targets: Sequence[str],
    device: str | None,
    seed: int,
    chosen: Sequence[Policy],
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[Row]:
    """With a device (then the one target is its own) a policy is timed once the gates let it pass;
    without one nothing is."""
    for target in targets:
        for policy in chosen:
            progress(f"{target} {policy}")
            row = compiled(operator, target, policy)
            if device is not None:
                row.refused = refusal(operator, device, target, policy, seed)
                if not row.refused:
                    row.microseconds = timed(operator, device, target, policy, seed)
            yield row


def choices(rows: Sequence[Row]) -> dict[str, Policy]:
    """By dtype, the fastest policy that is faster than the standard."""
    standard = next((row.microseconds for row in rows if row.policy == STANDARD), {})
    chosen = {}
    for dtype, ours in standard.items():
        best = min(
            (row for row in rows if dtype in row.microseconds),
            key=lambda row: row.microseconds[dtype],
        )
        if best.microseconds[dtype] < (1 - LEAST_GAIN) * ours:
            chosen[dtype] = best.policy
    return chosen


def save(path: Path, arch: str, operator: str, chosen: dict[str, Policy]) -> None:
    """Replaces what the file says of this operator on this architecture."""
    base = arch.partition(":")[0]
    kept = [
        line
        for line in (path.read_text("utf-8").splitlines() if path.is_file() else [])
        if line.split()[:2] != [base, operator]
    ]
    new = [lines(policy, arch, operator, (dtype,)).strip() for dtype, policy in chosen.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, "".join(f"{line}\n" for line in (*kept, *new)))


def user_file() -> Path:
    """As the library finds it."""
    if "TRUEFUSE_TUNING" in os.environ:
        return Path(os.environ["TRUEFUSE_TUNING"])
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "truefuse" / "tuning.txt"


@contextmanager
def _environment(text: str) -> Iterator[dict[str, str]]:
    """TRUEFUSE_TUNING as a file with this text. It has no name that could stay behind if this process is killed:
    others open it through this one."""
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield {"TRUEFUSE_TUNING": f"/proc/{os.getpid()}/fd/{file.fileno()}"}


def _json_of(command: list[str], environment: dict[str, str]) -> Any:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(done.stderr.strip()[-2000:] or f"{command} said nothing") from None
