"""The shipped kernel compiles for its targets: cold, and from the cache, apart.

On a GPU the target is the device's own; elsewhere those that the compilers found here can make, so
that a kernel which cannot be built is seen before it meets a device.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from truefuse.context import Context
from truefuse.gates.proof import self_test_failed
from truefuse.verdict import Result, Status

NAME = "compile"
SHOWN_TARGETS = {"hipRTC": ("gfx906", "gfx90a"), "NVRTC": ("sm_90a",)}


def run(context: Context) -> Result:
    operator = _registered(context)
    if operator is None:
        return Result(
            NAME,
            Status.PASS,
            "no-kernel-of-ours",
            "the case names no operator whose kernels truefuse compiles",
        )
    from truefuse import _native

    toolchains = _native.toolchains()
    faults = self_test(context, operator, toolchains)
    if faults:
        return self_test_failed(NAME, faults)
    before = _files_beside(context.case.source)
    rows, problems = [], []
    for toolchain in toolchains:
        if not (toolchain["found"] and toolchain["works"]):
            rows.append({"compiler": toolchain["name"], **_absence(toolchain)})
            continue
        for arch in _targets(context, toolchain):
            row = _compile(operator, arch, toolchain["name"])
            rows.append(row)
            if "error" in row:
                what = f"{toolchain['name']} for {arch}, {row['variant']}"
                problems.append((what, _essence(row["error"])))
    new = sorted(_files_beside(context.case.source) - before)
    numbers = {"table": rows, "new_files": new, "source_files": len(before)}
    if new:
        return Result(
            NAME,
            Status.FAIL,
            "files-beside-sources",
            f"compiling wrote {new[0]} beside the sources",
            expected="no new file beside the sources",
            got=", ".join(new),
            numbers=numbers,
        )
    if problems:
        return Result(
            NAME,
            Status.FAIL,
            "does-not-compile",
            f"{len(problems)} of {len(rows)} builds failed; the compiler's words are in the report",
            expected="a code object",
            got=problems[0][1],
            first=problems[0][0],
            numbers=numbers,
        )
    compiled = [row for row in rows if "cold_seconds" in row]
    if not compiled:
        needed = context.device.type == "cuda"
        return Result(
            NAME,
            Status.UNKNOWN if needed else Status.SKIP,
            "no-compiler",
            "no compiler found here, so no GPU kernel was built",
            lines=[_line(row) for row in rows],
            numbers=numbers,
        )
    targets = ", ".join(dict.fromkeys(row["arch"] for row in compiled))
    return Result(
        NAME,
        Status.PASS,
        "compiles",
        f"for {targets}: {len(operator['variants'])} variants by NVRTC and hipRTC, one by nvcc and "
        f"hipcc; timed: {operator['variants'][0]}",
        lines=[_line(row) for row in rows],
        numbers=numbers,
    )


def self_test(
    context: Context, operator: dict[str, Any], toolchains: list[dict[str, Any]]
) -> list[str]:
    """A variant that does not exist must not compile; a file beside a source must be seen."""
    faults = []
    nowhere = {"name": operator["name"], "variants": ["no such variant"]}
    for toolchain in toolchains:
        if toolchain["found"] and toolchain["works"] and _targets(context, toolchain):
            row = _compile(nowhere, _targets(context, toolchain)[0], toolchain["name"])
            if "error" not in row:
                faults.append(f"{toolchain['name']} compiles a variant that does not exist")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "case.py"
        source.touch()
        before = _files_beside(source)
        (Path(folder) / "kernel_hip.hip").touch()
        if _files_beside(source) - before != {"kernel_hip.hip"}:
            faults.append("did not see a new file beside the sources")
    return faults


def _registered(context: Context) -> dict[str, Any] | None:
    """Name and the shown variants of the case's operator."""
    if context.case.operator is None:
        return None
    from truefuse import _native

    for operator in _native.operators():
        if f"{operator['namespace']}::{operator['name']}" == context.case.operator:
            shown = [v for v in operator["variants"] if v["shown"]] or operator["variants"]
            if shown:
                return {"name": context.case.operator, "variants": [v["label"] for v in shown]}
    return None


def _targets(context: Context, toolchain: dict[str, Any]) -> tuple[str, ...]:
    """The device's own arch if this compiler is for its vendor; else what it makes by default."""
    default = toolchain["default_arch"]
    if context.device.type == "cuda":
        from truefuse import _native

        own = _native.devices()["devices"][context.device.index or 0]["arch"]
        return (own,) if own.startswith("gfx") == default.startswith("gfx") else ()
    return SHOWN_TARGETS.get(toolchain["name"], (default,))


def _compile(operator: dict[str, Any], arch: str, compiler: str) -> dict[str, Any]:
    from truefuse import _native

    def build(label: str, cache: bool) -> dict[str, Any]:
        return _native.compile(operator["name"], arch, label, compiler, cache)

    row: dict[str, Any] = {"compiler": compiler, "arch": arch}
    timed, *others = operator["variants"]
    cold = build(timed, cache=True)  # publishes, where it is not there yet
    # Programs take seconds, and are known to work; what compiling cost is kept with what it made.
    if cold["ok"] and cold["source"] != "compiled" and compiler in SHOWN_TARGETS:
        cold = build(timed, cache=False)
    if not cold["ok"]:
        return {**row, "variant": timed, "error": cold["error"]}
    cached = build(timed, cache=True)
    # A compiler that is a program takes seconds for each: there one variant has to do.
    for label in others if compiler in SHOWN_TARGETS else ():
        other = build(label, cache=True)
        if not other["ok"]:
            return {**row, "variant": label, "error": other["error"]}
    return {
        **row,
        "arch": cold["target"],
        "version": cold["compiler_version"],
        "cold_seconds": cold["compile_seconds"],
        "cached_seconds": cached["seconds"] if cached["source"] != "compiled" else None,
        "code_bytes": cold["code_bytes"],
        "key": cold["key"],
        "resources": cold["resources"],
        "occupancy": cold["occupancy"],
    }


def _essence(log: str) -> str:
    """The line of a compiler's log that says what is wrong."""
    lines = [line for line in log.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[0] if lines else "no message")


def _absence(toolchain: dict[str, Any]) -> dict[str, str]:
    if not toolchain["found"]:
        return {"problem": "not found", "remedy": toolchain["remedy"]}
    return {"problem": toolchain["problem"], "remedy": toolchain["remedy"]}


def _line(row: dict[str, Any]) -> str:
    if "problem" in row:
        remedy = f": {row['remedy']}" if row["remedy"] else ""
        return f"{row['compiler']:<8} {row['problem']}{remedy}"
    cached = "not cached"
    if row["cached_seconds"] is not None:
        cached = f"cached {row['cached_seconds'] * 1e3:.2g} ms"
    return (
        f"{row['arch']:<8} {row['compiler']} {row['version']}  cold {row['cold_seconds']:.2g} s · "
        f"{cached} · {resources_text(row['resources'])} · {occupancy_text(row['occupancy'])}"
    )


def resources_text(resources: dict[str, Any]) -> str:
    """Only what the code object states; -1 means that it does not."""
    words = (
        ("registers", "registers"),
        ("shared_bytes", "B shared"),
        ("scratch_bytes", "B scratch"),
        ("spills", "spills"),
    )
    stated = [f"{resources[key]} {word}" for key, word in words if resources.get(key, -1) >= 0]
    return " · ".join(stated) or "resources not stated"


def occupancy_text(occupancy: dict[str, Any] | None) -> str:
    if not occupancy or occupancy.get("value", -1) < 0:
        return "occupancy not known"
    return f"occupancy {occupancy['value']}/{occupancy['maximum']} {occupancy['unit']}"


def _files_beside(source: Path | None) -> set[str]:
    if source is None:
        return set()
    folder = source.parent
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }
