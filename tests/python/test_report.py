"""Verdicts, the schema's promise, and reports that are never half written."""

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import jsonschema
import pytest
import standin

from truefuse import check, report, terminal
from truefuse.verdict import Result, Status, Verdict, combine, exit_code

VALIDATOR = jsonschema.Draft202012Validator(json.loads(report.SCHEMA_PATH.read_text()))


def result(status):
    return Result("some", status, "reason", "summary")


@pytest.mark.parametrize(
    ("statuses", "complete", "verdict"),
    [
        (["PASS", "PASS"], True, Verdict.ACCEPT),
        (["PASS", "SKIP"], True, Verdict.ACCEPT),
        (["PASS", "FAIL"], True, Verdict.REJECT),
        (["UNKNOWN", "FAIL"], True, Verdict.REJECT),
        (["PASS", "UNKNOWN"], True, Verdict.UNKNOWN),
        (["SKIP"], True, Verdict.UNKNOWN),
        ([], True, Verdict.UNKNOWN),
        (["PASS"], False, Verdict.UNKNOWN),
        (["FAIL"], False, Verdict.REJECT),
    ],
)
def test_combine(statuses, complete, verdict):
    assert combine([result(Status(status)) for status in statuses], complete) is verdict


@pytest.mark.parametrize(
    ("verdict", "reason", "code"),
    [
        (Verdict.ACCEPT, "kept", 0),
        (Verdict.REJECT, "self-test-failed", 1),
        (Verdict.UNKNOWN, "no-contract", 3),
        (Verdict.UNKNOWN, "self-test-failed", 4),
    ],
)
def test_exit_codes(verdict, reason, code):
    assert exit_code(verdict, [Result("some", Status.UNKNOWN, reason, "summary")]) == code


def wrong(*tensors, **mode):
    return standin.bias_gelu(*tensors, **mode) + 1


def test_accepted_report_is_valid_and_complete(accepted, tmp_path):
    data = accepted.to_json()
    VALIDATOR.validate(data)
    shape = data["performance"]["shapes"][0]
    assert shape["candidate"]["samples"] >= 30
    assert shape["candidate"]["peak"]["allocated"] >= 16 * 32 * 4
    assert shape["baselines"][0]["peak"]["allocated"] == 2 * 16 * 32 * 4  # the sum and the result
    assert len(data["acceptance"]) == 13
    assert data["device"] == "cpu"


@pytest.mark.parametrize("verdict", ["REJECT", "UNKNOWN"])
def test_schema_forbids_performance_without_acceptance(accepted, verdict):
    data = accepted.to_json()
    data["verdict"] = verdict
    assert not VALIDATOR.is_valid(data)
    data["gates"][0]["status"] = "FAIL"
    assert not VALIDATOR.is_valid(data)
    del data["performance"]
    VALIDATOR.validate(data)


@pytest.mark.parametrize("status", ["FAIL", "UNKNOWN"])
def test_schema_forbids_acceptance_with_an_open_gate(accepted, status):
    data = copy.deepcopy(accepted.to_json())
    data["gates"][2]["status"] = status
    assert not VALIDATOR.is_valid(data)


def test_schema_forbids_acceptance_on_a_simulated_device(accepted):
    data = accepted.to_json()
    data["device"] = "sim:wave64"
    assert not VALIDATOR.is_valid(data)


def test_junit_is_xml_whatever_the_texts_hold(accepted, tmp_path):
    accepted.case = "a\x00b"
    accepted.results[0].status = Status.FAIL
    accepted.results[0].summary = accepted.results[0].got = "\x1b[31m \ud800 \uffff <&> é 🎉"
    report.write_junit(accepted, tmp_path / "junit.xml")
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert suite[0][0].get("message") == "\ufffd[31m \ufffd \ufffd <&> é 🎉"
    assert suite.get("name").startswith("truefuse check a\ufffdb on cpu")


def test_rejected_candidate_is_not_timed(quick):
    found = check.run(replace(quick, case=replace(quick.case, candidate=wrong)))
    data = found.to_json()
    VALIDATOR.validate(data)
    assert found.verdict is Verdict.REJECT
    assert found.performance is None and "performance" not in data
    assert "measure" not in [gate["gate"] for gate in data["gates"]]


def test_performance_never_leaves_without_acceptance(accepted):
    assert "performance" not in replace(accepted, verdict=Verdict.UNKNOWN).to_json()


def test_wrong_only_while_timed_is_rejected(quick):
    """Right in every gate, wrong from the hundredth call of one shape on."""
    calls = 0

    def tires(*tensors, **mode):
        nonlocal calls
        result = standin.bias_gelu(*tensors, **mode)
        calls += result.shape == (16, 32)
        return result + (calls > 100)

    found = check.run(replace(quick, case=replace(quick.case, candidate=tires)))
    assert found.verdict is Verdict.REJECT
    assert found.results[-1].reason == "timed-output-wrong"
    VALIDATOR.validate(found.to_json())


def test_report_is_written_when_a_gate_raises(quick, tmp_path, monkeypatch):
    from truefuse.gates import special

    def broken(context):
        raise KeyError("oops")

    monkeypatch.setattr(special, "run", broken)
    found = check.run(quick)
    assert found.verdict is Verdict.UNKNOWN
    page_json, page = report.write(found, tmp_path)
    data = json.loads(page_json.read_text())
    VALIDATOR.validate(data)
    gate = next(gate for gate in data["gates"] if gate["gate"] == "special")
    assert gate["reason"] == "gate-error" and "oops" in gate["traceback"]
    assert "KeyError" in page.read_text()


def test_measuring_that_raises_is_unknown(quick, monkeypatch):
    def broken(context, progress, share):
        raise MemoryError("no memory")

    monkeypatch.setattr(check, "measure", broken)
    found = check.run(quick)
    assert found.verdict is Verdict.UNKNOWN
    assert found.results[-1].reason == "gate-error"


def test_only_some_gates_never_accept(quick):
    found = check.run(quick, only=["edges"])
    assert found.verdict is Verdict.UNKNOWN
    assert [one.gate for one in found.results] == ["edges"]


class Resources(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.external = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.external += [v for k, v in attrs if k in ("src", "href", "xlink:href", "srcset")]


def test_page_is_self_contained(accepted, tmp_path):
    text = report.write(accepted, tmp_path)[1].read_text()
    parser = Resources()
    parser.feed(text)
    assert parser.external == []
    assert "script" not in parser.tags and "svg" in parser.tags
    assert not re.search(r"url\(|@import|https?://", text)
    assert text.count("not shown") == sum(not row["evidence"] for row in accepted.acceptance)


@pytest.mark.parametrize(("waited", "said"), [(0.4, True), (0.02, False), (None, False)])
def test_a_busy_machine_is_named(accepted, tmp_path, capsys, waited, said):
    accepted.performance["shapes"][0]["waited"] = waited
    data = accepted.to_json()
    VALIDATOR.validate(data)
    terminal.show_timing(terminal.Screen(), data["performance"])
    texts = (capsys.readouterr().out, report.write(accepted, tmp_path)[1].read_text("utf-8"))
    assert [("40%" in text, "machine was busy" in text) for text in texts] == [(said, said)] * 2


def test_a_busy_device_is_named(accepted, tmp_path, capsys):
    accepted.performance["shapes"][0]["device_shared"] = True
    data = accepted.to_json()
    VALIDATOR.validate(data)
    terminal.show_timing(terminal.Screen(), data["performance"])
    texts = (capsys.readouterr().out, report.write(accepted, tmp_path)[1].read_text("utf-8"))
    assert all("the device was busy" in text for text in texts)


def test_layouts_are_drawn_in_a_picture_of_their_own(accepted, tmp_path, monkeypatch):
    drawn = []

    def strips(given):
        drawn.extend(given)
        return [
            {"input": one["input"], "source": "data:image/svg+xml;base64,AAAA"} for one in given
        ]

    monkeypatch.setattr("truefuse.page.layout_strips", strips)
    asked = {"input": "qkvz", "text": "H (q=K | k=K)", "sizes": {"H": 2, "K": 4}}
    accepted.layouts.append(asked)
    VALIDATOR.validate(accepted.to_json())
    parser = Resources()
    parser.feed(report.write(accepted, tmp_path)[1].read_text())
    assert drawn == [asked]
    assert parser.external == ["data:image/svg+xml;base64,AAAA"]


def test_page_escapes_what_it_shows(accepted, tmp_path):
    accepted.results[0].summary = "<script>alert(1)</script>"
    assert "<script>" not in report.write(accepted, tmp_path)[1].read_text()


def test_writing_replaces_whole_files(accepted, tmp_path, monkeypatch):
    report.write(accepted, tmp_path)
    before = (tmp_path / "report.json").read_text()

    def full(*arguments, **options):
        raise OSError("no space left on device")

    monkeypatch.setattr(report.os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        report.write(replace(accepted, seed=99), tmp_path)
    assert (tmp_path / "report.json").read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index.html", "report.json"]


def test_infinities_are_valid_json(accepted):
    accepted.results[0].numbers = {"worst": [float("inf"), float("nan")]}
    text = json.dumps(accepted.to_json(), allow_nan=False)
    assert json.loads(text)["gates"][0]["numbers"]["worst"] == ["inf", "nan"]


def test_acceptance_list_ticks_only_with_evidence(accepted):
    shown = {row["point"]: row["evidence"] for row in accepted.acceptance}
    assert shown["Work goes to the current stream"] is None
    assert shown["An empty input launches nothing"] is None  # cannot be counted on a CPU
    assert "16×32" in shown["Real shapes"]
    assert "derivative" in shown["Backward implemented and verified, or training refused"]
