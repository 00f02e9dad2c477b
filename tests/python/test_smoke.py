from __future__ import annotations

import errno
import functools
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path

import fake_dcu
import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("smoke_under_test", ROOT / "smoke.py")
smoke = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(smoke)


# ---- pure functions


@pytest.mark.parametrize(
    ("arch", "base", "wave"),
    [
        ("gfx936:sramecc+:xnack-", "gfx936", 64),
        ("gfx906", "gfx906", 64),
        ("gfx92a", "gfx92a", 64),
        ("gfx1030", "gfx1030", 32),
        ("sm_90a", "sm_90", 32),
        ("sm_80", "sm_80", 32),
    ],
)
def test_base_arch_and_wave(arch, base, wave):
    assert smoke.base_arch(arch) == base
    assert smoke.wave_of(arch) == wave


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("libamdhip64.so.6.3.60300", "libamdhip64"),
        ("libamdhip64-1a2b3c4d.so", "libamdhip64"),
        ("libgalaxyhip.so.5", "libgalaxyhip"),
        ("libnvrtc.so.13", "libnvrtc"),
        ("libnvrtc-builtins.so.13.0", None),
        ("libcudart-9f1c2d3e.so.12", "libcudart"),
        ("libcuda.so.1", "libcuda"),
        ("libcudnn.so.9", None),
    ],
)
def test_family_of_a_file(name, family):
    assert smoke.family_of(name) == family


MAPS = """\
7f00-7f01 r-xp 00000000 08:01 11 /opt/dtk/lib/libgalaxyhip.so.5
7f01-7f02 r--p 00000000 08:01 11 /opt/dtk-25.04/lib/libgalaxyhip.so.5
7f02-7f03 r-xp 00000000 08:01 12 /opt/dtk/lib/libhiprtc.so.5 (deleted)
7f03-7f04 r-xp 00000000 08:01 13 /usr/lib/libc.so.6
7f04-7f05 rw-p 00000000 00:00 0
7f05-7f06 rw-p 00000000 00:00 0 [heap]
"""


def test_maps_are_read_once_per_file():
    assert smoke.parse_maps(MAPS) == [
        {"family": "libgalaxyhip", "path": "/opt/dtk/lib/libgalaxyhip.so.5"},
        {"family": "libhiprtc", "path": "/opt/dtk/lib/libhiprtc.so.5"},
    ]
    assert smoke.duplicates(smoke.parse_maps(MAPS)) == []


def test_two_copies_and_two_runtimes_are_named():
    extra = "7f07-7f08 r-xp 00000000 08:01 14 {}\n"
    twice = MAPS + extra.format("/opt/rocm/lib/libhiprtc.so.6")
    (said,) = smoke.duplicates(smoke.parse_maps(twice))
    assert "libhiprtc is loaded twice" in said and "/opt/rocm/lib/libhiprtc.so.6" in said
    other = MAPS + extra.format("/opt/rocm/lib/libamdhip64.so.6")
    (said,) = smoke.duplicates(smoke.parse_maps(other))
    assert "two HIP runtimes" in said and "libgalaxyhip.so.5" in said and "libamdhip64.so.6" in said


def test_device_facts_keep_the_whole_arch_and_derive_the_wave():
    properties = types.SimpleNamespace(
        name="BW1000", gcnArchName=fake_dcu.ARCH, major=9, minor=3, uuid="secret"
    )
    facts = smoke.device_facts(properties, hip=True)
    assert (facts["arch"], facts["base_arch"]) == (fake_dcu.ARCH, "gfx936")
    assert (facts["wave"], facts["wave_by"]) == (64, "arch")
    assert "secret" not in json.dumps(facts)
    properties.warp_size = 32
    assert smoke.device_facts(properties, hip=True)["wave_by"] == "device property"


@pytest.mark.parametrize(
    ("version", "arch"), [((9, 0), "sm_90a"), ((8, 6), "sm_86"), ((12, 0), "sm_120a")]
)
def test_cuda_arch_from_the_capability(version, arch):
    properties = types.SimpleNamespace(major=version[0], minor=version[1])
    assert smoke.device_facts(properties, hip=False)["arch"] == arch


GALAXY = {"family": "libgalaxyhip", "path": "/opt/dtk/lib/libgalaxyhip.so.5"}
AMD = {"family": "libamdhip64", "path": "/opt/rocm/lib/libamdhip64.so.6"}
NVIDIA = {"family": "libcuda", "path": "/usr/lib/libcuda.so.1"}


@pytest.mark.parametrize(
    ("version", "hip", "cuda", "arches", "mapped", "platform", "dcu"),
    [
        *[("2.5.1", "6.3", None, [f"{a}:xnack-"], [], "HIP", True) for a in smoke.DCU_ARCHES],
        ("2.5.1+das.opt1.dtk25042", "6.3", None, ["gfx906"], [], "HIP", True),
        ("2.1.0a0+git1.abi0.dtk2404", "5.7", None, ["gfx906"], [], "HIP", True),
        ("2.4.1", "6.3", None, ["gfx906"], [GALAXY], "HIP", True),
        ("2.4.1", "6.3", None, ["gfx906"], [AMD], "HIP", False),
        ("2.4.1+dashboard", "6.3", None, ["gfx90a:sramecc+:xnack-"], [AMD], "HIP", False),
        ("2.11.0+cu130", None, "13.0", ["sm_90a"], [NVIDIA], "CUDA", False),
    ],
)
def test_platform_and_dcu(version, hip, cuda, arches, mapped, platform, dcu):
    facts = {"version": version, "hip": hip, "cuda": cuda}
    found = smoke.identify(facts, arches, mapped, count=1)
    assert (found["platform"], found["dcu"], found["contradiction"]) == (platform, dcu, False)
    assert found["evidence"] and bool(found["dcu_evidence"]) == dcu


def test_platform_without_a_device_is_the_cpu_and_says_what_torch_was_built_for():
    found = smoke.identify({"version": "2.11.0+cu130", "cuda": "13.0"})
    assert (found["platform"], found["torch_build"]) == ("CPU", "CUDA")
    found = smoke.identify({"version": "2.13.0+cpu"})
    assert (found["platform"], found["torch_build"]) == ("CPU", "CPU")
    assert smoke.identify({})["torch_build"] == "none"


def test_contradicting_evidence_is_a_contradiction():
    assert smoke.identify({"version": "2", "cuda": "13.0"}, ["sm_90a"], [AMD], 1)["contradiction"]


def test_elf_dynamic_reads_what_the_linker_wrote(tmp_path):
    first, second = tmp_path / "libfirst.so.3", tmp_path / "libsecond.so"
    fake_dcu.build_library(first, "int f(void) { return 1; }", "-Wl,-soname,libfirst.so.3")
    fake_dcu.build_library(
        second,
        "int f(void); int g(void) { return f(); }",
        str(first),
        "-Wl,-rpath,/opt/somewhere,--enable-new-dtags",
    )
    assert smoke.elf_dynamic(str(first))["soname"] == "libfirst.so.3"
    found = smoke.elf_dynamic(str(second))
    assert "libfirst.so.3" in found["needed"] and found["runpath"] == "/opt/somewhere"


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF\x02\x01" + b"\xff" * 200])
def test_elf_dynamic_of_something_else_is_empty(tmp_path, content):
    (tmp_path / "x.so").write_bytes(content)
    assert smoke.elf_dynamic(str(tmp_path / "x.so")) == {}
    assert smoke.elf_dynamic(str(tmp_path / "absent.so")) == {}


def cleaner(**environ):
    account = types.SimpleNamespace(pw_name="zhang3", pw_dir="/public/home/zhang3")
    return smoke.Cleaner(environ, account, "node17.cluster.example")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/public/home/zhang3/env/lib/x.so", "~/env/lib/x.so"),
        ("/data/wang/torch is mine", "/data/USER/torch is mine"),
        ("/home/someone-else/lib", "/home/USER/lib"),
        ("'/Users/li/x'", "'/Users/USER/x'"),
        ("zhang3@node17.cluster.example: no", "USER@HOST: no"),
        ("on node17 (alias batch-4)", "on HOST (alias HOST)"),
        ("GPU-6f1e2a3b-0000-1111,1", "GPU-ID,1"),
        ("zhang3_models zhang34", "USER_models zhang34"),
        ("gfx936:sramecc+:xnack-", "gfx936:sramecc+:xnack-"),
        ("/public/home/zhang3", "~"),
        ("/opt/dtk-25.04.2/lib", "/opt/dtk-25.04.2/lib"),
    ],
)
def test_nothing_personal_is_left(text, clean):
    clean_up = cleaner(HOME="/public/home/zhang3", SUDO_USER="wang", HOSTNAME="batch-4")
    assert clean_up(text) == clean
    assert clean_up({text: [text, (text, 3, None, True)]}) == {
        clean: [clean, [clean, 3, None, True]]
    }


def test_a_symbolic_link_to_home_is_cleaned_too(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "home").symlink_to(tmp_path / "real")
    clean_up = cleaner(HOME=str(tmp_path / "home"))
    assert clean_up(f"{tmp_path}/home/a {tmp_path}/real/b") == "~/a ~/b"


def test_root_is_no_name():
    account = types.SimpleNamespace(pw_name="root", pw_dir="/root")
    clean_up = smoke.Cleaner({"USER": "root", "HOME": "/root"}, account, "localhost")
    assert clean_up("root /opt/root /root/x /rooted") == "root /opt/root ~/x /rooted"


def test_environment_is_an_allow_list(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "do not tell")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "3")
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "9.0.6")
    found = smoke.environment()
    assert found["HIP_VISIBLE_DEVICES"] == "3" and found["HSA_OVERRIDE_GFX_VERSION"] == "9.0.6"
    allowed = set(smoke.ENVIRONMENT)
    assert all(name in allowed or name.startswith("HSA_") for name in found)


def test_the_documentation_names_every_variable_that_is_read():
    text = (ROOT / "docs" / "smoke.md").read_text()
    assert [n for n in [*smoke.ENVIRONMENT, "HSA_"] if not re.search(rf"\b{n}", text)] == []


def test_macro_table_is_read_back_from_a_code_object():
    values = list(range(len(smoke.MACROS)))
    words = [*smoke.MAGIC, *values]
    code = b"\x7fELF junk" + b"".join(word.to_bytes(4, "little") for word in words) + b"tail"
    assert list(smoke.read_macros(code).values()) == values
    assert smoke.read_macros(b"\x7fELF compressed") is None


# ---- child processes

PROBES = """
    import os, signal, subprocess, sys, time
    sys.path.insert(0, {root!r})
    import smoke

    print("12")
    print("no end of line", end="")

    def work():
        print("chatter of a vendor library")
        os.write(1, b"more of it, below Python\\n")
        smoke.step("first")
        smoke.note("found", "here", [1, 2])

    def abort():
        work(); smoke.step("the dangerous call"); os.abort()

    def segfault():
        work(); smoke.step("the dangerous call"); import ctypes; ctypes.string_at(0)

    def hang():
        work(); smoke.step("the dangerous call"); time.sleep(1000)

    def stubborn():
        signal.signal(signal.SIGTERM, signal.SIG_IGN); hang()

    def error():
        work(); smoke.step("the dangerous call"); raise ValueError("a message")

    def leaves():
        work(); smoke.step("the dangerous call"); os._exit(3)

    def late():
        work()
        import atexit; atexit.register(os.abort)

    def orphan():
        child = subprocess.Popen(["sleep", "1000"])
        smoke.note("child", child.pid)

    names = "work abort segfault hang stubborn error leaves late orphan".split()
    sys.exit(smoke.serve({{name: globals()[name] for name in names}}, sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def probe(tmp_path_factory):
    script = tmp_path_factory.mktemp("probes") / "probes.py"
    script.write_text(textwrap.dedent(PROBES.format(root=str(ROOT))))
    command = [sys.executable, "-B", str(script)]
    return lambda name, limit=30.0: smoke.run_probe(name, limit, command)


def test_a_probe_that_works(probe):
    outcome = probe("work")
    assert outcome["status"] == "ok" and "detail" not in outcome
    assert outcome["facts"] == {"found": {"here": [1, 2]}}
    assert "chatter" in outcome["log"] and "below Python" in outcome["log"]


@pytest.mark.parametrize(
    ("name", "limit", "status", "words"),
    [
        ("abort", 30, "killed", "killed by SIGABRT"),
        ("segfault", 30, "killed", "killed by SIGSEGV"),
        ("hang", 1.5, "hung", "hung for 1.5 s"),
        ("stubborn", 1.5, "hung", "hung for 1.5 s"),
        ("error", 30, "failed", "ValueError: a message"),
        ("leaves", 30, "failed", "exit code 3"),
    ],
)
def test_a_probe_that_dies_says_how_and_where_and_keeps_its_facts(
    probe, name, limit, status, words
):
    outcome = probe(name, limit)
    assert outcome["status"] == status and words in outcome["detail"]
    assert outcome["step"] == "the dangerous call"
    assert outcome["facts"] == {"found": {"here": [1, 2]}}
    assert words in smoke.describe(outcome) and "the dangerous call" in smoke.describe(outcome)


def test_a_crash_after_the_work_is_told_apart(probe):
    outcome = probe("late")
    assert smoke.ok(outcome) and "did its work, then killed by SIGABRT" in outcome["detail"]


def test_nothing_that_a_probe_started_outlives_it(probe):
    pid = probe("orphan")["facts"]["child"]
    state = Path(f"/proc/{pid}/stat")
    for _ in range(500):  # The signal is sent; its delivery takes a moment.
        if not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.01)
    os.kill(pid, 9)
    pytest.fail("the grandchild is still running")


def test_a_crash_leaves_no_core(probe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    probe("abort")
    assert list(tmp_path.iterdir()) == []


# ---- the real compilers of this machine

HIP_RUNTIME = "/usr/lib/x86_64-linux-gnu/libamdhip64.so.5"
needs_hiprtc = pytest.mark.skipif(not Path(HIP_RUNTIME).exists(), reason="no libamdhip64.so.5")


@needs_hiprtc
def test_hiprtc_compiles_and_tells_its_macros():
    outcome = smoke.run_probe("compile", kind="hip", path=HIP_RUNTIME, arch="gfx906")
    facts = outcome["facts"]
    assert smoke.ok(outcome) and facts["compiled"] and facts["elf"]
    macros = facts["macros"]
    assert (macros["__AMDGCN_WAVEFRONT_SIZE"], macros["__GFX9__"]) == (64, 1)
    assert (macros["__gfx906__"], macros["__gfx936__"], macros["__CUDA_ARCH__"]) == (1, -1, -1)


@needs_hiprtc
@pytest.mark.parametrize("arch", ["gfx999", fake_dcu.ARCH])
def test_an_arch_that_hiprtc_does_not_know_is_a_recorded_result(arch):
    outcome = smoke.run_probe("compile", kind="hip", path=HIP_RUNTIME, arch=arch)
    facts = outcome["facts"]
    refused = smoke.ok(outcome) and not facts["compiled"]
    aborted = outcome["status"] == "killed" and outcome["step"] == f"compile for {arch}"
    assert refused or aborted
    assert re.search("refused, error|killed by SIG", smoke.compile_verdict(outcome))


@needs_hiprtc
def test_hiprtc_features_that_all_or_no_version_has():
    names = ["__shfl_xor", "64 KiB shared", "64 KiB + 16 B shared"]
    common = {"kind": "hip", "path": HIP_RUNTIME, "arch": "gfx906"}
    facts = smoke.run_probe("features", names=names, **common)["facts"]
    assert facts["__shfl_xor"] == facts["64 KiB shared"] == "yes"
    assert facts["64 KiB + 16 B shared"].startswith("no: ")


def nvrtc():
    files = smoke.torch_files() or {"libraries": []}
    return next(
        (p for p in files["libraries"] if smoke.family_of(Path(p).name) == "libnvrtc"), None
    )


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC beside this PyTorch")
def test_nvrtc_compiles_refuses_and_takes_two_threads():
    common = {"kind": "cuda", "path": nvrtc()}
    facts = smoke.run_probe("compile", arch="sm_90a", **common)["facts"]
    assert facts["compiled"] and facts["elf"]
    assert facts["macros"]["__CUDA_ARCH__"] == 900 and facts["macros"]["__GFX9__"] == -1
    wrong = smoke.run_probe("compile", arch="sm_999", **common)
    assert smoke.ok(wrong) and not wrong["facts"]["compiled"] and wrong["facts"]["message"]
    assert smoke.ok(smoke.run_probe("threads", arch="sm_90a", threads=2, **common))


@pytest.mark.skipif(not smoke.programs("hipcc"), reason="no hipcc")
def test_hipcc_compiles_even_where_nvcc_is_installed_too():
    program = smoke.programs("hipcc")[0]
    arches = ["gfx906", "gfx999"]
    facts = smoke.run_probe("program", program=program, kind="hip", arches=arches)["facts"]
    assert facts["compiles"]["gfx906"]["compiled"]
    assert not facts["compiles"]["gfx999"]["compiled"] and facts["compiles"]["gfx999"]["message"]


def test_a_library_says_which_file_really_exports_a_symbol(tmp_path):
    inner, outer = tmp_path / "libinner.so", tmp_path / "libouter.so"
    fake_dcu.build_library(inner, "int hiprtcCompileProgram(void) { return 0; }")
    fake_dcu.build_library(
        outer,
        "int hiprtcCompileProgram(void); int f(void) { return hiprtcCompileProgram(); }",
        str(inner),
    )
    facts = smoke.run_probe("library", names=["libabsent.so.9", str(outer)])["facts"]
    assert facts["loaded"] == str(outer) and "libabsent.so.9" in facts["errors"]
    assert facts["exports"] == {"hiprtcCompileProgram": os.path.realpath(inner)}


def test_device_files_say_ok_or_the_name_of_the_error(tmp_path):
    (tmp_path / "kfd0").write_text("")
    (tmp_path / "kfd1").symlink_to(tmp_path / "kfd1")
    patterns = [f"{tmp_path}/kfd*", f"{tmp_path}/none*"]
    facts = smoke.run_probe("device_files", patterns=patterns)["facts"]
    assert facts == {
        f"{tmp_path}/kfd0": "ok",
        f"{tmp_path}/kfd1": "ELOOP",
        f"{tmp_path}/none*": "ENOENT",
    }


# ---- a whole run on a DCU


@pytest.fixture(scope="module")
def dcu(tmp_path_factory):
    words = len(smoke.MAGIC) + len(smoke.MACROS)
    return fake_dcu.make(tmp_path_factory.mktemp("dcu"), words)


def run_whole(environ, *arguments, cwd=None):
    command = [sys.executable, str(ROOT / "smoke.py"), *arguments]
    return subprocess.run(command, env=environ, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def dcu_run(dcu, tmp_path_factory):
    """(finished process, report) of a run whose home, user and host are known."""
    home = tmp_path_factory.mktemp("home") / "wukong88"
    home.mkdir()
    environ = {**dcu, "HOME": str(home), "USER": "wukong88", "MY_TOKEN": "tok-5e6f"}
    environ["HIP_VISIBLE_DEVICES"] = "0"
    done = run_whole(environ, cwd=home)
    assert done.returncode in (0, 1), done.stderr
    return done, json.loads((home / "smoke-report.json").read_text())


def test_dcu_is_recognised_with_its_whole_arch(dcu_run):
    _, report = dcu_run
    identity = report["identity"]
    assert (identity["platform"], identity["dcu"]) == ("HIP", True)
    said = " ".join(identity["dcu_evidence"])
    assert "gfx936" in said and '"das"' in said and '"dtk"' in said and "libgalaxyhip" in said
    (device,) = report["devices"]
    facts = device["device"]["facts"]
    assert (facts["arch"], facts["wave"], facts["tensor"]) == (fake_dcu.ARCH, 64, True)
    assert device["layout"]["facts"]["hipGetDeviceProperties"]["arch_offset"] == 396
    assert device["layout"]["facts"]["hipGetDevicePropertiesR0600"] == {"exported": False}
    assert facts["versions"]["hipRuntimeGetVersion"] == 60325405
    (install,) = [i for i in report["installs"] if i["kind"] == "dtk"]
    assert install["version"] == "25.04.2" and install["in_loader_path"] == ["lib"]
    needed = report["torch_files"]["dynamic"]["libtorch_hip.so"]["needed"]
    assert "libgalaxyhip.so.5" in needed


def test_dcu_streams_are_compared(dcu_run):
    stream = dcu_run[1]["devices"][0]["stream"]["facts"]
    assert stream["default"] == {"python": "null", "raw": True, "code": 0, "same": True}
    assert stream["side"] == {"python": "a handle", "raw": True, "code": 0, "same": True}
    assert dcu_run[1]["symbols"]["facts"]["libtorch_hip.so"]["aoti_torch_get_current_cuda_stream"]


def test_dcu_compiles_whole_and_base_arch_and_survives_the_wrong_one(dcu_run):
    rtc = [r for r in dcu_run[1]["rtc"] if r["library"].endswith("/libhiprtc.so.5")]
    outcomes = {c["role"]: c for c in rtc[0]["compiles"]}
    assert outcomes["whole"]["arch"] == fake_dcu.ARCH and outcomes["base"]["arch"] == "gfx936"
    assert outcomes["whole"]["outcome"]["facts"]["compiled"]
    assert outcomes["base"]["outcome"]["facts"]["compiled"]
    assert outcomes["wrong"]["outcome"]["detail"] == "killed by SIGABRT"
    features = rtc[0]["features"]["facts"]
    assert features["__shfl_xor"] == "yes" and features["__shfl_xor_sync"].startswith("no: ")
    assert smoke.ok(rtc[0]["threads"]) and rtc[0]["cold"]["facts"]["compiled"]


def test_dcu_launches_on_both_streams(dcu_run):
    launches = dcu_run[1]["launches"]
    assert {launch["arch"] for launch in launches} == {fake_dcu.ARCH, "gfx936"}
    for launch in launches:
        facts = launch["outcome"]["facts"]
        assert facts["driver"].endswith("/libgalaxyhip.so.5")
        assert (facts["current"], facts["side"], facts["warpSize"]) == ("right", "right", 64)
        assert [name for name, value in facts["macros"].items() if value != -1] == ["__GFX9__"]


def test_dcu_tools_keep_only_allowed_lines(dcu_run):
    tools = {tool["name"]: tool["outcome"]["facts"] for tool in dcu_run[1]["tools"]}
    assert tools["rocminfo"]["lines"] == ["Name:                    gfx936"]
    assert tools["hy-smi"]["lines"] == []


def test_the_report_and_the_summary_hold_nothing_personal(dcu_run):
    done, report = dcu_run
    for text in (json.dumps(report), done.stdout):
        assert "wukong88" not in text and "tok-5e6f" not in text and "SN-77Q1" not in text
    assert report["environment"]["HIP_VISIBLE_DEVICES"] == "0"


def test_the_summary_has_verdicts_and_ends_with_the_problems(dcu_run):
    done, report = dcu_run
    assert re.search(
        r"^  ok    device 0: current stream \(side\): same as Python's$", done.stdout, re.M
    )
    assert "platform HIP, Hygon DCU, by: torch.version.hip is 6.3.25405" in done.stdout
    assert "killed by SIGABRT, at: compile for gfx999" in done.stdout
    assert "Problems: none found" in done.stdout.splitlines()[-2]
    assert report["problems"] == [] and done.returncode == 0


def collect_base(monkeypatch, environ, fault):
    """The first part of a run, in this process; its children see the DCU with a fault."""
    for name in ("PYTHONPATH", "DTKROOT", "LD_LIBRARY_PATH", "PATH"):
        monkeypatch.setenv(name, environ[name])
    monkeypatch.setenv("FAKE_FAULT", fault)
    run = functools.partial(smoke.run_probe, limit=30.0)
    report = smoke.collect_base(run, lambda text: None)
    report["problems"] = smoke.problems(report)
    return report


def test_a_torch_that_misses_dtk_libraries_is_told_of_env_sh(monkeypatch, dcu):
    report = collect_base(monkeypatch, dcu, "import")
    (found,) = report["problems"]
    assert "libgalaxyhip.so.5 is not found, though DTK is installed" in found["problem"]
    assert "env.sh" in found["remedy"] and "set -u" in found["remedy"]
    assert any(install["kind"] == "dtk" for install in report["installs"])


def test_no_device_says_why_and_what_to_do(monkeypatch, dcu):
    report = collect_base(monkeypatch, dcu, "none")
    assert report["identity"]["platform"] == "CPU" and report["identity"]["torch_build"] == "HIP"
    said = next(p for p in report["problems"] if "sees no device" in p["problem"])
    assert "No HIP GPUs are available" in said["problem"]
    if not Path("/dev/kfd").exists():
        assert "/dev/kfd" in said["remedy"] and "--device=/dev/kfd" in said["remedy"]


def test_a_device_that_cannot_hold_one_element_is_not_a_kernels_fault(monkeypatch, dcu):
    report = collect_base(monkeypatch, dcu, "tensor")
    said = next(p for p in report["problems"] if "one-element tensor" in p["problem"])
    assert "HSA_STATUS_ERROR_OUT_OF_RESOURCES" in said["problem"]
    assert "no kernel is to blame" in said["remedy"]
    assert any("rocminfo fails" in p["problem"] for p in report["problems"])


def test_another_stream_than_pythons_is_a_problem(monkeypatch, dcu):
    report = collect_base(monkeypatch, dcu, "stream")
    assert any("another stream than Python" in p["problem"] for p in report["problems"])


@pytest.mark.parametrize(
    ("fault", "status", "words"),
    [
        ("wrong", "failed", "1 of 1024 elements are wrong, first [1000]"),
        ("module", "killed", "SIGSEGV"),
    ],
)
def test_a_launch_that_goes_wrong_is_recorded(monkeypatch, dcu, fault, status, words):
    arguments = {"index": 0, "kind": "hip", "arch": fake_dcu.ARCH}
    arguments["rtc"] = str(Path(dcu["DTKROOT"], "lib", "libhiprtc.so.5"))
    outcome = smoke.run_probe("launch", environ={**dcu, "FAKE_FAULT": fault}, **arguments)
    assert outcome["status"] == status and words in smoke.describe(outcome)


CUDA_DRIVER = r"""
#include <stdlib.h>
#include <string.h>

int hipModuleLoadData(void**, const void*);
int hipModuleGetFunction(void**, void*, const char*);
int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void*, void**, void**);
int cuModuleLoadData(void** module, const void* code) {
  const char* fault = getenv("FAKE_FAULT");
  return fault && !strcmp(fault, "driver") ? 209 : hipModuleLoadData(module, code);
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  return hipModuleGetFunction(function, module, name);
}
int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** arguments, void** extra) {
  return hipModuleLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);
}
int cuGetErrorString(int code, const char** text) {
  *text = code == 209 ? "no kernel image is available" : 0;
  return 0;
}
"""


@pytest.fixture(scope="module")
def cuda_driver(dcu, tmp_path_factory):
    """The same device behind the names of libcuda."""
    folder = tmp_path_factory.mktemp("cuda")
    runtime = Path(dcu["DTKROOT"], "lib", "libgalaxyhip.so.5")
    fake_dcu.build_library(folder / "libcuda.so.1", CUDA_DRIVER, str(runtime))
    return {**dcu, "LD_LIBRARY_PATH": f"{folder}:{dcu['LD_LIBRARY_PATH']}"}


@pytest.mark.skipif(nvrtc() is None, reason="no NVRTC beside this PyTorch")
def test_a_cubin_goes_through_the_cuda_driver(cuda_driver):
    arguments = {"index": 0, "kind": "cuda", "arch": "sm_90a", "rtc": nvrtc()}
    outcome = smoke.run_probe("launch", environ=cuda_driver, **arguments)
    assert outcome["status"] == "ok", outcome
    assert (outcome["facts"]["current"], outcome["facts"]["side"]) == ("right", "right")
    failing = smoke.run_probe(
        "launch", environ={**cuda_driver, "FAKE_FAULT": "driver"}, **arguments
    )
    assert failing["status"] == "failed" and failing["step"] == "load the module"
    assert "cuModuleLoadData: error 209 (no kernel image is available)" in failing["detail"]


# ---- the command


@pytest.mark.parametrize("arguments", [["--time-limit", "0"], ["--time-limit", "nan"], ["--what"]])
def test_wrong_usage_is_exit_code_2(arguments):
    assert run_whole(dict(os.environ), *arguments).returncode == 2


@pytest.fixture
def canned(monkeypatch, dcu):
    report = collect_base(monkeypatch, dcu, "import")
    monkeypatch.setattr(smoke, "collect", lambda limit, say: dict(report))


def test_a_report_that_cannot_be_written_is_printed(canned, capsys, tmp_path):
    assert smoke.main(["--output", str(tmp_path / "absent" / "report.json")]) == 1
    text = capsys.readouterr().out
    assert "cannot be written" in text
    assert json.loads(text[text.index("\n{\n") :])["schema"] == smoke.SCHEMA


def test_dash_sends_the_report_to_stdout_alone(canned, capsys):
    assert smoke.main(["--output", "-"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["problems"]
    assert "Problems: 1" in captured.err and "->" in captured.err


@pytest.fixture
def no_temporary_folder(monkeypatch, tmp_path):
    def refuse(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(smoke.tempfile, "mkdtemp", refuse)
    monkeypatch.setattr(smoke.tempfile, "TemporaryFile", refuse)


def test_without_a_temporary_folder_all_else_still_works(no_temporary_folder, monkeypatch, dcu):
    before = os.environ.get("TMPDIR")
    with smoke.scratch() as folder:
        assert folder is None and os.environ.get("TMPDIR") == before
        report = collect_base(monkeypatch, dcu, "import")
    assert smoke.facts_of(report["device_files"])
    assert any("set TMPDIR" in entry["remedy"] for entry in report["problems"])


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_path_that_the_locale_cannot_show_is_shown_escaped(
    canned, monkeypatch, tmp_path, encoding
):
    collect = smoke.collect
    strange = "/opt/\udcff/海光/libx.so"

    def with_strange_path(limit, say):
        report = collect(limit, say)
        report["installs"] = [{"kind": "rocm", "path": strange, "libraries": [], "env_sh": False}]
        return report

    monkeypatch.setattr(smoke, "collect", with_strange_path)
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
    assert smoke.main(["--output", str(tmp_path / "report.json")]) == 1
    sys.stdout.flush()
    assert b"/opt/\\udcff/" in out.getvalue()
    assert json.loads((tmp_path / "report.json").read_text())["installs"][0]["path"] == strange


def test_scratch_folder_is_gone_afterwards(monkeypatch):
    monkeypatch.setenv("TMPDIR", "/tmp")
    with smoke.scratch() as folder:
        assert os.environ["TMPDIR"] == folder and os.path.isdir(folder)
    assert os.environ["TMPDIR"] == "/tmp" and not os.path.exists(folder)
