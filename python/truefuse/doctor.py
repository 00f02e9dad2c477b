"""`truefuse doctor`: what is here, what works, and for each problem its remedy.

Everything that touches a vendor's library runs in a child process with a time limit (see
`truefuse.smoke`), so that a crash or a hang is an answer and not the end of this process.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from truefuse import smoke

if TYPE_CHECKING:
    from rich.console import Console

TIME_LIMIT = 60.0  # Seconds for one step.
REPORT_IT = "report it with what `python smoke.py` writes"

Outcome = dict[str, Any]
Lines = list[tuple[bool | None, str]]  # None: a fact without a verdict.


# What the child processes do.


def probe_native() -> None:
    """The library, its CPU path, its cache and its compilers."""
    smoke.step("load truefuse's library")
    from truefuse import _native

    smoke.note("library", loaded_library() or str(_native.__file__))
    smoke.step("ask for the CPU path")
    smoke.note("cpu", _native.cpu())
    smoke.step("read the cache")
    cache = _native.cache()
    entries = cache["entries"]
    count = entries if isinstance(entries, int) else len(entries)
    smoke.note("cache", {**cache, "entries": count})
    smoke.step("compile one line with each compiler")
    smoke.note("toolchains", _native.toolchains())


def probe_native_stream(index: int) -> None:
    """Is the stream that the library launches on the one that Python means?"""
    smoke.step("import torch and truefuse")
    import torch

    from truefuse import _native

    smoke.step("touch the device")
    torch.cuda.set_device(index)
    torch.tensor([1.0], device=f"cuda:{index}")

    def compare(where: str) -> None:
        smoke.step(f"current stream: {where}")
        answer = _native.current_stream(index)
        handle = answer["stream"] if isinstance(answer, dict) else answer
        smoke.note(where, handle == torch.cuda.current_stream(index).cuda_stream)
        if isinstance(answer, dict):
            smoke.note("method", answer.get("method", ""))

    compare("default")
    with torch.cuda.stream(torch.cuda.Stream(device=index)):
        compare("side")


def probe_kernel(index: int) -> None:
    """One of our kernels on a small tensor, against its definition."""
    smoke.step("import torch and truefuse")
    import torch

    import truefuse

    torch.cuda.set_device(index)
    hidden = 96
    values = [[(i * 53 + j * 17) % 97 / 12.0 - 4.0 for j in range(hidden)] for i in range(8)]
    offsets = [j / 64.0 - 0.75 for j in range(hidden)]
    smoke.step("copy the input to the device")
    x = torch.tensor(values, dtype=torch.float32, device=f"cuda:{index}")
    bias = torch.tensor(offsets, dtype=torch.float32, device=f"cuda:{index}")
    torch.cuda.synchronize(index)
    smoke.step("truefuse.bias_gelu on 8 x 96")
    result = truefuse.bias_gelu(x, bias, approximate="tanh")
    smoke.step("wait for the device")
    torch.cuda.synchronize(index)
    error = max(
        abs(got - gelu(value + offset))
        for got_row, row in zip(result.tolist(), values, strict=True)
        for got, value, offset in zip(got_row, row, offsets, strict=True)
    )
    smoke.note("max_error", error)
    if not error < 1e-5:
        raise RuntimeError(f"bias_gelu is off by {error:g} from its definition")


def gelu(v: float) -> float:
    """The tanh form of GELU, by definition."""
    return 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))


PROBES: dict[str, Callable[..., None]] = {
    "native": probe_native,
    "native_stream": probe_native_stream,
    "kernel": probe_kernel,
}


def child() -> None:
    """Entry point of the child processes."""
    sys.exit(smoke.serve(PROBES, sys.argv[1:]))


def loaded_library() -> str:
    """Path of truefuse's library that is mapped into this process; empty if there is none."""
    with open("/proc/self/maps") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if "/" in line}
    found = [path for path in sorted(paths) if os.path.basename(path).startswith("libtruefuse")]
    return ", ".join(found)


def run_own(name: str, **arguments: Any) -> Outcome:
    command = [sys.executable, "-c", "from truefuse.doctor import child; child()"]
    # The child is to find the truefuse that runs here, whichever way it came to be importable.
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return smoke.run_probe(name, TIME_LIMIT, command, environ, **arguments)


# Testing a device.


def files_state(files: dict[str, str], build: str) -> str:
    """ok, denied, missing or failed: can a process open what the driver of `build` needs?"""
    main, each = (
        ("/dev/kfd", "/dev/dri/renderD") if build == "HIP" else ("/dev/nvidiactl", "/dev/nvidia")
    )
    states = [state for path, state in files.items() if path.startswith(each) and path != main]
    found = [files.get(main, "ENOENT"), "ok" if "ok" in states else (states or ["ENOENT"])[0]]
    bad = [state for state in found if state != "ok"]
    if not bad:
        return "ok"
    if any(state in ("EACCES", "EPERM") for state in bad):
        return "denied"
    return "missing" if "ENOENT" in bad else "failed"


def diagnose(steps: dict[str, str]) -> dict[str, str]:
    """What the results of the four steps mean together: {state, text, remedy}.

    files: ok, denied, missing, failed, hung, killed; tool: ok, absent, failed, hung, killed;
    tensor and kernel: ok, failed, hung, killed. state is "works" if nothing needs doing.
    """
    files, tool, tensor, kernel = (steps[name] for name in ("files", "tool", "tensor", "kernel"))
    hangs = [name for name, state in steps.items() if state == "hung"]
    suffix = f"; hangs: {', '.join(hangs)}" if hangs else ""

    def say(state: str, text: str, remedy: str) -> dict[str, str]:
        return {"state": state, "text": text + suffix, "remedy": remedy}

    if tensor == "ok" and kernel == "ok":
        odd = [
            f"{n} {s}" for n, s in (("files", files), ("tool", tool)) if s not in ("ok", "absent")
        ]
        return say("works", f"works, although: {', '.join(odd)}" if odd else "works", "")
    if tensor == "ok":
        return say(
            "kernel",
            "PyTorch computes on it and only truefuse's kernel fails",
            "shrink the shape until it passes, then report it with this output",
        )
    if files == "denied":
        return say(
            "access",
            "this process may not open the device files",
            "join the groups that own them (render, video), or give the container the devices",
        )
    if files == "missing":
        return say(
            "access",
            "the device files are missing",
            "load the driver, or start the container with --device=/dev/kfd --device=/dev/dri "
            "(NVIDIA: --gpus all)",
        )
    if kernel == "ok":
        return say(
            "unsteady",
            "a one-element tensor failed, then a kernel ran: device or runtime is unsteady",
            "keep the logs, test again in a fresh process; restart the container if it comes back",
        )
    if files == "ok" and tool == "ok" and tensor != "hung":
        return say(
            "software",
            "the driver answers, but PyTorch cannot compute on the device",
            "see that PyTorch's build fits the driver and that LD_LIBRARY_PATH holds no second "
            "runtime; if it does, keep the logs and restart the container or node",
        )
    return say(
        "device",
        "device or runtime in a bad state: no kernel of yours is to blame",
        "keep the logs, restart the container or node",
    )


def try_device(found: Outcome, index: int) -> dict[str, Any]:
    """Files, the vendor's tool, a one-element tensor, one kernel; then what it means together."""
    build = found["identity"]["torch_build"]
    run = functools.partial(smoke.run_probe, limit=TIME_LIMIT)
    files, logs = found["device_files"], {}
    steps = {"files": files["status"]}
    if smoke.ok(files):
        steps["files"] = files_state(files["facts"], build)
        if steps["files"] != "ok":
            logs["files"] = ", ".join(f"{p}: {s}" for p, s in sorted(files["facts"].items()))
    steps["tool"] = "absent"
    for name in ("rocminfo", "hy-smi") if build == "HIP" else ("nvidia-smi",):
        for program in smoke.programs(name)[:1]:
            outcome = run("tool", name=name, program=program)
            if steps["tool"] in ("absent", "ok"):
                steps["tool"] = outcome["status"]
            if not smoke.ok(outcome):
                logs[name] = said(outcome)
    for name, outcome in (
        ("tensor", run("device", index=index)),
        ("kernel", run_own("kernel", index=index)),
    ):
        steps[name] = outcome["status"]
        if not smoke.ok(outcome):
            logs[name] = said(outcome)
    return {"index": index, "steps": steps, "logs": logs, "diagnosis": diagnose(steps)}


def said(outcome: Outcome) -> str:
    """Where and how a step ended, and the last that it printed."""
    lines = outcome.get("log", "").strip().splitlines()
    return "\n".join([smoke.describe(outcome), *lines[-5:]])


def devices_to_test(found: Outcome) -> tuple[list[int], str]:
    """Indices of the devices; or none and why. A runtime in a bad state reports no device either,
    so that one whose device files are there is tested as device 0."""
    indices = [entry["index"] for entry in found["devices"]]
    if indices:
        return indices, ""
    build = found["identity"]["torch_build"]
    if build == "none":
        return [], f"PyTorch cannot be used: {smoke.describe(found['torch'])}"
    reason = smoke.no_device_reason(found)
    files = smoke.facts_of(found["device_files"])
    if build != "CPU" and files.get("/dev/kfd" if build == "HIP" else "/dev/nvidiactl") != "ENOENT":
        return [0], reason
    return [], reason


# The report.


def report(device: bool = False) -> dict[str, Any]:
    """Facts, their summary and the problems, without anything personal; JSON values throughout.

    `device`: also test each device, in child processes. Never raises for what it finds.
    """
    with smoke.scratch():
        run = functools.partial(smoke.run_probe, limit=TIME_LIMIT)
        found = smoke.collect_base(run, lambda text: None, brief=True)
        found["native"] = run_own("native")
        if smoke.ok(found["native"]):  # Without the library there is nothing more to ask.
            for entry in found["devices"]:
                entry["native_stream"] = run_own("native_stream", index=entry["index"])
        if device:
            indices, found["no_device"] = devices_to_test(found)
            found["device_tests"] = [try_device(found, index) for index in indices]
    lines = [
        *smoke.machine_lines(found),
        *smoke.device_lines(found),
        *smoke.library_lines(found),
        *native_lines(found),
        *device_test_lines(found),
    ]
    found["summary"] = smoke.with_verdicts(lines)
    found["problems"] = smoke.problems(found) + native_problems(found) + device_problems(found)
    return smoke.Cleaner()(found)


def devices_with_library(found: Outcome) -> list[Outcome]:
    return [entry for entry in found["devices"] if "native_stream" in entry]


def native_lines(found: Outcome) -> Lines:
    native = smoke.facts_of(found["native"])
    lines: Lines = []
    if not smoke.ok(found["native"]):
        lines.append((False, f"truefuse: {smoke.describe(found['native'])}"))
    if "library" in native:
        lines.append((True, f"truefuse library: {native['library']}"))
    if "cpu" in native:
        level, threads = native["cpu"]["level"], native["cpu"]["threads"]
        lines.append((None, f"CPU path: {level}, threads: {threads}"))
    if "cache" in native:
        cache = native["cache"]
        place = cache["directory"] or "none, memory only"
        lines.append((bool(cache["directory"]), f"cache: {place}; entries: {cache['entries']}"))
        lines += [(None, f"cache, passed over: {reason}") for reason in cache["reasons"]]
    for chain in native.get("toolchains", []):
        if chain["works"]:
            lines.append((True, f"{chain['name']} {chain['version']}: works; {chain['path']}"))
        elif chain["found"]:
            lines.append((False, f"{chain['name']}: {chain['problem']}; {chain['path']}"))
        else:
            remedy = f"; {chain['remedy']}" if chain["remedy"] else ""
            lines.append((None, f"{chain['name']}: not found{remedy}"))
    for entry in devices_with_library(found):
        outcome = entry["native_stream"]
        facts = smoke.facts_of(outcome)
        for where in ("default", "side"):
            words = {True: "same as Python's", False: "NOT Python's"}
            text = words.get(facts.get(where)) or smoke.describe(outcome)
            name = f"device {entry['index']}: truefuse's stream ({where})"
            method = f", by {facts['method']}" if facts.get("method") else ""
            lines.append((facts.get(where, False), f"{name}: {text}{method}"))
    return lines


def native_problems(found: Outcome) -> list[dict[str, str]]:
    native = smoke.facts_of(found["native"])
    problems = []
    if not smoke.ok(found["native"]):
        problem = f"truefuse's library does not work: {smoke.describe(found['native'])}"
        loaded = "library" in native
        problems.append((problem, REPORT_IT if loaded else "rebuild truefuse for this PyTorch"))
    if "cache" in native and not native["cache"]["directory"]:
        problem = "there is no cache folder: each process compiles anew"
        problems.append((problem, "set TRUEFUSE_CACHE_DIR to a folder of yours on a local disk"))
    for chain in native.get("toolchains", []):
        if chain["found"] and not chain["works"]:
            problem = f"{chain['name']} ({chain['path']}) does not work: {chain['problem']}"
            problems.append((problem, chain["remedy"] or "repair or remove it"))
    for entry in devices_with_library(found):
        facts = smoke.facts_of(entry["native_stream"])
        if facts.get("default") is not True or facts.get("side") is not True:
            how = smoke.describe(entry["native_stream"])
            problem = f"device {entry['index']}: truefuse does not get PyTorch's stream ({how})"
            problems.append((problem, REPORT_IT))
    return [{"problem": problem, "remedy": remedy} for problem, remedy in problems]


def device_test_lines(found: Outcome) -> Lines:
    if "device_tests" not in found:
        return []
    if not found["device_tests"]:
        return [(None, f"no device to test: {found['no_device']}")]
    lines: Lines = []
    if found["no_device"]:
        lines.append((None, f"no device is reported ({found['no_device']}); device 0 is tried"))
    for tested in found["device_tests"]:
        steps = ", ".join(f"{name} {state}" for name, state in tested["steps"].items())
        works = tested["diagnosis"]["state"] == "works"
        lines.append((works, f"device {tested['index']}: {steps}: {tested['diagnosis']['text']}"))
        for name, log in tested["logs"].items():
            lines += [(None, f"  {name}: {line}") for line in log.splitlines()]
    return lines


def device_problems(found: Outcome) -> list[dict[str, str]]:
    return [
        {
            "problem": f"device {tested['index']}: {tested['diagnosis']['text']}",
            "remedy": tested["diagnosis"]["remedy"],
        }
        for tested in found.get("device_tests", [])
        if tested["diagnosis"]["state"] != "works"
    ]


def show(report: dict[str, Any], console: Console) -> int:
    """Prints a report; returns the exit code: 0 if it has no problems, else 1."""

    def line(text: str, style: str = "") -> None:
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    for verdict, fact in report["summary"]:
        line(f"{verdict:<5} {fact}", "bold red" if verdict == "FAIL" else "")
    for number, entry in enumerate(report["problems"], 1):
        line(f"{number}. {entry['problem']}", "bold red")
        line(f"   -> {entry['remedy']}")
    if not report["problems"]:
        line("no problem found", "bold green")
    return 1 if report["problems"] else 0
