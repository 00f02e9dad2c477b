"""Launch policies: nothing is timed that a gate turns away, and nothing at all without a device."""

import os
import signal
import subprocess
import sys
import tempfile
import types

import pytest
import torch
import typer

from truefuse import _native, supervise, tuning, tuning_cli
from truefuse.tuning import STANDARD, Policy, Row
from truefuse.verdict import INTERRUPTED, Result, Status

A, B = Policy(256, 2), Policy(512, 1)


@pytest.fixture
def steps(monkeypatch):
    """What is done with each policy; A computes something else."""
    done = []

    def compiled(operator, arch, policy):
        done.append(("compiled", policy))
        return Row(arch, policy, [])

    def refusal(operator, device, arch, policy, seed):
        done.append(("judged", policy))
        return "numerics: wrong" if policy == A else ""

    def timed(operator, device, arch, policy, seed):
        done.append(("timed", policy))
        return {"f32": 1.0}

    for function in (compiled, refusal, timed):
        monkeypatch.setattr(tuning, function.__name__, function)
    return done


def test_a_policy_is_timed_only_after_it_passed(steps):
    rows = list(tuning.sweep("swish", ["sm_90a"], "cuda:0", 1, (STANDARD, A, B)))
    assert [row.refused for row in rows] == ["", "numerics: wrong", ""]
    assert [row.microseconds for row in rows] == [{"f32": 1.0}, {}, {"f32": 1.0}]
    assert ("timed", A) not in steps
    assert steps.index(("judged", B)) < steps.index(("timed", B))


def test_without_a_device_nothing_runs(steps):
    rows = list(tuning.sweep("swish", ["gfx90a", "sm_90a"], None, 1, (STANDARD, A)))
    assert {kind for kind, _ in steps} == {"compiled"}
    assert [(row.target, row.policy) for row in rows] == [
        *(("gfx90a", STANDARD), ("gfx90a", A)),
        *(("sm_90a", STANDARD), ("sm_90a", A)),
    ]
    assert not any(row.microseconds for row in rows)


def test_a_choice_is_faster_than_the_standard_and_was_timed():
    rows = [
        Row("sm_90a", STANDARD, [], microseconds={"f32": 10.0, "f16": 10.0}),
        Row("sm_90a", A, [], microseconds={"f32": 9.0, "f16": 9.9}),
        Row("sm_90a", B, [], refused="numerics"),
    ]
    assert tuning.choices(rows) == {"f32": A}  # 1 % is what two runs differ by
    assert tuning.choices(rows[1:]) == {}


def test_what_is_saved_replaces_the_same_operator_on_the_same_architecture(tmp_path):
    file = tmp_path / "truefuse" / "tuning.txt"
    tuning.save(file, "gfx90a:sramecc+:xnack-", "swish", {"f32": A, "bf16": B})
    tuning.save(file, "sm_90a", "swish", {"f32": B})
    tuning.save(file, "gfx90a", "swish", {"f32": B})
    assert file.read_text().splitlines() == [
        "sm_90a swish f32 threads=512 rows=1 bytes=16",
        "gfx90a swish f32 threads=512 rows=1 bytes=16",
    ]


def test_the_file_of_a_policy_is_read_by_others_and_never_in_a_folder(monkeypatch, tmp_path):
    """A process that is killed can leave no file that has no name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = tuning.lines(A, "gfx90a", "swish")
    command = [sys.executable, "-c", "import os; print(open(os.environ['TRUEFUSE_TUNING']).read())"]
    with tuning._environment(text) as environment:
        for _ in range(2):
            found = subprocess.run(
                command, env={**os.environ, **environment}, capture_output=True, text=True
            )
            assert found.stdout.strip() == text.strip() and "threads=256" in text
        assert not list(tmp_path.iterdir())
    assert not os.path.exists(environment["TRUEFUSE_TUNING"])


@pytest.mark.skipif(bool(_native.refusal("sm_90a")), reason="nothing here compiles for sm_90a")
def test_a_policy_reaches_the_kernels_that_are_compiled():
    """With other blocks other variants are shown, or the same ones with other resources."""
    standard, other = (
        tuning.compiled("swish", "sm_90a", policy) for policy in (STANDARD, Policy(128, 1, 8))
    )
    assert standard.variants and standard.variants != other.variants


def test_a_sweep_that_is_interrupted_ends(monkeypatch):
    """And is not a policy that a gate turns away."""
    # Whoever starts tests in the background has the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupted = Result("edges", Status.UNKNOWN, INTERRUPTED, "interrupted", got="SIGINT")
    monkeypatch.setattr(
        supervise, "run", lambda request: types.SimpleNamespace(results=[interrupted])
    )
    try:
        with pytest.raises(KeyboardInterrupt):
            tuning.refusal("swish", "cuda:0", "sm_90a", A, 1)
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_file_is_where_the_library_looks(monkeypatch, tmp_path):
    monkeypatch.delenv("TRUEFUSE_TUNING", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert tuning.user_file() == tmp_path / "truefuse" / "tuning.txt"
    monkeypatch.setenv("TRUEFUSE_TUNING", str(tmp_path / "mine"))
    assert tuning.user_file() == tmp_path / "mine"


def test_a_device_that_is_not_here_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(_native, "devices", lambda: {"devices": [{"arch": "a"}, {"arch": "b"}]})

    found = [tuning_cli._architecture(name) for name in ("cuda", "cuda:0", "cuda:1")]
    assert found == ["a", "a", "b"]
    for name in ("cuda:2", "cuda:x", "cpu"):
        with pytest.raises(typer.Exit) as refused:
            tuning_cli._architecture(name)
        assert refused.value.exit_code == 5
        said = capsys.readouterr().err
        assert f"device '{name}' is not here" in said and "cuda, cuda:0, cuda:1" in said
