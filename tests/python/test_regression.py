"""`truefuse compare`: significant regressions, and only these."""

import copy
import json

import pytest

from truefuse import regression


@pytest.fixture
def old(accepted):
    return accepted.to_json()


def slower(data, factor, noise=0.01):
    data = copy.deepcopy(data)
    for shape in data["performance"]["shapes"]:
        shape["candidate"]["median_ms"] *= factor
        shape["noise"]["floor"] = noise
    return data


def test_the_same_report_is_no_regression(old):
    found = regression.compare(old, copy.deepcopy(old), 0.03)
    assert (found["verdict"], found["problems"]) == ("OK", [])


@pytest.mark.parametrize(
    ("factor", "noise", "verdict"),
    [
        (1.2, 0.01, "REGRESSION"),
        (1.02, 0.001, "OK"),  # below the threshold
        (1.2, 0.3, "OK"),  # not more than the noise
        (0.5, 0.01, "OK"),  # faster
    ],
)
def test_times(old, factor, noise, verdict):
    found = regression.compare(slower(old, 1, noise), slower(old, factor, noise), 0.03)
    assert found["verdict"] == verdict


def test_a_size_that_is_timed_no_more(old):
    more = copy.deepcopy(old)
    more["performance"]["shapes"].append({**more["performance"]["shapes"][0], "size": [7, 9]})
    found = regression.compare(more, old, 0.03)
    assert found["verdict"] == "UNKNOWN" and "7 × 9" in found["unknown"][0]
    assert regression.compare(old, more, 0.03)["verdict"] == "OK"


def test_a_gate_that_fails_now(old):
    new = copy.deepcopy(old)
    new["gates"][1]["status"] = "FAIL"
    del new["performance"]
    found = regression.compare(old, new, 0.03)
    assert found["verdict"] == "REGRESSION" and new["gates"][1]["gate"] in found["problems"][0]


def test_a_gate_that_does_not_know_now(old):
    new = copy.deepcopy(old)
    new["gates"][1]["status"] = "UNKNOWN"
    assert regression.compare(old, new, 0.03)["verdict"] == "UNKNOWN"


def test_another_machine_is_not_comparable(old):
    new = slower(old, 3)
    new["environment"]["device"]["name"] = "another processor"
    found = regression.compare(old, new, 0.03)
    assert found["verdict"] == "UNKNOWN" and "another processor" in found["unknown"][0]


@pytest.mark.parametrize(
    ("candidate", "baseline", "verdict"),
    [
        (1.2, 1.2, "UNKNOWN"),  # everything is slower: the machine
        (1.2, 1.3, "UNKNOWN"),
        (1.2, 1.1, "REGRESSION"),  # more than the machine explains
        (1.2, 0.9, "REGRESSION"),
        (1.0, 1.2, "OK"),
    ],
)
def test_a_machine_that_is_slower_is_not_the_candidate(old, candidate, baseline, verdict):
    new = slower(old, candidate)
    for shape in new["performance"]["shapes"]:
        for one in shape["baselines"]:
            one["median_ms"] *= baseline
    found = regression.compare(slower(old, 1), new, 0.03)
    assert found["verdict"] == verdict
    assert ("the machine is slower" in " ".join(found["unknown"])) is (verdict == "UNKNOWN")


def test_another_case_is_not_comparable(old):
    assert regression.compare(old, {**old, "case": "other"}, 0.03)["verdict"] == "UNKNOWN"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "no JSON"),
        ("[]", "no report"),
        ('{"gates": 1, "verdict": 1, "environment": 1}', "schema"),
        ('{"gates": [], "verdict": 1, "environment": 1, "schema_version": 2}', "damaged.*case"),
        (
            '{"gates": {"a": 1}, "verdict": 1, "environment": 1, "schema_version": 2, "case": "x", '
            '"device": "cpu"}',
            "damaged",
        ),
    ],
)
def test_unreadable(tmp_path, text, part):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(regression.Unreadable, match=part):
        regression.read(path)
    with pytest.raises(regression.Unreadable, match="No such file"):
        regression.read(tmp_path / "nothing.json")


def test_read(tmp_path, old):
    path = tmp_path / "report.json"
    path.write_text(json.dumps(old))
    assert regression.read(path)["case"] == old["case"]
