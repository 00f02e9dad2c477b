"""The order of judging: repeatability, hits, trajectory, and only then speed."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import torch
from toy import REQUESTS, Toy, checked, gate, sides, speaks_of_speed

from truefuse import ab
from truefuse.ab.report import SCHEMA_PATH
from truefuse.ab.sides import play
from truefuse.verdict import Verdict


def test_an_equal_candidate_is_accepted_and_timed():
    report = ab.run(*sides(Toy()), REQUESTS, rounds=4)
    data = checked(report)
    assert report.label == "ACCEPT"
    assert [entry["gate"] for entry in data["gates"]] == [
        "reproducible",
        "ran",
        "trajectory",
        "measure",
    ]
    metrics = data["performance"]["metrics"]
    assert set(metrics) == {"throughput", "ttft", "tpot"}
    served = 5 * 4 * 2
    assert metrics["tpot"]["baseline"]["requests"] == served
    assert "max" in metrics["tpot"]["baseline"] and "p99" not in metrics["tpot"]["baseline"]
    assert metrics["tpot"]["passes"] == 8
    assert data["performance"]["launches_per_token"] is None  # nothing is launched on a CPU
    assert data["performance"]["peak_memory"]["verdict"] in ("LESS", "SAME", "MORE")


def test_without_rounds_output_is_judged_and_nothing_timed():
    data = checked(ab.run(*sides(Toy()), REQUESTS, rounds=0))
    assert data["verdict"] == "ACCEPT" and "performance" not in data
    assert [entry["gate"] for entry in data["gates"]] == ["reproducible", "ran", "trajectory"]
    assert checked(ab.run(*sides(transposed_after(0)), REQUESTS, rounds=0))["verdict"] == "REJECT"


def test_a_p99_needs_a_hundred_served_requests():
    report = ab.run(*sides(Toy()), REQUESTS, rounds=10)
    baseline = checked(report)["performance"]["metrics"]["tpot"]["baseline"]
    assert baseline["requests"] == 100 and baseline["p99"] > 0 and "max" not in baseline


def tokens(toy: Toy, request: ab.Request) -> list[int]:
    return [step.token for step in toy.run(request)]


def transposed_after(step: int):
    toy = Toy()
    calls = itertools.count()

    def layer(state, token):
        moved = toy.advance(state, token)
        return moved.flip(0) if next(calls) >= step else moved

    return Toy(layer)


def test_another_trajectory_is_rejected_without_any_ratio():
    report = ab.run(*sides(transposed_after(0)), REQUESTS)
    data = checked(report)
    assert report.verdict is Verdict.REJECT and report.exit_code == 1
    found = gate(data, "trajectory")
    apart = sum(tokens(Toy(), r) != tokens(transposed_after(0), r) for r in REQUESTS)
    assert found["numbers"]["differing"] == apart > 3
    assert found["numbers"]["first_parted"]["layer"] == "layers.1"
    assert "request 0 (r0), token" in found["summary"] and "layers.1" in found["summary"]
    assert "margin of the logits" in found["first"]
    assert not speaks_of_speed(data["gates"])


def test_the_first_difference_is_located_exactly():
    # The prompt of two tokens, then four decode steps: the next one is the first that can differ.
    candidate = transposed_after(2 + 4)
    data = checked(ab.run(*sides(candidate), REQUESTS[:1]))
    first = gate(data, "trajectory")["numbers"]["differences"][0]
    wanted, got = tokens(Toy(), REQUESTS[0]), tokens(transposed_after(2 + 4), REQUESTS[0])
    position = next(i for i, (a, b) in enumerate(zip(wanted, got, strict=True)) if a != b)
    assert position >= 5
    assert (first["position"], first["baseline"], first["candidate"]) == (
        position,
        str(wanted[position]),
        str(got[position]),
    )


def stops_early(request: ab.Request) -> Iterator[ab.Step]:
    for step, _ in zip(Toy().run(request), range(6), strict=False):
        yield step
    return "eos"


def leaves(request: ab.Request) -> Iterator[ab.Step]:
    """What a program does that has found its input to be all right: the exit status is an acceptance's."""
    for step, _ in zip(Toy().run(request), range(3), strict=False):
        yield step
    raise SystemExit(0)


def other_stop(request: ab.Request) -> Iterator[ab.Step]:
    yield from Toy().run(request)
    return "eos"


def fails_late(request: ab.Request) -> Iterator[ab.Step]:
    for count, step in enumerate(Toy().run(request)):
        if count == 3:
            raise RuntimeError("state is bfloat16; it must be float32")
        yield step


@pytest.mark.parametrize(
    ("run", "kind"),
    [(stops_early, "length"), (other_stop, "stop"), (fails_late, "error"), (leaves, "error")],
)
def test_lengths_stop_reasons_and_failures_are_differences(run, kind):
    baseline, candidate = sides(Toy(), "toy")
    data = checked(ab.run(baseline, replace(candidate, run=run, hits=lambda: {"toy": 1}), REQUESTS))
    # Hits that do not grow are no hits; the trajectory is judged all the same.
    assert data["verdict"] == "REJECT"
    assert gate(data, "trajectory")["numbers"]["differences"][0]["kind"] == kind


def test_a_side_that_cannot_be_entered_without_leaving_is_unknown():
    baseline, candidate = sides(Toy())

    def entered():
        raise SystemExit(0)

    report = ab.run(baseline, replace(candidate, active=entered), REQUESTS)
    assert report.exit_code == 3 and gate(checked(report), "ran")["reason"] == "gate-error"


def test_a_baseline_that_does_not_repeat_itself_judges_nobody():
    toy = Toy()
    noise = itertools.count()

    def unsteady(request: ab.Request) -> Iterator[ab.Step]:
        for step in toy.run(request):
            yield replace(step, token=(step.token + next(noise) // 40) % 11)
        return "length"

    _, candidate = sides(Toy())
    report = ab.run(ab.Side("baseline", unsteady, hits=dict), candidate, REQUESTS)
    data = checked(report)
    assert report.verdict is Verdict.UNKNOWN and report.exit_code == 3
    found = gate(data, "reproducible")
    assert found["reason"] == "workload-not-reproducible" and "/5 requests" in found["summary"]
    assert "concurrency 1" in found["summary"] and "prefix cache" in found["summary"]
    assert "performance" not in data and len(data["gates"]) == 1


def test_a_baseline_that_fails_is_said_in_its_words():
    _, candidate = sides(Toy())
    report = ab.run(ab.Side("baseline", fails_late, hits=dict), candidate, REQUESTS)
    assert report.verdict is Verdict.UNKNOWN
    assert "state is bfloat16" in report.results[0].summary


@pytest.mark.parametrize(
    ("run", "reason", "words"),
    [
        (lambda request: None, "baseline-failed", "returned None; it must be a generator"),
        (
            lambda request: iter([3, 4]),
            "baseline-failed",
            "yielded a int; it must be a truefuse.ab.Step",
        ),
        (lambda request: iter([ab.Step(0.5)]), "baseline-failed", "'float' object cannot be"),
        (lambda request: 1 // 0, "baseline-failed", "ZeroDivisionError"),
        (lambda request: iter(()), "nothing-generated", "nothing in any of 5 requests"),
        (
            lambda request: iter([ab.Step(1, math.nan, 1, math.nan)]),
            "logits-not-finite",
            "not finite at request r0, token 0",
        ),
    ],
)
def test_a_baseline_that_does_not_decode_judges_nobody(run, reason, words):
    _, candidate = sides(Toy())
    report = ab.run(ab.Side("baseline", run, hits=dict), candidate, REQUESTS)
    assert report.verdict is Verdict.UNKNOWN and "performance" not in checked(report)
    assert report.results[0].reason == reason and words in report.results[0].summary


def test_a_side_that_changes_its_prompt_changes_no_other_run():
    baseline, candidate = sides(toy := Toy())

    def careless(request):
        yield from toy.run(request)
        request.prompt.clear()
        return "length"

    report = ab.run(baseline, replace(candidate, run=careless), REQUESTS, rounds=4)
    assert report.verdict is Verdict.ACCEPT and REQUESTS[0].prompt == [1, 2]
    shared = ab.Request("open", open(__file__), 4)
    with shared.prompt, pytest.raises(ValueError, match="prompt of open cannot be copied"):
        ab.run(baseline, candidate, [shared])


def test_every_reason_that_leaves_no_figure_is_on_the_page():
    folder = Path(ab.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    reasons = set(re.findall(r'Status\.(?:UNKNOWN|FAIL),\s*"([a-z-]+)"', text))
    reasons |= {"log-probabilities-differ", "flip-beyond-noise", "timed-pass-differs"}
    assert len(reasons) > 12
    page = (Path(__file__).parents[3] / "docs" / "voids.md").read_text(encoding="utf-8")
    assert not [reason for reason in reasons if f"`{reason}`" not in page]


@pytest.mark.parametrize(
    ("baseline_hits", "candidate_hits", "reason"),
    [
        (dict, dict, "candidate-never-ran"),
        (None, None, "hits-not-counted"),
        ("grows", "grows", "baseline-uses-it"),
    ],
)
def test_an_operator_that_did_not_run_is_unknown(baseline_hits, candidate_hits, reason):
    count = itertools.count(1)

    def counter(kind):
        return (lambda: {"toy@0": next(count)}) if kind == "grows" else kind

    one = ab.Side("baseline", Toy().run, hits=counter(baseline_hits))
    other = ab.Side("candidate", Toy().run, hits=counter(candidate_hits))
    data = checked(ab.run(one, other, REQUESTS))
    assert data["verdict"] == "UNKNOWN" and gate(data, "ran")["reason"] == reason
    assert gate(data, "trajectory")["status"] == "PASS" and "performance" not in data


@pytest.mark.parametrize(
    ("operators", "status"), [(["toy"], "PASS"), (["toy", "other"], "UNKNOWN")]
)
def test_every_operator_that_is_named_has_to_run(operators, status):
    count = itertools.count(1)
    one = ab.Side("baseline", Toy().run, hits=dict)
    other = ab.Side(
        "candidate", Toy().run, hits=lambda: {"toy@0": next(count)}, operators=operators
    )
    found = gate(checked(ab.run(one, other, REQUESTS, rounds=0)), "ran")
    assert found["status"] == status and ("other never ran" in found["summary"]) == (
        status != "PASS"
    )


def test_a_candidate_that_changes_while_it_is_timed_is_rejected():
    toy = Toy()
    passes = itertools.count()
    starts = {request.name: 0 for request in REQUESTS}

    def run(request: ab.Request) -> Iterator[ab.Step]:
        starts[request.name] += 1
        yield from (Toy() if starts[request.name] < 3 else transposed_after(0)).run(request)
        toy.calls = next(passes) + 1
        return "length"

    baseline, candidate = sides(toy)
    data = checked(ab.run(baseline, replace(candidate, run=run), REQUESTS))
    assert data["verdict"] == "REJECT" and gate(data, "measure")["status"] == "FAIL"
    assert not speaks_of_speed(data["gates"])


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_token_is_there_when_the_device_has_computed_it(monkeypatch, device):
    """A recorded token is known before: a clock that does not wait would time the queueing alone,
    as one would that takes sides on a GPU for the "cpu" of an argument that was left out."""
    happened = []
    clock = lambda: happened.append("clock") or 0.0  # noqa: E731
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *device: happened.append("waited"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 0)
    monkeypatch.setattr("truefuse.ab.sides.time.perf_counter", clock)

    def run(request):
        for token in request.forced:
            happened.append("queued")
            yield ab.Step(token)
        return "length"

    request = ab.Request("r", [1], 2, forced=[3, 4])
    play(ab.Side("recorded", run), [request], torch.device(device))
    assert happened == [
        "waited", "clock", "queued", "waited", "clock", "queued", "waited", "clock", "waited", "clock",
    ]  # fmt: skip


def test_the_order_is_a_b_b_a():
    order = []

    def noted(name, toy):
        def run(request):
            if not request.observe and request.name == "r0" and request.max_tokens == 12:
                order.append(name)
            return toy.run(request)

        return run

    toy = Toy()
    one = ab.Side("baseline", noted("A", Toy()), hits=dict)
    other = ab.Side("candidate", noted("B", toy), hits=lambda: {"toy@1": toy.calls})
    requests = [*REQUESTS, ab.Request("long", [3], 30)]
    ab.run(one, other, requests, rounds=3)
    assert "".join(order[:12]) == "ABBA" * 3


def test_the_schema_forbids_a_ratio_beside_a_rejection():
    accepted = checked(ab.run(*sides(Toy()), REQUESTS, rounds=4))
    rejected = checked(ab.run(*sides(transposed_after(0)), REQUESTS))
    schema = json.loads(SCHEMA_PATH.read_text())
    for planted in (
        {**rejected, "performance": accepted["performance"]},
        {**rejected, "speedup": 1.68},
        {**rejected, "gates": [{**rejected["gates"][0], "numbers": {"gain": 1.68}}]},
        {**rejected, "gates": [{**rejected["gates"][0], "seconds": 1.0}]},
        {**accepted, "verdict": "UNKNOWN"},
        {**accepted, "label": "ACCEPT (forced)"},
        {key: value for key, value in accepted.items() if key != "performance"},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(planted, schema)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"requests": []}, "requests"),
        ({"mode": "fast"}, "free"),
        ({"rounds": -1}, "rounds"),
        ({"requests": [REQUESTS[0], REQUESTS[0]]}, "same name"),
        ({"requests": [replace(REQUESTS[0], max_tokens=0)]}, "max_tokens"),
    ],
)
def test_nonsense_is_refused_in_words(arguments, word):
    with pytest.raises(ValueError, match=word):
        ab.run(*sides(Toy()), **{"requests": REQUESTS, **arguments})


def rounded(digits: int) -> Toy:
    toy = Toy()
    scale = 2.0**digits
    return Toy(lambda state, token: torch.round(toy.advance(state, token) * scale) / scale)


def test_forced_mode_compares_log_probabilities_with_an_equivalent_baseline():
    equivalent = ab.Side("equivalent", rounded(20).run)
    report = ab.run(*sides(rounded(21)), REQUESTS, mode="forced", equivalent=equivalent, rounds=4)
    data = checked(report)
    assert report.label == "ACCEPT (forced)" and data["label"] == "ACCEPT (forced)"
    assert "forced tokens" in gate(data, "log-probabilities")["summary"]
    report = ab.run(*sides(rounded(8)), REQUESTS, mode="forced", equivalent=equivalent)
    assert report.verdict is Verdict.REJECT and not speaks_of_speed(checked(report)["gates"])


def test_forced_mode_without_a_measure_of_noise_is_unknown_unless_bits_are_equal():
    report = ab.run(*sides(rounded(21)), REQUESTS, mode="forced")
    assert report.verdict is Verdict.UNKNOWN and report.results[-1].reason == "noise-not-measured"
    assert ab.run(*sides(Toy()), REQUESTS, mode="forced", rounds=4).label == "ACCEPT (forced)"


def test_forced_mode_measures_nothing_with_what_is_not_finite():
    def undefined(request):
        for step in Toy().run(request):
            yield replace(step, log_probability=-math.inf)
        return "length"

    lost = ab.Side("equivalent", undefined)
    report = ab.run(*sides(rounded(8)), REQUESTS, mode="forced", equivalent=lost)
    assert report.verdict is Verdict.UNKNOWN and report.results[-1].reason == "noise-not-measured"
    baseline, candidate = sides(Toy())
    report = ab.run(
        baseline, replace(candidate, run=undefined, hits=growing_hits()), REQUESTS,
        mode="forced", equivalent=ab.Side("equivalent", rounded(20).run),
    )  # fmt: skip
    assert report.verdict is Verdict.REJECT and not speaks_of_speed(checked(report))


def growing_hits():
    count = itertools.count(1)
    return lambda: {"toy": next(count)}


def test_forced_mode_refuses_sides_that_decode_something_else():
    baseline, candidate = sides(Toy())

    def stubborn(request):
        return Toy().run(replace(request, forced=None, prompt=[9, 9]))

    report = ab.run(baseline, replace(candidate, run=stubborn), REQUESTS, mode="forced")
    assert report.results[-1].reason == "forced-tokens-not-decoded"


def test_forced_tokens_of_a_request_that_ended_early_are_all_that_is_decoded():
    baseline, candidate = sides(Toy())
    lengths = []

    def short(request):
        lengths.append(request.max_tokens)
        return (yield from stops_early(request))

    candidate = replace(candidate, run=short, hits=lambda: {"toy": len(lengths)})
    report = ab.run(
        replace(baseline, run=stops_early), candidate, REQUESTS, mode="forced", rounds=4
    )
    assert report.label == "ACCEPT (forced)", report.results[-1].summary
    assert set(lengths) <= {6, 4}  # 4: a short request whose memory is followed


def test_a_failure_of_the_measuring_itself_is_unknown_and_keeps_what_was_found():
    def broken():
        raise MemoryError("no room for the stopwatch")

    report = ab.run(*sides(Toy()), REQUESTS, rounds=1, amdahl=broken)
    data = checked(report)
    assert data["verdict"] == "UNKNOWN" and gate(data, "measure")["reason"] == "gate-error"
    assert gate(data, "trajectory")["status"] == "PASS" and "performance" not in data
