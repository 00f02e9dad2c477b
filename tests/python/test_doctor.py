from __future__ import annotations

import importlib
import io
import itertools
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import fake_dcu
import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parents[2]

PACKAGE = """
    import os


    def bias_gelu(x, bias, *, approximate):
        import math, time
        import torch

        fault = os.environ.get("FAKE_KERNEL", "")
        if fault == "hang":
            time.sleep(1000)
        if fault == "abort":
            os.abort()
        rows = [[v + o for v, o in zip(row, bias.tolist())] for row in x.tolist()]
        if fault == "identity":
            return torch.tensor(rows)
        c = math.sqrt(2 / math.pi)
        return torch.tensor(
            [[0.5 * v * (1 + math.tanh(c * (v + 0.044715 * v**3))) for v in row] for row in rows]
        )
"""

NATIVE = """
    import os

    fault = os.environ.get("FAKE_NATIVE", "")
    if fault == "import":
        raise ImportError("truefuse is built for another PyTorch: rebuild it")


    def cpu():
        return {"level": "avx2", "threads": 2}


    def cache():
        directory = "" if fault == "cache" else os.path.expanduser("~/.cache/truefuse")
        reasons = ["/nfs is a network file system"]
        return {"directory": directory, "reasons": reasons, "entries": [{}, {}, {}]}


    def toolchains():
        if fault == "abort":
            os.abort()
        one = {"found": True, "path": "/opt/x", "version": "1.0", "works": True, "problem": ""}
        broken = {"works": fault != "chain", "problem": "exit code 1", "remedy": "reinstall it"}
        absent = {"found": False, "works": False, "remedy": "pip install it"}
        return [
            {**one, "name": "hipRTC", "remedy": ""},
            {**one, "name": "hipcc", **broken},
            {**one, "name": "NVRTC", **absent},
        ]


    def current_stream(device):
        import torch

        handle = torch.cuda.current_stream(device).cuda_stream
        return {"stream": 1 if fault == "stream" else handle, "method": "a C function"}
"""


@pytest.fixture(scope="module")
def doctor(tmp_path_factory):
    """truefuse.doctor of the source tree in a package whose library is made of Python.

    Its children find that package through sys.path, as they would find the real one.
    """
    folder = tmp_path_factory.mktemp("package")
    package = folder / "truefuse"
    package.mkdir()
    (package / "__init__.py").write_text(textwrap.dedent(PACKAGE))
    (package / "_native.py").write_text(textwrap.dedent(NATIVE))
    (package / "smoke.py").symlink_to(ROOT / "smoke.py")
    (package / "doctor.py").symlink_to(ROOT / "python" / "truefuse" / "doctor.py")

    def ours():
        return [name for name in sys.modules if name.split(".")[0] == "truefuse"]

    saved = {name: sys.modules.pop(name) for name in ours()}
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module("truefuse.doctor")
        assert Path(module.__file__).parent == package
        yield module
    finally:
        sys.path.remove(str(folder))
        for name in ours():
            del sys.modules[name]
        sys.modules.update(saved)


@pytest.fixture(scope="module")
def dcu_files(doctor, tmp_path_factory):
    words = len(doctor.smoke.MAGIC) + len(doctor.smoke.MACROS)
    return fake_dcu.make(tmp_path_factory.mktemp("dcu"), words)


@pytest.fixture
def dcu(doctor, dcu_files, monkeypatch):
    """This machine has a DCU for the children; returns a way to break it."""
    for name in ("DTKROOT", "LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, dcu_files[name])
    monkeypatch.setenv("PYTHONPATH", dcu_files["PYTHONPATH"])
    monkeypatch.syspath_prepend(dcu_files["PYTHONPATH"])
    monkeypatch.setattr(doctor, "TIME_LIMIT", 20.0)
    files = {"/dev/kfd": "ok", "/dev/dri/renderD128": "ok", "/dev/nvidiactl": "ENOENT"}
    run_probe = doctor.smoke.run_probe

    def with_device_files(name, /, *arguments, **named):
        if name == "device_files":
            return {"probe": name, "status": "ok", "seconds": 0.0, "facts": files}
        return run_probe(name, *arguments, **named)

    monkeypatch.setattr(doctor.smoke, "run_probe", with_device_files)
    return files


def printed(doctor, report, width=80):
    out = io.StringIO()
    code = doctor.show(report, Console(file=out, width=width))
    return code, out.getvalue()


# ---- the diagnosis

FILES = ("ok", "denied", "missing", "failed", "hung", "killed")
TOOL = ("ok", "absent", "failed", "hung", "killed")
RUN = ("ok", "failed", "hung", "killed")
ALL = [
    dict(zip(("files", "tool", "tensor", "kernel"), states, strict=True))
    for states in itertools.product(FILES, TOOL, RUN, RUN)
]


def expected_state(steps):
    """The same decision written as a table, most particular row first."""
    runs = (steps["tensor"] == "ok", steps["kernel"] == "ok")
    if runs == (True, True):
        return {"works"}
    if runs == (True, False):
        return {"kernel"}
    if steps["files"] in ("denied", "missing"):
        return {"access"}
    if runs == (False, True):
        return {"unsteady"}
    answers = steps["files"] == "ok" and steps["tool"] == "ok"
    return {"software"} if answers and steps["tensor"] != "hung" else {"device"}


@pytest.mark.parametrize("tensor", RUN)
@pytest.mark.parametrize("kernel", RUN)
def test_every_combination_has_its_diagnosis(doctor, tensor, kernel):
    chosen = [s for s in ALL if (s["tensor"], s["kernel"]) == (tensor, kernel)]
    assert len(chosen) == len(FILES) * len(TOOL)
    for steps in chosen:
        found = doctor.diagnose(steps)
        assert {found["state"]} == expected_state(steps), steps
        assert bool(found["remedy"]) == (found["state"] != "works"), steps
        for name, state in steps.items():  # A hang is named with its step, and only a hang.
            named = name in found["text"].partition("; hangs: ")[2].split(", ")
            assert named == (state == "hung"), steps


def test_all_failing_is_the_device_and_no_kernel(doctor):
    found = doctor.diagnose(dict.fromkeys(("files", "tool", "tensor", "kernel"), "failed"))
    assert found["text"] == "device or runtime in a bad state: no kernel of yours is to blame"
    assert found["remedy"] == "keep the logs, restart the container or node"


def test_only_our_kernel_failing_says_to_shrink_the_shape(doctor):
    steps = {"files": "ok", "tool": "ok", "tensor": "ok", "kernel": "killed"}
    assert "shrink the shape" in doctor.diagnose(steps)["remedy"]


def test_a_working_device_with_a_broken_tool_still_works(doctor):
    found = doctor.diagnose({"files": "ok", "tool": "failed", "tensor": "ok", "kernel": "ok"})
    assert found == {"state": "works", "text": "works, although: tool failed", "remedy": ""}


@pytest.mark.parametrize(
    ("files", "build", "state"),
    [
        ({"/dev/kfd": "ok", "/dev/dri/renderD128": "ok"}, "HIP", "ok"),
        (
            {"/dev/kfd": "ok", "/dev/dri/renderD128": "EACCES", "/dev/dri/renderD129": "ok"},
            "HIP",
            "ok",
        ),
        ({"/dev/kfd": "EACCES", "/dev/dri/renderD128": "ok"}, "HIP", "denied"),
        ({"/dev/kfd": "ok", "/dev/dri/renderD*": "ENOENT"}, "HIP", "missing"),
        ({"/dev/kfd": "EIO", "/dev/dri/renderD128": "ok"}, "HIP", "failed"),
        ({"/dev/nvidiactl": "ok", "/dev/nvidia0": "ok", "/dev/kfd": "ENOENT"}, "CUDA", "ok"),
        ({"/dev/nvidiactl": "ok", "/dev/nvidia[0-9]*": "ENOENT"}, "CUDA", "missing"),
        ({"/dev/nvidiactl": "EPERM", "/dev/nvidia0": "ok"}, "CUDA", "denied"),
        ({}, "CUDA", "missing"),
    ],
)
def test_state_of_the_device_files(doctor, files, build, state):
    assert doctor.files_state(files, build) == state


# ---- whole reports


def test_report_of_this_machine(doctor, monkeypatch, tmp_path):
    home = tmp_path / "huli77"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    report = doctor.report(device=True)
    assert json.loads(json.dumps(report)) == report  # Plain values throughout.
    native = report["native"]["facts"]
    assert native["cpu"] == {"level": "avx2", "threads": 2}
    assert native["cache"]["entries"] == 3 and native["cache"]["directory"] == "~/.cache/truefuse"
    _, text = printed(doctor, report)
    assert "huli77" not in json.dumps(report) + text
    lines = text.splitlines()  # Not wrapped at the width of the console.
    assert "ok    cache: ~/.cache/truefuse; entries: 3" in lines
    assert "--    cache, passed over: /nfs is a network file system" in lines
    assert "ok    hipRTC 1.0: works; /opt/x" in lines
    assert "--    NVRTC: not found; pip install it" in lines
    if not report["devices"]:
        assert report["device_tests"] == [] and report["no_device"]
        assert f"--    no device to test: {report['no_device']}" in lines


@pytest.mark.parametrize(
    ("fault", "problem", "remedy"),
    [
        ("import", "ImportError: truefuse is built for another PyTorch", "rebuild"),
        ("abort", "killed by SIGABRT, at: compile one line with each compiler", "smoke.py"),
        ("cache", "there is no cache folder", "TRUEFUSE_CACHE_DIR"),
        ("chain", "hipcc (/opt/x) does not work: exit code 1", "reinstall it"),
    ],
)
def test_a_fault_of_ours_is_a_problem_with_a_remedy(
    doctor, dcu, monkeypatch, fault, problem, remedy
):
    monkeypatch.setenv("FAKE_NATIVE", fault)
    report = doctor.report()
    found = [p for p in report["problems"] if problem in p["problem"]]
    assert len(found) == 1 and remedy in found[0]["remedy"]
    code, text = printed(doctor, report)
    assert code == 1 and f"{found[0]['problem']}\n   -> {found[0]['remedy']}" in text


def test_a_sound_dcu(doctor, dcu):
    report = doctor.report(device=True)
    assert report["identity"]["dcu"] and report["problems"] == []
    (tested,) = report["device_tests"]
    assert tested["steps"] == {"files": "ok", "tool": "ok", "tensor": "ok", "kernel": "ok"}
    assert tested["diagnosis"]["state"] == "works"
    stream = report["devices"][0]["native_stream"]["facts"]
    assert stream == {"default": True, "side": True, "method": "a C function"}
    code, text = printed(doctor, report)
    assert code == 0 and "no problem found" in text
    assert "device 0: files ok, tool ok, tensor ok, kernel ok: works" in text
    assert "truefuse's stream (side): same as Python's, by a C function" in text


def test_another_stream_is_a_problem(doctor, dcu, monkeypatch):
    monkeypatch.setenv("FAKE_NATIVE", "stream")
    report = doctor.report()
    assert "device_tests" not in report
    assert any("does not get PyTorch's stream" in p["problem"] for p in report["problems"])


@pytest.mark.parametrize(
    ("fault", "state", "log"),
    [
        ("abort", "killed", "killed by SIGABRT, at: truefuse.bias_gelu on 8 x 96"),
        ("hang", "hung", "hung for 2 s, at: truefuse.bias_gelu on 8 x 96"),
        ("identity", "failed", "from its definition"),
    ],
)
def test_a_failing_kernel_on_a_sound_device(doctor, dcu, monkeypatch, fault, state, log):
    if fault == "hang":
        monkeypatch.setattr(doctor, "TIME_LIMIT", 2.0)
    monkeypatch.setenv("FAKE_KERNEL", fault)
    found = {
        "identity": {"torch_build": "HIP"},
        "device_files": {"status": "ok", "facts": dcu},
    }
    tested = doctor.try_device(found, 0)
    assert tested["steps"] == {"files": "ok", "tool": "ok", "tensor": "ok", "kernel": state}
    assert tested["diagnosis"]["state"] == "kernel" and log in tested["logs"]["kernel"]
    assert ("hangs: kernel" in tested["diagnosis"]["text"]) == (fault == "hang")


def test_hsa_out_of_resources_is_not_the_kernels_fault(doctor, dcu, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "tensor")
    report = doctor.report(device=True)
    (tested,) = report["device_tests"]
    assert tested["steps"] == {
        "files": "ok",
        "tool": "failed",
        "tensor": "failed",
        "kernel": "failed",
    }
    assert "HSA_STATUS_ERROR_OUT_OF_RESOURCES" in tested["logs"]["rocminfo"]
    code, text = printed(doctor, report)
    assert code == 1 and "no kernel of yours is to blame" in text and "keep the logs" in text
    assert "rocminfo: RuntimeError: exit code 1: HSA_STATUS_ERROR_OUT_OF_RESOURCES" in text


def test_a_runtime_that_reports_no_device_is_tried_all_the_same(doctor, dcu, monkeypatch):
    monkeypatch.setenv("FAKE_FAULT", "none")
    report = doctor.report(device=True)
    assert "No HIP GPUs are available" in report["no_device"]
    assert [tested["index"] for tested in report["device_tests"]] == [0]
    assert "device 0 is tried" in printed(doctor, report)[1]


def test_the_installed_package_reports(tmp_path):
    """With the library that is built, if there is one."""
    code = "import json, truefuse.doctor as d; print(json.dumps(d.report()))"
    environ = {**os.environ, "TRUEFUSE_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, cwd=tmp_path)
    if "Error" in done.stderr and "truefuse" in done.stderr:
        pytest.skip("the package is not built for this PyTorch: " + done.stderr.splitlines()[-1])
    report = json.loads(done.stdout)
    native = report["native"]
    assert native["status"] == "ok", native
    assert "libtruefuse" in native["facts"]["library"]
    assert native["facts"]["cpu"]["threads"] >= 1
    assert {chain["name"] for chain in native["facts"]["toolchains"]} >= {"NVRTC", "hipRTC"}
