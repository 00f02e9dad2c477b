"""A kernel file in CUDA's or HIP's language, made ready for the simulator, or refused in a sentence."""

from __future__ import annotations

import re

DEVICE_HEADER = re.compile(r'^\s*#\s*include\s*"truefuse/device\.h"', re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]\s*$', re.MULTILINE)
GIVEN = {
    "cuda_runtime.h",
    "hip/hip_runtime.h",
    "math.h",
    "cmath",
    "stdint.h",
    "cstdint",
    "stddef.h",
}
SHARED = re.compile(
    r"(?P<external>\bextern\s+)?__shared__\s+(?P<align>__align__\(\d+\)\s*)?"
    r"(?P<type>[\w:\s]+?)\s*\b(?P<name>\w+)\s*(?P<dims>(\[[^\]]*\])*)\s*;"
)
KERNEL = re.compile(
    r"__global__[^;{}]*?\bvoid\b[^;{}()]*?(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\("
)
OWN_KERNEL = re.compile(r"TF_KERNEL\([^)]*\)\s*void\s+(\w+)\s*\(")

UNSUPPORTED = (
    (r"<<<", "launches (<<<...>>>)", "give a file of kernels alone; grid and block are options"),
    (r"\b(cuda|hip)(Malloc|Memcpy|Free|Stream|Launch|Device)\w*\s*\(", "host code", "give a file of kernels alone"),
    (r"template\s*<[^<>]*>\s*(extern\s+\"C\"\s*)?(static\s+)?__global__", "kernel templates", "add a kernel that names the types and calls a __device__ template"),
    (r"\bprintf\s*\(", "printf", "write to a buffer instead"),
    (r"\basm\s*(volatile)?\s*\(", "inline assembly", "guard it and give a plain form beside it"),
    (r"cooperative_groups|\bcg::", "cooperative groups", "use __syncthreads, __syncwarp and shuffles"),
    (r"\b(__half2?|half2?|__nv_bfloat16|__hip_bfloat16|hip_bfloat16)\b", "vendors' half types", "include truefuse/device.h and use tf::f16 or tf::bf16"),
    (r"\b(tex[123]D|surf[123]D|texture\s*<)", "textures", "read the array"),
    (r"\b(wmma|nvcuda|__builtin_amdgcn_\w+|__nv_\w+)\b", "vendor intrinsics", "give a portable form beside it"),
)  # fmt: skip


class NotSupported(Exception):
    """What the file uses that the simulator does not have; the text is for the user."""


def without_comments(text: str) -> str:
    """Comments as blanks, so that lines and columns stay."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def translate(name: str, text: str) -> str:
    """The source as the simulator takes it, line for line. Raises NotSupported."""
    code = without_comments(text)
    if DEVICE_HEADER.search(code):
        return text
    for pattern, what, remedy in UNSUPPORTED:
        if found := re.search(pattern, code):
            line = code.count("\n", 0, found.start()) + 1
            raise NotSupported(f"{name}:{line}: the simulator has no {what}; {remedy}.")
    for header in INCLUDE.findall(code):
        if header not in GIVEN:
            raise NotSupported(
                f"{name}: the simulator does not have the header '{header}'. It gives what CUDA's and "
                "HIP's runtime headers do, in part; put everything else into the file."
            )
    code = INCLUDE.sub("", code)
    return '#include "truefuse/sim/cuda.h"\n#line 1 "' + name + '"\n' + SHARED.sub(_shared, code)


def _shared(match: re.Match[str]) -> str:
    kind, name, dims = match["type"].strip(), match["name"], match["dims"]
    if match["external"]:
        return f"{kind}* const {name} = static_cast<{kind}*>(::tf_sim::dynamic_shared());"
    return (
        f"typedef {kind} tf_shared_{name}{dims}; tf_shared_{name}& {name} = "
        f"::tf_sim::shared_variable<tf_shared_{name}>([] {{}});"
    )


def kernels(text: str) -> list[str]:
    """The names of the kernels that a source defines."""
    code = without_comments(text)
    return list(dict.fromkeys(KERNEL.findall(code) + OWN_KERNEL.findall(code)))
