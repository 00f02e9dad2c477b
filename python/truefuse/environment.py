"""Where a check ran: versions, device, processor. Nothing personal, nothing that needs a network."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch


def describe(device: torch.device) -> dict[str, Any]:
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "truefuse": _version(),
        "torch": torch.__version__,
        "torch_build": torch_build(),
        "python": platform.python_version(),
        "os": _os_name(),
        "device": device_facts(device),
        "cpu": {
            "model": _cpu_model(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": torch.get_num_threads(),
            "isa": torch.backends.cpu.get_cpu_capability(),
            "truefuse": _cpu_paths(),
        },
        "compiler": _compiler(),
    }


def torch_build() -> str:
    if torch.version.hip:
        return f"HIP {torch.version.hip}"
    if torch.version.cuda:
        return f"CUDA {torch.version.cuda}"
    return "CPU"


def device_facts(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {"type": device.type, "name": _cpu_model()}
    properties = torch.cuda.get_device_properties(device)
    major, minor = torch.cuda.get_device_capability(device)
    return {
        "type": str(device),
        "name": properties.name,
        "arch": properties.gcnArchName if torch.version.hip else f"sm_{major}{minor}",
        "memory_bytes": properties.total_memory,
        "multiprocessors": properties.multi_processor_count,
    }


def one_line(environment: dict[str, Any]) -> str:
    cpu = environment["cpu"]
    return (
        f"torch {environment['torch']} ({environment['torch_build']} build) · "
        f"{environment['compiler'] or 'no C++ compiler'} · {environment['device']['name']} · "
        f"{cpu['cores']} cores, {cpu['threads']} threads, {cpu['isa']}"
    )


def _version() -> str | None:
    """Of the library that is loaded; None in a tree that is not built."""
    try:
        from truefuse import _native

        return _native.version()
    except (ImportError, AttributeError):
        return None


def _cpu_paths() -> dict[str, Any] | None:
    """What the library's own CPU code uses, where it is loaded."""
    try:
        from truefuse import _native

        return _native.cpu()
    except (ImportError, AttributeError, RuntimeError):
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _os_name() -> str:
    try:
        name = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        name = ""
    return " · ".join(part for part in (name, platform.system(), platform.release()) if part)


def _compiler() -> str | None:
    program = shutil.which("g++") or shutil.which("c++")
    if program is None:
        return None
    try:
        version = subprocess.run(
            [program, "-dumpfullversion", "-dumpversion"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"g++ {version.stdout.strip()}"
