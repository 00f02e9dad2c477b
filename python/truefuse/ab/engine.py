"""The A/B of a model: repeatability, hits and trajectory first, and only then its speed."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from truefuse import environment, launches, memory
from truefuse.ab import forced, gates, speed
from truefuse.ab.report import AbReport
from truefuse.ab.sides import Pass, Played, Request, Side, play
from truefuse.ab.states import STATE_BYTES
from truefuse.ab.trajectory import differences
from truefuse.verdict import Result, Status, Verdict, combine

MEASURE = "measure"
ROUNDS = 5
PEAK_TOKENS = 4  # of the one request whose memory and launches are followed


@dataclass(frozen=True)
class Place:
    """A device, with what the measuring functions ask of one."""

    device: torch.device

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class Unequal(Exception):
    """A timed pass had another trajectory or other hits than the judged one."""

    def __init__(self, status: Status, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def run(
    baseline: Side,
    candidate: Side,
    requests: Sequence[Request],
    *,
    device: torch.device | str = "cpu",
    mode: str = "free",
    equivalent: Side | None = None,
    rounds: int = ROUNDS,
    amdahl: Callable[[], speed.Amdahl | None] = lambda: None,
    name: str = "model",
    seed: int = 0,
    replay: str = "the same call of truefuse.ab.run",
    on_result: Callable[[Result], None] = lambda result: None,
    progress: Callable[[str], None] = lambda text: None,
    on_step: Callable[[str], None] = lambda name: None,
) -> AbReport:
    """Compares two sides over the same requests, in the order A B B A.

    `mode` "free" demands the same tokens, lengths and stop reasons. "forced" lets both sides decode
    the baseline's tokens and judges log-probabilities against those of `equivalent`, a side that is as
    right as the baseline but rounds otherwise. With `rounds` 0 nothing is timed. `amdahl` is asked only
    once every gate has passed.
    Raises ValueError for arguments that make no A/B.
    """
    _refuse_nonsense(requests, mode, rounds)
    lab = _Lab(baseline, candidate, list(requests), torch.device(device), seed, replay, progress)
    results: list[Result] = []

    def judge(name: str, gate: Callable[[], Result]) -> bool:
        on_step(name)
        results.append(lab.judged(name, gate))
        on_result(results[-1])
        return results[-1].status is Status.PASS

    performance = None
    if judge(gates.REPRODUCIBLE, lab.reproducible if mode == "free" else lab.forced_reproducible):
        judge(gates.RAN, lab.ran)
        if mode == "free":
            judge(gates.TRAJECTORY, lab.trajectory)
        else:
            judge(forced.LOG_PROBABILITIES, lambda: lab.log_probabilities(equivalent))
    if rounds and combine(results) is Verdict.ACCEPT:
        on_step(MEASURE)
        result, performance = lab.measured(rounds, amdahl)
        results.append(result)
        on_result(result)
    return AbReport(
        name=name,
        mode=mode,
        verdict=combine(results),
        device=str(lab.device),
        seed=seed,
        replay=replay,
        results=results,
        environment=environment.describe(lab.device),
        performance=performance,
    )


def _refuse_nonsense(requests: Sequence[Request], mode: str, rounds: int) -> None:
    if not requests:
        raise ValueError("requests: none given; an A/B needs at least one")
    if mode not in ("free", "forced"):
        raise ValueError(f'mode is "{mode}"; it must be "free" or "forced"')
    if rounds < 0:
        raise ValueError(f"rounds is {rounds}; it must be 0 (nothing is timed) or more")
    names = [request.name for request in requests]
    if len(set(names)) != len(names):
        raise ValueError("requests: two have the same name; the report could not tell them apart")
    for request in requests:
        try:
            copy.deepcopy(request.prompt)
        except Exception as error:
            raise ValueError(
                f"requests: the prompt of {request.name} cannot be copied ({error}); every run needs one of "
                "its own"
            ) from error
    idle = [request.name for request in requests if request.max_tokens < 1]
    if idle:
        raise ValueError(f"requests: {idle[0]} has max_tokens below 1; nothing would be decoded")


class _Lab:
    """The passes of one A/B; each gate runs those that it needs and no earlier gate has run."""

    def __init__(
        self,
        baseline: Side,
        candidate: Side,
        requests: list[Request],
        device: torch.device,
        seed: int,
        replay: str,
        progress: Callable[[str], None],
    ) -> None:
        self.sides = (baseline, candidate)
        self.requests = requests
        self.names = [request.name for request in requests]
        self.device = device
        self.seed = seed
        self.replay = replay
        self.progress = progress
        self.reference: Pass
        self.again: Pass
        self.swapped: Pass

    def observe(self, side: Side) -> Pass:
        self.progress(f"{side.name}: {len(self.requests)} requests")
        watched = [replace(request, observe=True) for request in self.requests]
        return play(side, watched, self.device, STATE_BYTES)

    def judged(self, name: str, gate: Callable[[], Result]) -> Result:
        """What the gate found. An exception is no verdict."""
        try:
            result = gate()
        except (Exception, SystemExit) as error:
            sentence = f"could not be judged: {type(error).__name__}: {error}"
            trace = traceback.format_exc()
            result = Result(name, Status.UNKNOWN, "gate-error", sentence, traceback=trace)
        result.seed, result.replay = self.seed, self.replay
        return result

    def reproducible(self) -> Result:
        self.reference, self.again = self.observe(self.sides[0]), self.observe(self.sides[0])
        return gates.reproducible(self.names, self.reference, self.again)

    def forced_reproducible(self) -> Result:
        """As reproducible; after it every side decodes the baseline's tokens."""
        result = self.reproducible()
        if result.status is Status.PASS:
            self.requests = [
                replace(request, forced=output.tokens, max_tokens=len(output.tokens or ()))
                for request, output in zip(self.requests, self.reference.outputs, strict=True)
            ]
            self.reference = self.observe(self.sides[0])
            self.again = self.observe(self.sides[0])
        return result

    def ran(self) -> Result:
        self.swapped = self.observe(self.sides[1])
        return gates.ran([self.reference, self.again], self.swapped, self.sides)

    def trajectory(self) -> Result:
        return gates.trajectory(self.names, self.reference, self.swapped)

    def log_probabilities(self, equivalent: Side | None) -> Result:
        other = self.observe(equivalent) if equivalent else None
        return forced.judge(self.names, self.reference, self.again, self.swapped, other)

    def measured(
        self, rounds: int, amdahl: Callable[[], speed.Amdahl | None]
    ) -> tuple[Result, dict[str, Any] | None]:
        performance = None

        def measure() -> Result:
            nonlocal performance
            try:
                performance = self._performance(rounds, amdahl)
            except Unequal as error:
                return Result(
                    MEASURE, error.status, "timed-pass-differs", str(error), got=str(error)
                )
            count = 4 * rounds * len(self.requests)
            return Result(MEASURE, Status.PASS, "measured", f"{count} timed trajectories compared")

        return self.judged(MEASURE, measure), performance

    def _performance(
        self, rounds: int, amdahl: Callable[[], speed.Amdahl | None]
    ) -> dict[str, Any]:
        timed: list[list[Pass]] = []
        for number in range(rounds):
            self.progress(f"round {number + 1} of {rounds}: A B B A")
            timed.append([self._timed(which) for which in (0, 1, 1, 0)])
        found = speed.metrics([tuple(map(timing, one)) for one in timed], self.seed)
        self.progress("launches and memory")
        share = amdahl()
        return {
            "device": str(self.device),
            "method": "host clock; requests one after the other, each token known on the host before "
            "the next; warm; passes in the order A B B A; medians of passes, 95 % bootstrap interval "
            "over pairs of passes",
            "rounds": rounds,
            "requests": len(self.requests),
            "metrics": found,
            "launches_per_token": self._launches(),
            "peak_memory": self._peak_memory(timed),
            "amdahl": speed.compared_with_amdahl(share, found["tpot"]) if share else None,
        }

    def _timed(self, which: int) -> Pass:
        side, judged = self.sides[which], (self.reference, self.swapped)[which]
        one = play(side, self.requests, self.device)
        found = differences(self.names, judged.outputs, one.outputs)
        if found:
            status = (Status.UNKNOWN, Status.FAIL)[which]
            raise Unequal(status, f"{side.name}, while it was timed: {found[0].sentence()}")
        if one.hits != judged.hits:
            raise Unequal(Status.UNKNOWN, f"{side.name}: other hits while it was timed: {one.hits}")
        return one

    def _short(self, which: int) -> tuple[Side, Callable[[], Played]]:
        request = self.requests[0]
        forced_tokens = request.forced and request.forced[:PEAK_TOKENS]
        tokens = min(PEAK_TOKENS, request.max_tokens)
        short = replace(request, max_tokens=tokens, forced=forced_tokens)
        side = self.sides[which]
        return side, lambda: play(replace(side, hits=None), [short], self.device).played[0]

    def _launches(self) -> dict[str, Any] | None:
        counts = []
        for which in (0, 1):
            _, call = self._short(which)
            count, produced = launches.count(Place(self.device), call), call().output.length
            counts.append(count / produced if count is not None and produced else None)
        return _counted("device activities", counts)

    def _peak_memory(self, timed: list[list[Pass]]) -> dict[str, Any] | None:
        if self.device.type == "cuda":
            peaks = [
                [one[i].peak_bytes or 0 for one in timed for i in pair] for pair in ((0, 3), (1, 2))
            ]
            return _counted("bytes allocated at most during a pass", [max(side) for side in peaks])
        found = [memory.peak(Place(self.device), self._short(i)[1])["allocated"] for i in (0, 1)]
        return _counted("live tensor bytes at most, beyond the model", found)


def _counted(unit: str, both: list[Any]) -> dict[str, Any] | None:
    if None in both:
        return None
    one, other = both
    verdict = "SAME" if one == other else "LESS" if other < one else "MORE"
    return {"unit": unit, "baseline": one, "candidate": other, "verdict": verdict}


def timing(one: Pass) -> speed.Timing:
    """What speed.metrics needs of a pass."""
    return speed.Timing(
        tokens=[played.output.length for played in one.played],
        totals=[played.total for played in one.played],
        first=[_first_token(played) for played in one.played],
    )


def _first_token(played: Played) -> float | None:
    """None where several tokens arrived at one time, as they do from a server or proxy that collects the
    whole answer: when the first of them was there is not known."""
    if len(set(played.times)) > 1 or (played.times and played.output.length == 1):
        return played.times[0]
    return None
