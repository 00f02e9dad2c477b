"""Recording real HTTP servers, well-behaved and not, and comparing the recordings."""

from __future__ import annotations

import json
import math
import socket
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from served import WORDS, Behaviour, answer, raw, serving
from toy import checked, gate, speaks_of_speed
from typer.testing import CliRunner

from truefuse.ab import recorded, recording
from truefuse.ab.cli import app
from truefuse.ab.client import Answer, BadAnswer, Down, Endpoint
from truefuse.ab.trajectory import first_difference
from truefuse.verdict import Verdict

PROMPTS = [{"name": f"p{i}", "max_tokens": 8, "prompt": f"prompt {i}"} for i in range(3)]
SAID = {"engine": "small 0.1", "arch": "cpu", "flags": "--tp 1"}
STREAM = {"temperature": 0, "seed": 0, "stream": True}


def record(url, path, operator="none", sampling=STREAM, prompts=PROMPTS, hits=None, **options):
    said = {**SAID, "operator": operator}
    endpoint = Endpoint(url, options.pop("timeout", 30))
    return recording.record(
        endpoint, prompts, path, said=said, sampling=sampling, hits=hits, **options
    )


@contextmanager
def four(tmp_path, candidate_shift=0, sampling=STREAM, **options):
    """a1, b1, b2, a2 of one server, which counts the hits of its operator."""
    behaviour = Behaviour()
    with serving(behaviour) as url:
        found = []
        for label, swapped in (("a1", False), ("b1", True), ("b2", True), ("a2", False)):
            behaviour.operator = "gdn_decode@layers.0" if swapped else None
            behaviour.shift = candidate_shift if swapped else 0
            operator = "gdn_decode" if swapped else "none"
            path = tmp_path / f"{label}.json"
            hits = f"{url}/hits"
            found.append(record(url, path, operator, sampling, hits=hits, **options))
        yield found


@pytest.mark.parametrize("stream", [True, False])
def test_equal_servers_are_accepted(tmp_path, stream):
    with four(tmp_path, sampling={**STREAM, "stream": stream}) as found:
        report = recorded.compare(found)
    data = checked(report)
    assert report.verdict is Verdict.ACCEPT and data["mode"] == "recorded"
    metrics = data["performance"]["metrics"]
    assert metrics["throughput"]["passes"] == 8
    assert (metrics["tpot"] is not None) == stream and (metrics["ttft"] is not None) == stream
    assert data["performance"]["peak_memory"] is None
    assert "gdn_decode 1 place" in gate(data, "ran")["summary"]


def test_what_was_sent_and_received(tmp_path):
    behaviour = Behaviour()
    with serving(behaviour) as url:
        sampling = {**STREAM, "return_token_ids": True}
        found = record(url, tmp_path / "a.json", sampling=sampling, repeat=2)
    assert len(behaviour.asked) == 3 * (1 + 2)  # one pass warms up
    assert all(body["temperature"] == 0 and body["model"] == "tiny" for body in behaviour.asked)
    loaded = recording.load(tmp_path / "a.json")
    assert loaded == found and loaded.complete
    output = loaded.played()[0].outputs[1]
    assert output.tokens == tuple(i for i, _ in answer("prompt 1", 8))
    assert output.text == "".join(text for _, text in answer("prompt 1", 8))
    assert (output.count, output.stop) == (8, "length")
    assert len(loaded.passes[0][0]["times"]) == 8


def test_another_text_is_rejected_without_a_ratio(tmp_path):
    with four(tmp_path, candidate_shift=1) as found:
        report = recorded.compare(found)
    data = checked(report)
    assert report.verdict is Verdict.REJECT
    assert "3/3 requests" in gate(data, "trajectory")["summary"]
    assert not speaks_of_speed(data["gates"])


@pytest.mark.parametrize(
    "change",
    [
        {"host": "other"},
        {"prompts": "other"},
        {"sampling": {"temperature": 1}},
        {"server": {"model": "other"}},
        {"said": {**SAID, "operator": "gdn_decode", "arch": "gfx936"}},
        {"said": {**SAID, "operator": "gdn_decode", "engine": "small 0.2"}},
        {"said": {**SAID, "operator": "gdn_decode", "flags": "--tp 2"}},
        {"said": {**SAID, "operator": "swiglu"}},
        {"date": "2000-01-01T00:00:00+00:00"},
    ],
)
def test_more_than_the_operator_differs(tmp_path, change):
    with four(tmp_path, repeat=1) as found:
        pass
    found[2] = replace(found[2], **change)
    what = next(iter(change))
    word = {"said": "arch|engine|flags|operator", "date": "A B B A"}.get(what, what)
    with pytest.raises(recorded.NotComparable, match=word):
        recorded.compare(found)


def test_the_same_operator_twice_compares_nothing(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    same = [replace(one, said={**SAID, "operator": "none"}) for one in found]
    with pytest.raises(recorded.NotComparable, match="nothing is compared"):
        recorded.compare(same)


def test_unknown_without_hits_with_holes_or_an_unsteady_baseline(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    uncounted = [replace(one, hits=None) for one in found]
    data = checked(recorded.compare(uncounted))
    assert data["verdict"] == "UNKNOWN" and "TRUEFUSE_HITS" in gate(data, "ran")["summary"]
    data = checked(recorded.compare([*found[:3], replace(found[3], complete=False)]))
    assert data["verdict"] == "UNKNOWN" and "a2 is incomplete" in data["gates"][0]["summary"]
    unsteady = [[{**entry, "text": "else", "tokens": None} for entry in found[3].passes[0]]]
    data = checked(recorded.compare([*found[:3], replace(found[3], passes=unsteady)]))
    assert data["verdict"] == "UNKNOWN"
    assert gate(data, "reproducible")["reason"] == "workload-not-reproducible"


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("garbage", "no JSON object"),
        ("html", "no event stream"),
        ("error", "HTTP 500"),
        ("error-event", "state pool exhausted"),
        ("odd", "content in the answer is '7', no string"),
        ("cut", "cut off after 3 events"),
        ("hang", "within 1 s"),
        ("drip", "within 1 s"),
        ("dripping-head", "within 1 s"),
        ("gzip", "the answer is compressed (gzip)"),
    ],
)
def test_bad_answers_are_said_and_the_good_ones_kept(tmp_path, kind, sentence):
    # The warm-up and the first answer are good, the others are not.
    with serving(Behaviour(kind, since=4)) as url:
        timeout = 1 if kind in ("hang", "drip", "dripping-head") else 30
        found = record(url, tmp_path / "a.json", timeout=timeout, repeat=1)
    kept = recording.load(tmp_path / "a.json")
    first, second, _ = kept.passes[0]
    assert kept == found and first["error"] is None and first["count"] == 8
    assert sentence in second["error"]
    if kind in ("garbage", "cut", "error-event"):
        assert second["text"] == "".join(text for _, text in answer("prompt 1", 8)[:3])


def test_a_request_that_fails_and_the_next_that_does_not_are_both_kept(tmp_path):
    behaviour = Behaviour("error", since=4)
    with serving(behaviour) as url:

        def recover(text):
            behaviour.kind = "" if text == "pass 1 of 1: p2" else behaviour.kind

        found = record(url, tmp_path / "a.json", repeat=1, progress=recover)
    errors = [entry["error"] for entry in found.passes[0]]
    assert errors[0] is None and "HTTP 500" in errors[1] and errors[2] is None and found.complete


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_version_6(tmp_path):
    try:
        with serving(Behaviour(), version=6) as url:
            found = record(url, tmp_path / "a.json", repeat=1)
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    assert found.passes[0][0]["count"] == 8
    with pytest.raises(Down, match=r"at http://\[::1\]:\d+ "):
        record(url, tmp_path / "b.json", repeat=1)


def test_answers_of_another_model_are_not_compared(tmp_path):
    behaviour = Behaviour(model="tiny-7b")
    with serving(behaviour) as url:

        def switch(text):
            behaviour.model = "tiny-3b" if "p2" in text else "tiny-7b"

        found = record(url, tmp_path / "one.json", repeat=1)
        mixed = record(url, tmp_path / "two.json", repeat=1, progress=switch)
    assert recording.load(tmp_path / "one.json").models() == ["tiny-7b"]
    named = [
        replace(found, said={**SAID, "operator": operator}, date=f"2026-01-0{day}", hits=hits)
        for day, operator, hits in (
            (1, "none", {}),
            (2, "x", {"x": 1}),
            (3, "x", {"x": 1}),
            (4, "none", {}),
        )
    ]
    assert recorded.compare(named).verdict is Verdict.ACCEPT
    named[1] = replace(named[1], passes=mixed.passes)
    with pytest.raises(recorded.NotComparable, match="b1 has tiny-3b, tiny-7b"):
        recorded.compare(named)


def test_servers_that_say_nothing_are_not_equal_but_unknown(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    empty = {"tokens": None, "text": "", "count": None, "times": []}
    silent = [
        replace(one, passes=[[{**entry, **empty} for entry in one.passes[0]]]) for one in found
    ]
    data = checked(recorded.compare(silent))
    assert data["verdict"] == "UNKNOWN" and data["gates"][-1]["reason"] == "nothing-generated"


def test_a_server_that_goes_down_leaves_what_it_answered(tmp_path):
    with serving(Behaviour("down", since=5)) as url:
        with pytest.raises(Down, match=r"nobody answers .* the 2 answers until then are in"):
            record(url, tmp_path / "a.json", repeat=1)
    kept = recording.load(tmp_path / "a.json")
    assert [entry["count"] for entry in kept.passes[0]] == [8, 8] and not kept.complete


KEYS = (
    "choices usage completion_tokens text delta message content reasoning tool_calls index function name "
    "arguments finish_reason token_ids"
).split()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(pieces=st.lists(st.fixed_dictionaries({"choices": JSON, "usage": JSON}), max_size=3))
def test_any_answer_is_taken_or_refused_in_words(pieces):
    got = Answer()
    try:
        for piece in pieces:
            got.add(piece)
    except BadAnswer as error:
        assert "in the answer" in str(error) or "no whole numbers" in str(error)
    output = got.output()  # what came until then
    assert isinstance(output.text, str) and isinstance(output.count, (int, type(None)))


@pytest.mark.parametrize(
    "change",
    [
        {"said": {"engine": "small"}},
        {"names": 3},
        {"date": None},
        {"date": "yesterday"},
        {"date": "2026-01-01T00:00:00"},
        {"hits": ["gdn_decode"]},
        {"hits": {"gdn_decode": "many"}},
        {"sampling": {"seed": "x"}},
        {"passes": [3]},
        {"passes": [[{"text": 3}]]},
        {"total": "long"},
        {"times": [None]},
        {"times": [math.nan]},
        {"total": 0},
        {"tokens": "abc"},
        {"count": 1.5},
    ],
)
def test_a_recording_with_a_strange_field_is_refused(tmp_path, change):
    path = tmp_path / "a.json"
    with serving(Behaviour()) as url:
        record(url, path, repeat=1)
    data = json.loads(path.read_text())
    recording.load(path)
    name = next(iter(change))
    (data if name in data else data["passes"][0][1]).update(change)
    path.write_text(json.dumps(data))
    with pytest.raises(recording.BadRecording, match=r"a\.json (lacks or )?has a"):
        recording.load(path)


@pytest.mark.parametrize(
    ("said", "idle"), [("gdn_decode", ""), ("swiglu", "swiglu"), ("gdn_decode, swiglu", "swiglu")]
)
def test_every_operator_that_is_said_has_to_have_run(tmp_path, said, idle):
    with four(tmp_path) as found:
        for one in found[1:3]:
            one.said["operator"] = said
        result = gate(checked(recorded.compare(found)), "ran")
    assert result["status"] == ("UNKNOWN" if idle else "PASS")
    assert not idle or result["summary"].startswith(f"{idle} never ran")


def piece(text="", **more):
    return {"choices": [{"text": text, **more}]}


def outputs(*pieces, count=None):
    got = Answer()
    for one in pieces:
        got.add(one)
    if count is not None:
        got.add({"choices": [], "usage": {"completion_tokens": count}})
    return got.output()


@pytest.mark.parametrize("ids", [[], [7]])
def test_ids_that_are_none_or_of_a_part_decide_nothing(ids):
    """A server that answers token_ids with an empty list, or with those of the last piece alone."""
    one, other = (outputs(piece("a"), piece(text, token_ids=ids), count=2) for text in "bc")
    found = first_difference(0, "p0", one, other)
    assert found is not None and found.kind == "text"
    assert one.length == 2 and one.tokens is None


def test_equal_ids_with_another_text_are_another_answer():
    one, other = (outputs(piece(text, token_ids=[7, 8]), count=2) for text in "bc")
    assert one.tokens == (7, 8) and first_difference(0, "p0", one, other).kind == "text"


def test_a_call_of_the_older_kind_and_a_refusal_are_output():
    call = {"function_call": {"name": "look", "arguments": "{}"}}
    for delta in (call, {"refusal": "No."}):
        assert outputs({"choices": [{"delta": delta}]}).text


def test_a_number_of_tokens_alone_compares_nothing(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    mute = {"tokens": None, "text": "", "count": 8}
    for one in found:
        one.passes[0][1].update(mute)
    data = checked(recorded.compare(found))
    result = data["gates"][-1]
    assert (data["verdict"], result["reason"]) == ("UNKNOWN", "output-not-given")
    assert "1/3 requests, first in p1" in result["summary"]


def test_an_answer_that_arrives_at_once_has_no_first_token(tmp_path):
    """A proxy that collects the stream: every token arrives with the last one."""
    with four(tmp_path, repeat=4) as found:
        pass
    together = [
        [{**entry, "times": [entry["total"]] * 8} for entry in one] for one in found[2].passes
    ]
    found[2] = replace(found[2], passes=together)
    metrics = checked(recorded.compare(found))["performance"]["metrics"]
    assert metrics["ttft"] is None and metrics["tpot"] is None and metrics["throughput"]


def test_events_that_arrive_together_have_one_time():
    event = b'data: {"choices": [{"text": "a"}]}\n\n'
    whole = event + event[:9], event[9:] + event, b"data: [DONE]\n\n"
    with raw(*whole) as url:
        served = Endpoint(url, 30).complete({"prompt": "p", "stream": True})
    first, second, third = served.times
    assert first < second == third < served.total and served.output.text == "aaa"


def test_time_begins_when_the_connection_is_there(monkeypatch):
    def slow(endpoint):
        time.sleep(0.5)
        return connect(endpoint)

    connect = Endpoint._connect
    monkeypatch.setattr(Endpoint, "_connect", slow)
    with serving(Behaviour()) as url:
        served = Endpoint(url, 30).complete({"prompt": "p", "max_tokens": 2, "stream": True})
    assert served.total < 0.5


def test_recordings_that_ran_at_the_same_time_are_not_compared(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    for entry in found[0].passes[0]:
        entry["total"] = 3600
    with pytest.raises(recorded.NotComparable, match=r"b1 was begun at .* before it still ran"):
        recorded.compare(found)


def test_a_failing_candidate_is_unknown(tmp_path):
    with four(tmp_path, repeat=1) as found:
        pass
    broken = [[{**entry, "error": "HTTP 500"} for entry in found[1].passes[0]]]
    data = checked(recorded.compare([found[0], replace(found[1], passes=broken), *found[2:]]))
    assert data["verdict"] == "UNKNOWN" and "HTTP 500" in gate(data, "trajectory")["summary"]


def test_counts_that_are_not_given_are_not_measured(tmp_path):
    with serving(Behaviour("no-usage")) as url:
        found = record(url, tmp_path / "a.json", repeat=1)
    assert found.passes[0][0]["count"] is None


def test_chat_with_reasoning_and_tool_calls():
    got = Answer()
    pieces = [
        {"reasoning_content": "hm"},
        {"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": '{"at"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ": 256}"}}]},
        {"content": "found"},
    ]
    for piece in pieces:
        assert got.add({"choices": [{"delta": piece, "finish_reason": None}]})
    got.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})
    whole = json.loads(got.output().text)
    assert whole["reasoning"] == "hm" and whole["text"] == "found"
    assert whole["tool_calls"] == [{"name": "look", "arguments": '{"at": 256}'}]
    assert got.output().stop == "tool_calls"


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def options(url, tmp_path, operator, output):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(json.dumps(p) for p in PROMPTS))
    said = [f"--{key}={value}" for key, value in SAID.items()]
    where = ("--endpoint", url, "--prompts", prompts, "-o", tmp_path / output)
    return ("record", *where, *said, "--operator", operator, "--repeat", 2)


def test_the_command_line_end_to_end(tmp_path):
    behaviour = Behaviour()
    paths = [tmp_path / f"{label}.json" for label in ("a1", "b1", "b2", "a2")]
    with serving(behaviour) as url:
        for path, operator in zip(paths, ("none", "swiglu", "swiglu", "none"), strict=True):
            behaviour.operator = None if operator == "none" else operator
            found = invoke(*options(url, tmp_path, operator, path.name), "--hits", f"{url}/hits")
            assert found.exit_code == 0, found.output
            assert "6 answers, 0 failed" in found.output
    report = tmp_path / "ab.json"
    found = invoke("compare", *paths, "-o", report)
    assert found.exit_code == 0, found.output
    assert "ACCEPT" in found.output and "time per token" in found.output
    assert json.loads(report.read_text())["verdict"] == "ACCEPT"
    found = invoke("compare", *reversed(paths), "-o", report)
    assert found.exit_code == 2 and "A B B A" in found.output and not report.exists()


def test_the_command_line_says_what_is_wrong(tmp_path):
    with serving(Behaviour()) as url:
        pass  # and now it is down
    found = invoke(*options(url, tmp_path, "none", "a.json"))
    assert found.exit_code == 3 and "nobody answers" in found.output
    bad = tmp_path / "bad.json"
    for text, words in (("{}", "no recording"), ("[" * 100_000, "Record it with")):
        bad.write_text(text)
        found = invoke("compare", bad, bad, bad, bad)
        assert found.exit_code == 2 and words in found.output
    with serving(Behaviour("cut")) as url:
        found = invoke(*options(url, tmp_path, "none", "a.json"))
    assert found.exit_code == 3 and "6 failed" in found.output and "cut off" in found.output
    found = invoke("record", "--endpoint", "ftp://x", *options("", tmp_path, "none", "a.json")[3:])
    assert found.exit_code == 2 and "http://HOST:PORT" in found.output
    wrong = "http://x:port"
    found = invoke("record", "--endpoint", wrong, *options("", tmp_path, "none", "a.json")[3:])
    assert found.exit_code == 2 and f"--endpoint {wrong}" in found.output


def test_words_are_distinct_enough_to_differ():
    assert len(set(WORDS)) == len(WORDS)
