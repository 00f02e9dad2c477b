"""A kernel file in CUDA's or HIP's language, made ready for the simulator, or refused in a sentence."""

from __future__ import annotations

import re

DEVICE_HEADER = re.compile(r'^\s*#\s*include\s*"truefuse/device\.h"', re.MULTILINE)
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"][ \t]*$', re.MULTILINE)
GIVEN = {
    "cuda_runtime.h",
    "hip/hip_runtime.h",
    "truefuse/sim/cuda.h",
    "math.h",
    "cmath",
    "stdint.h",
    "cstdint",
    "stddef.h",
    "cstddef",
    "float.h",
    "cfloat",
    "limits.h",
    "climits",
}
BRACKETS = r"\((?:[^()]|\([^()]*\))*\)"
ALIGNED = rf"(?:(?:__align__|alignas)\s*{BRACKETS}\s*)?"
TYPE = r"(?:(?:const|volatile|unsigned|signed|long|short|struct)\s+)*[\w:]+(?:\s*<[^<>;]*>)?"
DECLARATOR = r"[\s*]*\b\w+\s*(?:\[[^\];]*\]\s*)*"
SHARED = re.compile(
    rf"{ALIGNED}(?P<external>\bextern\s+)?{ALIGNED}\b__shared__\s+{ALIGNED}(?P<type>{TYPE})"
    rf"(?P<names>{DECLARATOR}(?:,{DECLARATOR})*);"
)
ATTRIBUTES = rf"(?:(?:\b(?:static|inline|__forceinline__)\b|__launch_bounds__\s*{BRACKETS})\s*)*"
KERNEL = re.compile(
    rf"{ATTRIBUTES}\b__global__\s+{ATTRIBUTES}void\s+{ATTRIBUTES}(?P<name>\w+)\s*\("
)
BOUND = re.compile(rf"__launch_bounds__\s*\((?P<threads>(?:[^(),]|{BRACKETS})*)")
MOST_THREADS = "1024"
OWN_KERNEL = re.compile(r"TF_KERNEL\([^)]*\)\s*void\s+(\w+)\s*\(")
OPENING = re.compile(r'(\bnamespace\b[^{};]*|\bextern\s*"[^"]*"\s*)?\{|\}')

UNSUPPORTED = (
    (r"<<<", "launches (<<<...>>>)", "give a file of kernels alone; grid and block are options"),
    (r"\b(cuda|hip)(Malloc|Memcpy|Free|Stream|Launch|Device)\w*\s*\(", "host code", "give a file of kernels alone"),
    (rf"template\s*<[^<>]*>\s*{ATTRIBUTES}__global__", "kernel templates", "add a kernel that names the types and calls a __device__ template"),
    (r"\bprintf\s*\(", "printf", "write to a buffer instead"),
    (r"\basm\s*(volatile)?\s*\(", "inline assembly", "guard it and give a plain form beside it"),
    (r"cooperative_groups|\bcg::", "cooperative groups", "use __syncthreads, __syncwarp and shuffles"),
    (r"\b(__half2?|half2?|__nv_bfloat16|__hip_bfloat16|hip_bfloat16)\b", "vendors' half types", "include truefuse/device.h and use tf::f16 or tf::bf16"),
    (r"\b__constant__\s[^;={]*;", "host that fills __constant__ memory", "give it values where it is declared, or pass a buffer"),
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
    """The source as the simulator takes it, each line where it was. Raises NotSupported."""
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
    code = SHARED.sub(_shared, KERNEL.sub(_kernel, INCLUDE.sub("", code)))
    for word, remedy in LEFT.items():
        if found := re.search(rf"\b{word}\b", code):
            line = code.count("\n", 0, found.start()) + 1
            raise NotSupported(f"{name}:{line}: the simulator cannot read this {word}; {remedy}.")
    return code


LEFT = {
    "__shared__": "write `__shared__ TYPE NAME[SIZE];` with a type that has a name",
    "__global__": "write `__global__ void NAME(...)`, without further attributes",
}


def _kernel(match: re.Match[str]) -> str:
    bound = BOUND.search(match.group())
    threads = " ".join(bound["threads"].split()) if bound else MOST_THREADS
    head = f"TF_SIM_GLOBAL({threads}) void {match['name']}("
    return "\n" * match.group().count("\n") + head


def _shared(match: re.Match[str]) -> str:
    written = []
    for declarator in match["names"].split(","):
        kind, name = match["type"], re.findall(r"\w+", declarator.partition("[")[0])[0]
        if not match["external"]:
            array = " ".join(declarator.replace(name, f"tf_shared_{name}", 1).split())
            written.append(
                f"typedef {kind} {array}; tf_shared_{name}& {name} = "
                f"::tf_sim::shared_variable<tf_shared_{name}>([] {{}});"
            )
        elif _in_function(match.string, match.start()):
            written.append(
                f"{kind}* const {name} = static_cast<{kind}*>(::tf_sim::dynamic_shared());"
            )
        else:
            written.append(f"static const ::tf_sim::DynamicShared<{kind}> {name};")
    return " ".join(written) + "\n" * match.group().count("\n")


def _in_function(code: str, end: int) -> bool:
    """Whether a brace is open there that is no namespace's."""
    open_braces: list[bool] = []
    for brace in OPENING.finditer(code, 0, end):
        if brace.group() != "}":
            open_braces.append(brace[1] is None)
        elif open_braces:
            open_braces.pop()
    return any(open_braces)


def kernels(text: str) -> list[str]:
    """The names of the kernels that a source defines."""
    code = without_comments(text)
    return list(dict.fromkeys(KERNEL.findall(code) + OWN_KERNEL.findall(code)))


# What a parameter's element may be written as, by the dtype that --arg gives.
SPELLED = {
    "f32": ("float",),
    "f64": ("double",),
    "i32": ("int", "unsigned", "unsigned int", "int32_t", "uint32_t", "signed int"),
    "i64": (
        *("long long", "unsigned long long", "long long int", "unsigned long long int"),
        *("int64_t", "uint64_t", "size_t", "long", "unsigned long"),
    ),
    "u8": ("unsigned char", "char", "signed char", "uint8_t", "int8_t", "bool"),
}
QUALIFIERS = re.compile(r"\b(const|volatile|restrict|__restrict__|__restrict)\b")


def parameters(text: str, kernel: str) -> list[tuple[str, str, bool]]:
    """Of each parameter: as it is written, its dtype ("" if its type is none that --arg knows), and
    whether it is a pointer. Empty if the parameters cannot be read."""
    code = without_comments(text)
    found = re.search(rf"\b{re.escape(kernel)}\s*(?P<list>{BRACKETS})\s*\{{", code)
    if not found:
        return []
    result = []
    for written in filter(str.strip, found["list"][1:-1].split(",")):
        plain = QUALIFIERS.sub(" ", written.partition("=")[0]).replace("[]", "")
        pointer = "*" in plain or "[]" in written
        words = plain.replace("*", " ").split()[:-1]
        spelled = " ".join(words)
        dtype = next((dtype for dtype, names in SPELLED.items() if spelled in names), "")
        result.append((" ".join(written.split()), dtype, pointer))
    return result
