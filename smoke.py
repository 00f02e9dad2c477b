#!/usr/bin/env python3
"""What can this machine compile and run? One file; needs Python 3.8 or later, and PyTorch if there is one.

    python smoke.py                     writes smoke-report.json, prints a summary
    python smoke.py --output -          report to stdout, summary to stderr

It is meant for machines with a Hygon DCU, an AMD or an NVIDIA GPU. Every step that could crash, abort
or hang runs in a child process with a time limit, so that a crash becomes a line of the report.
Nothing is built, installed or left behind. User names, host names and home folders are replaced before
anything is written; of the environment only the variables in ENVIRONMENT are read out.

Exit code: 0 no problem found, 1 problems found (the report is written all the same), 2 wrong usage.
"""

from __future__ import annotations

import os
import sys

# A folder named "torch" beside this file must not be taken for PyTorch.
if (
    __name__ == "__main__"
    and sys.path
    and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__))
):
    del sys.path[0]

import argparse
import contextlib
import ctypes
import errno
import faulthandler
import functools
import glob
import importlib.util
import json
import platform
import pwd
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import traceback

SCHEMA = 1

ENVIRONMENT = (
    "AMD_COMGR_CACHE AMD_SERIALIZE_KERNEL CUDA_HOME CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_PATH "
    "CUDA_VISIBLE_DEVICES DTKROOT GPU_DEVICE_ORDINAL GPU_MAX_HW_QUEUES HIPCC_COMPILE_FLAGS_APPEND "
    "HIPRTC_COMPILE_OPTIONS_APPEND HIPRTC_LINK_OPTIONS_APPEND HIP_CLANG_PATH HIP_COMPILER "
    "HIP_DEVICE_LIB_PATH HIP_KERNEL_BATCH_CEILING HIP_PATH HIP_PLATFORM HIP_VISIBLE_DEVICES "
    "NVCC_APPEND_FLAGS NVCC_PREPEND_FLAGS PYTORCH_ROCM_ARCH ROCM_HOME ROCM_PATH ROCR_VISIBLE_DEVICES "
    "TORCH_CUDA_ARCH_LIST"
).split()
ENVIRONMENT_PREFIX = "HSA_"

DCU_ARCHES = ("gfx926", "gfx928", "gfx936", "gfx938", "gfx92a", "gfx946")

# Library families, each with the names under which the loader may know it.
FAMILIES = {
    "libamdhip64": ["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"],
    "libgalaxyhip": ["libgalaxyhip.so.6", "libgalaxyhip.so.5", "libgalaxyhip.so"],
    "libhiprtc": ["libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"],
    "libamd_comgr": ["libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"],
    "libnvrtc": ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"],
    "libcuda": ["libcuda.so.1"],
    "libcudart": ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"],
}
HIP_RUNTIMES = ("libgalaxyhip", "libamdhip64")
RTC_FAMILIES = {"hip": ("libhiprtc", "libgalaxyhip", "libamdhip64"), "cuda": ("libnvrtc",)}
RTC_COMPILE = {"hip": "hiprtcCompileProgram", "cuda": "nvrtcCompileProgram"}
RTC_NAME = {"hip": "hipRTC", "cuda": "NVRTC"}
# What is compiled for where no device says what it is.
EXAMPLE_ARCHES = {
    "hip": ["gfx906", "gfx90a:sramecc+:xnack-", "gfx936:sramecc+:xnack-"],
    "cuda": ["sm_90a", "sm_80"],
}
WRONG_ARCH = {"hip": "gfx999", "cuda": "sm_999"}

LIBRARY_SYMBOLS = (
    "hiprtcCompileProgram nvrtcCompileProgram hipModuleLoadData cuModuleLoadData "
    "hipGetDevicePropertiesR0600 hipGetDeviceProperties amd_comgr_get_isa_metadata"
).split()
TORCH_SYMBOLS = (
    ("libtorch_cuda.so", "aoti_torch_get_current_cuda_stream"),
    ("libtorch_hip.so", "aoti_torch_get_current_cuda_stream"),
    ("libtorch_cpu.so", "aoti_torch_get_current_stream"),
    ("libtorch_cpu.so", "torch_stream_native_handle"),
    ("libc10.so", "_ZNK3c106Stream13native_handleEv"),
)

# --------------------------------------------------------------------------- kernels

LINE_KERNEL = """
extern "C" __global__ void tf_line(const float* tf_x, float* tf_y, int tf_n) {
  int tf_i = blockIdx.x * blockDim.x + threadIdx.x;
  if (tf_i < tf_n) tf_y[tf_i] = 2.0f * tf_x[tf_i] + (float)tf_i;
}
"""

# The macros end up in a table inside the code object, readable without a device, that a kernel
# copies out. -1: not defined; flags, which may be empty, stand there as 1.
FLAGS = "__GFX9__ __HIPCC_RTC__ __HIP_PLATFORM_AMD__ __HIPCC__ __CUDACC_RTC__".split()
FLAGS += [f"__{arch}__" for arch in ("gfx906", "gfx90a", "gfx942", *DCU_ARCHES)]
NUMBERS = (
    "__AMDGCN_WAVEFRONT_SIZE __AMDGCN_WAVEFRONT_SIZE__ __clang_major__ HIP_VERSION __CUDA_ARCH__ "
    "__CUDACC_VER_MAJOR__ __CUDACC_VER_MINOR__ __CUDACC_VER_BUILD__ __cplusplus"
).split()
MACROS = [(name, False) for name in FLAGS] + [(name, True) for name in NUMBERS]
MAGIC = (0x54465F53, 0x4D4F4B45, 0x1A2B3C4D)


def macro_source():
    rows = [f"{word}," for word in MAGIC]
    for name, has_value in MACROS:
        value = name if has_value else "1"
        rows.append(f"#ifdef {name}\n(int)({value}),\n#else\n-1,\n#endif")
    table = 'extern "C" __device__ int tf_table[@] = {\n' + "\n".join(rows) + "\n};\n"
    kernel = """
extern "C" __global__ void tf_macros(int* tf_out) {
  for (int tf_i = 0; tf_i < @; ++tf_i) tf_out[tf_i] = tf_table[tf_i];
  tf_out[@] = warpSize;
}
"""
    return (table + kernel).replace("@", str(len(rows)))


def macro_values(table):
    return {name: table[i] for i, (name, _) in enumerate(MACROS)}


def read_macros(code):
    """The macro table out of a code object; None if it is not there (compressed, say)."""
    at = code.find(struct.pack("<3I", *MAGIC))
    if at < 0:
        return None
    values = struct.unpack_from(f"<{len(MACROS)}i", code, at + 12)
    return macro_values(values)


# What a kernel author would like to use; each is compiled alone. MASK is a full mask.
FEATURES = {
    "__shfl_xor": "tf_out[0] = __shfl_xor((int)threadIdx.x, 1);",
    "__shfl_xor_sync": "tf_out[0] = __shfl_xor_sync(MASK, (int)threadIdx.x, 1);",
    "__ballot": "tf_out[0] = __ballot(1);",
    "__ballot_sync": "tf_out[0] = __ballot_sync(MASK, 1);",
    "__syncwarp": "__syncwarp();",
    "__activemask": "tf_out[0] = __activemask();",
    "constexpr warpSize": "constexpr int tf_w = warpSize; tf_out[0] = tf_w;",
    "_Float16": "tf_out[0] = (int)(float)((_Float16)(float)threadIdx.x);",
    "__half": "__half tf_h = __float2half(1.0f); tf_out[0] = (int)__half2float(tf_h);",
    "__bf16": "__bf16 tf_b = (__bf16)(float)threadIdx.x; tf_out[0] = (int)(float)tf_b;",
    "hip_bfloat16": "hip_bfloat16 tf_b(1.0f); tf_out[0] = (int)(float)tf_b;",
    "uint8_t": "tf_out[0] = (uint8_t)threadIdx.x;",
    "__builtin_bit_cast": "tf_out[0] = __builtin_bit_cast(unsigned, 1.0f);",
    "assert": "assert(tf_out != nullptr);",
    "__builtin_trap": "if (!tf_out) __builtin_trap();",
    "__builtin_nontemporal_store": "__builtin_nontemporal_store(1.0f, (float*)tf_out);",
    "__builtin_amdgcn_exp2f": "tf_out[0] = (int)__builtin_amdgcn_exp2f((float)threadIdx.x);",
    "__builtin_amdgcn_rcpf": "tf_out[0] = (int)__builtin_amdgcn_rcpf((float)threadIdx.x);",
    "64 KiB shared": "__shared__ int tf_s[16384]; tf_s[threadIdx.x] = 1; __syncthreads(); tf_out[0] = tf_s[tf_out[1]];",
    "64 KiB + 16 B shared": "__shared__ int tf_s[16388]; tf_s[threadIdx.x] = 1; __syncthreads(); "
    "tf_out[0] = tf_s[tf_out[1]];",
}


def feature_source(kind, body):
    mask = "0xffffffffffffffffull" if kind == "hip" else "0xffffffffu"
    return 'extern "C" __global__ void tf_feature(unsigned* tf_out) {{ {} }}\n'.format(
        body.replace("MASK", mask)
    )


# --------------------------------------------------------------------------- pure helpers


def base_arch(arch):
    """gfx936:sramecc+:xnack- -> gfx936; sm_90a -> sm_90."""
    return re.sub(r"(?<=^sm_)(\d+)[a-z]$", r"\1", arch.split(":")[0])


def wave_of(arch):
    """Lanes per wave where PyTorch does not say: gfx9xx (every DCU among them) has 64."""
    return 64 if re.match(r"gfx9[0-9a-f]{2}$", base_arch(arch)) else 32


def family_of(name):
    """libamdhip64.so.6 and libamdhip64-1a2b3c4d.so.6 -> libamdhip64; None for any other file."""
    match = re.match(r"(lib\w+?)(-[0-9a-f]{6,})?\.so(\.|$)", name)
    return match.group(1) if match and match.group(1) in FAMILIES else None


def parse_maps(text):
    """[{family, path}] out of /proc/self/maps; one entry per file, even if mapped under two names."""
    found = {}
    for line in text.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            path = fields[5][:-10] if fields[5].endswith(" (deleted)") else fields[5]
            family = family_of(os.path.basename(path))
            if family:
                found.setdefault((fields[3], fields[4]), {"family": family, "path": path})
    return sorted(found.values(), key=lambda entry: (entry["family"], entry["path"]))


def duplicates(libraries):
    """Sentences for libraries of which a process holds two; they share no state, so calls go astray."""
    problems = []
    by_family = {}
    for entry in libraries:
        by_family.setdefault(entry["family"], []).append(entry["path"])
    for family, paths in sorted(by_family.items()):
        if len(paths) > 1:
            problems.append("{} is loaded twice: {}".format(family, ", ".join(paths)))
    runtimes = [family for family in HIP_RUNTIMES if family in by_family]
    if len(runtimes) > 1:
        paths = [by_family[family][0] for family in runtimes]
        problems.append("two HIP runtimes are loaded: {}".format(" and ".join(paths)))
    return problems


PROPERTIES = (
    "name gcnArchName major minor warp_size multi_processor_count total_memory shared_memory_per_block "
    "shared_memory_per_block_optin shared_memory_per_multiprocessor regs_per_multiprocessor "
    "max_threads_per_multi_processor L2_cache_size is_integrated"
).split()


def device_facts(properties, hip):
    """What PyTorch's device properties say, and what follows: whole and base arch, wave size."""
    facts = {}
    for name in PROPERTIES:
        value = getattr(properties, name, None)
        if value is not None:
            facts[name] = value if isinstance(value, (bool, int, float)) else str(value)
    major, minor = facts.get("major", 0), facts.get("minor", 0)
    if hip:
        arch = facts.get("gcnArchName", "")
    else:  # From Hopper on, "a" names the target with everything the chip has.
        arch = f"sm_{major}{minor}{'a' if major >= 9 else ''}"
    return {
        "properties": facts,
        "arch": arch,
        "base_arch": base_arch(arch),
        "wave": facts.get("warp_size") or wave_of(arch),
        "wave_by": "device property" if facts.get("warp_size") else "arch",
    }


def elf_dynamic(path):
    """{needed, soname, rpath, runpath} of a 64-bit shared library, without loading it; {} if unreadable."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return {}
            (start,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            file.seek(start)
            table = file.read(size * count)
            segments = [struct.unpack_from("<IIQQQQ", table, i * size) for i in range(count)]
            dynamic = next(s for s in segments if s[0] == 2)
            file.seek(dynamic[2])
            entries = list(struct.iter_unpack("<qQ", file.read(dynamic[5] // 16 * 16)))
            tags = dict(reversed(entries))
            at = next(
                s[2] + tags[5] - s[3] for s in segments if s[0] == 1 and 0 <= tags[5] - s[3] < s[5]
            )
            file.seek(at)
            strings = file.read(tags[10])

        def text(offset):
            return strings[offset : strings.index(b"\0", offset)].decode(errors="replace")

        found = {"needed": [text(value) for tag, value in entries if tag == 1]}
        for name, tag in (("soname", 14), ("rpath", 15), ("runpath", 29)):
            if tag in tags:
                found[name] = text(tags[tag])
        return found
    except (OSError, KeyError, StopIteration, ValueError, struct.error):
        return {}


def identify(torch_facts, arches=(), mapped=(), count=0):
    """Whether this is CUDA, HIP or CPU, whether it is a Hygon DCU, and what says so. A pure function."""
    evidence, dcu, apis = [], [], set()
    version = str(torch_facts.get("version") or "")
    for api, key in (("HIP", "hip"), ("CUDA", "cuda")):
        if torch_facts.get(key):
            apis.add(api)
            evidence.append(f"torch.version.{key} is {torch_facts[key]}")
    for word in ("das", "dtk"):
        # "dtk2504" and "das.opt1" count; a word that only contains the letters does not.
        if re.search(rf"(?<![a-z]){word}(?![a-z])", version.lower()):
            dcu.append(f'"{word}" in torch\'s version {version}')
    for arch in sorted(set(arches)):
        apis.add("HIP" if arch.startswith("gfx") else "CUDA")
        evidence.append(f"device arch {arch}")
        if base_arch(arch) in DCU_ARCHES:
            dcu.append(f"device arch {arch}")
    for entry in mapped:
        if entry["family"] in HIP_RUNTIMES:
            apis.add("HIP")
            evidence.append("{} is loaded".format(entry["path"]))
        if entry["family"] == "libgalaxyhip":
            dcu.append("{} is loaded".format(entry["path"]))
        if entry["family"] == "libcuda":
            apis.add("CUDA")
            evidence.append("{} is loaded".format(entry["path"]))
    build = "HIP" if torch_facts.get("hip") else "CUDA" if torch_facts.get("cuda") else ""
    if not build and version:
        build = "CPU"
        evidence.append("torch.version.hip and torch.version.cuda are both empty")
    if len(apis) > 1:
        evidence.append("CONTRADICTION: both HIP and CUDA are seen")
    return {
        "platform": build if count else "CPU",
        "torch_build": build or "none",
        "devices": count,
        "dcu": bool(dcu),
        "dcu_evidence": dcu,
        "evidence": evidence,
        "contradiction": len(apis) > 1,
    }


NEUTRAL_NAMES = {"", "root", "user", "ubuntu", "nobody", "home", "localhost"}


class Cleaner:
    """Replaces what names a person or a machine, in every string of a report."""

    def __init__(self, environ=None, account=None, host=None):
        environ = os.environ if environ is None else environ
        if account is None:
            try:
                account = pwd.getpwuid(os.getuid())
            except KeyError:  # A user id without an account, as in many containers.
                account = ()
        host = host or socket.gethostname()
        homes = {environ.get("HOME", "")} | ({account.pw_dir} if account else set())
        homes |= {os.path.realpath(home) for home in homes if home}
        homes = {home.rstrip("/") for home in homes} - {""}
        users = {environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME", "SUDO_USER")}
        users |= {account.pw_name} if account else set()
        users |= {os.path.basename(home) for home in homes}
        hosts = {host, host.split(".")[0], environ.get("HOSTNAME", "")}
        self.rules = [
            (re.compile(r"(?<![\w.-])" + re.escape(home) + r"(?![\w.-])"), "~")
            for home in sorted(homes, key=len, reverse=True)
        ]
        self.rules.append((re.compile(r"(/(?:home|Users)/)[^/\s:'\"]+"), r"\1USER"))
        for word, names in (("HOST", hosts), ("USER", users)):
            for name in sorted(names - NEUTRAL_NAMES, key=len, reverse=True):
                pattern = rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"
                self.rules.append((re.compile(pattern), word))
        self.rules.append((re.compile(r"\b(GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{7,}"), r"\1-ID"))

    def text(self, value):
        for pattern, replacement in self.rules:
            value = pattern.sub(replacement, value)
        return value

    def __call__(self, value):
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(item) for item in value]
        return value


# --------------------------------------------------------------------------- child processes

_channel = None
PROBES = {}


def probe(function):
    """Registers probe_NAME as the child process step NAME."""
    PROBES[function.__name__[len("probe_") :]] = function
    return function


def _emit(line):
    if _channel is not None:
        _channel.write(json.dumps(line, default=str) + "\n")
        _channel.flush()


def step(name):
    """Says what comes next, so that a crash or a hang has a place."""
    _emit({"step": name})


def note(*path_and_value):
    """note("a", "b", 3) records facts["a"]["b"] = 3 at once: it survives a later crash."""
    _emit({"at": path_and_value[:-1], "is": path_and_value[-1]})


def serve(probes, argv):
    """The child's side: runs one probe, sends what it finds over stdout line by line."""
    global _channel
    parser = argparse.ArgumentParser()
    parser.add_argument("--probe", required=True, choices=sorted(probes))
    parser.add_argument("--arguments", default="{}")
    options = parser.parse_args(argv)
    # Vendor libraries print to stdout; that must not mix with the facts.
    _channel = os.fdopen(os.dup(1), "w")
    _channel.write("\n")  # Whatever was printed before shall not join our first line.
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # A crash is expected here and leaves no core.
    faulthandler.enable()
    try:
        probes[options.probe](**json.loads(options.arguments))
    except Exception as error:
        traceback.print_exc()
        _emit({"error": f"{type(error).__name__}: {error}"})
        return 1
    _emit({"done": True})
    step("exit of the process")
    return 0


def buffer():
    """A file in memory, so that nothing here needs a writable folder; on disk for an old Python."""
    with contextlib.suppress(AttributeError, OSError):
        return os.fdopen(os.memfd_create("probe"), "w+b")
    return tempfile.TemporaryFile()


def run_probe(name, /, limit=60.0, command=None, environ=None, **arguments):
    """Runs one probe in a child process and returns its outcome; never raises for what the child does.

    status: ok, failed (an exception), killed (a signal), hung (over `limit` seconds). `facts` holds
    whatever was found before the end, `step` where it was, `log` the end of what was printed.
    """
    command = list(command or [sys.executable, os.path.abspath(__file__)])
    command += ["--probe", name, "--arguments", json.dumps(arguments)]
    started = time.monotonic()
    with buffer() as out, buffer() as log:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            start_new_session=True,
            env=environ,
        )
        hung, undying = False, False
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            hung = True
        finally:  # Also on Ctrl-C, and for what a probe has started and left running.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                undying = True
        seconds = time.monotonic() - started
        out.seek(0)
        lines = out.read().decode(errors="replace").splitlines()
        log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
        log_text = log.read().decode(errors="replace")
    facts, at, error, done = {}, "start of the process", "", False
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:  # What the interpreter's start printed, or a line cut short by a crash.
            continue
        if not isinstance(entry, dict):
            continue
        at = entry.get("step", at)
        error = entry.get("error", error)
        done = done or "done" in entry
        if "at" in entry:
            place = facts
            for key in entry["at"][:-1]:
                place = place.setdefault(key, {})
            place[entry["at"][-1]] = entry["is"]
    if hung:
        status, detail = "hung", f"hung for {limit:g} s"
        if undying:
            detail += " and does not end on SIGKILL: it is stuck inside the driver"
    elif child.returncode < 0:
        try:
            name_of_signal = signal.Signals(-child.returncode).name
        except ValueError:
            name_of_signal = f"signal {-child.returncode}"
        status, detail = "killed", f"killed by {name_of_signal}"
    elif error or not done:
        status, detail = "failed", error or f"ended with exit code {child.returncode}"
    else:
        status, detail = "ok", ""
    if done and status != "ok":  # All facts are there; only its end went wrong.
        status, detail = "ok", "did its work, then " + detail
    outcome = {"probe": name, "status": status, "seconds": round(seconds, 3), "facts": facts}
    if detail:
        outcome.update(detail=detail, step=at)
    if detail or log_text.strip():
        outcome["log"] = log_text[-2000:]
    return outcome


def facts_of(outcome):
    return (outcome or {}).get("facts", {})


def ok(outcome):
    return (outcome or {}).get("status") == "ok"


def describe(outcome):
    if not outcome:
        return "not run"
    if "detail" not in outcome:
        return outcome["status"]
    return "{}, at: {}".format(outcome["detail"], outcome["step"])


# --------------------------------------------------------------------------- what a child looks at


def mapped_libraries():
    with open("/proc/self/maps") as file:
        return parse_maps(file.read())


class _DlInfo(ctypes.Structure):
    _fields_ = [
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    ]


def exporter(library, symbol):
    """Path of the library that really holds `symbol` (dlsym also searches dependencies), or None."""
    function = getattr(library, symbol, None)
    if function is None:
        return None
    info = _DlInfo()
    address = ctypes.cast(function, ctypes.c_void_p)
    found = ctypes.CDLL(None).dladdr(address, ctypes.byref(info))
    return os.path.realpath(info.dli_fname.decode()) if found else "unknown"


def torch_lib():
    """PyTorch's library folder, found without importing it; None if there is no PyTorch."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.origin:
        return None
    return os.path.join(os.path.dirname(spec.origin), "lib")


def loaded_runtime():
    """The HIP runtime of this process, DTK's before AMD's."""
    mapped = {entry["family"]: entry["path"] for entry in reversed(mapped_libraries())}
    for family in HIP_RUNTIMES:
        if family in mapped:
            return mapped[family]
    raise RuntimeError(
        "no HIP runtime (libgalaxyhip, libamdhip64) is loaded after PyTorch used the device"
    )


@probe
def probe_torch():
    step("import torch")
    import torch

    note("version", str(torch.__version__))
    note("cuda", torch.version.cuda)
    note("hip", getattr(torch.version, "hip", None))
    note("das", "das" in str(torch.__version__).lower())
    note("dtk", "dtk" in str(torch.__version__).lower())
    note("mapped", mapped_libraries())
    with contextlib.suppress(AttributeError):
        note("cxx11_abi", bool(torch._C._GLIBCXX_USE_CXX11_ABI))
    step("torch.utils.hipify")
    with contextlib.suppress(ImportError):
        from torch.utils import hipify

        note("hipify", str(getattr(hipify, "__version__", "unknown")))


@probe
def probe_symbols():
    step("import torch")
    import torch  # noqa: F401  (loads the libraries that are asked below)

    folder = torch_lib()
    for name, symbol in TORCH_SYMBOLS:
        path = os.path.join(folder, name)
        if os.path.exists(path):
            step(f"look up {symbol} in {name}")
            note(name, symbol, exporter(ctypes.CDLL(path), symbol))


@probe
def probe_devices():
    step("import torch")
    import torch

    step("count the devices")
    count = int(torch.cuda.device_count())
    note("count", count)
    step("initialise the runtime")
    try:
        torch.cuda.init()
    except Exception as error:
        note("reason", f"{type(error).__name__}: {error}")
    else:
        if not count:
            note("reason", "the runtime starts but reports no device")
    note("mapped", mapped_libraries())


@probe
def probe_device(index):
    step("import torch")
    import torch

    step("read the properties")
    hip = bool(getattr(torch.version, "hip", None))
    for key, value in device_facts(torch.cuda.get_device_properties(index), hip).items():
        note(key, value)
    note("capability", list(torch.cuda.get_device_capability(index)))
    step("one-element tensor")
    x = torch.tensor([1.5], dtype=torch.float32, device=f"cuda:{index}")
    value = (x + x).tolist()
    note("tensor", value == [3.0])
    note("mapped", mapped_libraries())
    step("ask the runtime for its version")
    library = ctypes.CDLL(loaded_runtime() if hip else "libcuda.so.1")
    for name in ("hipRuntimeGetVersion", "hipDriverGetVersion") if hip else ("cuDriverGetVersion",):
        number = ctypes.c_int(-1)
        code = getattr(library, name)(ctypes.byref(number))
        note("versions", name, number.value if code == 0 else f"error {code}")
    if value != [3.0]:
        raise RuntimeError(f"1.5 + 1.5 on the device gave {value!r}")


@probe
def probe_stream(index):
    """Is the stream that a C++ library can ask for the one that Python means?"""
    step("import torch")
    import torch

    step("touch the device")
    torch.cuda.set_device(index)
    torch.tensor([1.0], device=f"cuda:{index}")
    library = None
    for name in ("libtorch_cuda.so", "libtorch_hip.so"):
        path = os.path.join(torch_lib(), name)
        if library is None and os.path.exists(path):
            library = ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    function = getattr(library, "aoti_torch_get_current_cuda_stream", None)
    note("symbol", function is not None)

    def compare(where):
        step("current stream: " + where)
        wanted = int(torch.cuda.current_stream(index).cuda_stream)
        result = {"python": wanted}
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        if raw is not None:
            result["raw"] = int(raw(index)) == wanted
        if function is not None:
            got = ctypes.c_void_p()
            code = function(ctypes.c_int32(index), ctypes.byref(got))
            result["code"] = int(code)
            result["same"] = code == 0 and (got.value or 0) == wanted
        result["python"] = (
            "null" if wanted == 0 else "a handle"
        )  # An address says nothing to a reader.
        note(where, result)

    compare("default")
    with torch.cuda.stream(torch.cuda.Stream(device=index)):
        compare("side")


@probe
def probe_layout(index):
    """Which device-property call a HIP runtime has, and where the arch string sits in its struct."""
    step("import torch")
    import torch

    torch.tensor([1.0], device=f"cuda:{index}")
    path = loaded_runtime()
    note("runtime", path)
    library = ctypes.CDLL(path)
    for name in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties"):
        function = getattr(library, name, None)
        note(name, "exported", function is not None)
        if function is not None:
            step("call " + name)
            buffer = ctypes.create_string_buffer(1 << 16)
            note(name, "code", int(function(buffer, index)))
            at = buffer.raw.find(b"gfx")
            note(name, "arch_offset", at)
            note(
                name,
                "arch",
                buffer.raw[at : buffer.raw.index(b"\0", at)].decode() if at >= 0 else "",
            )


@probe
def probe_library(names, with_torch=False):
    """Loads the first of `names` that the loader finds; says which of the wanted symbols it reaches."""
    if with_torch:
        step("import torch")
        import torch  # noqa: F401
    for name in names:
        step("load " + name)
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            note("errors", name, str(error))
            continue
        note("loaded", name)
        for symbol in LIBRARY_SYMBOLS:
            where = exporter(library, symbol)
            if where:
                note("exports", symbol, where)
        note("mapped", mapped_libraries())
        for kind, version in (("hip", "hiprtcVersion"), ("cuda", "nvrtcVersion")):
            function = getattr(library, version, None)
            if function is not None:
                step(version)
                major, minor = ctypes.c_int(-1), ctypes.c_int(-1)
                function(ctypes.byref(major), ctypes.byref(minor))
                note("version", RTC_NAME[kind], f"{major.value}.{minor.value}")
        return
    note("loaded", None)


class Rtc:
    """NVRTC or hipRTC through ctypes: the two differ in the prefix and in the word for the result."""

    def __init__(self, kind, path):
        self.kind = kind
        self.prefix = {"hip": "hiprtc", "cuda": "nvrtc"}[kind]
        # NVRTC opens its builtins by bare name; beside a library loaded by path they are not found.
        for sibling in sorted(
            glob.glob(os.path.join(os.path.dirname(path), "libnvrtc-builtins.so*"))
        ):
            ctypes.CDLL(sibling)
        self.library = ctypes.CDLL(path)

    def call(self, name, *arguments):
        return int(getattr(self.library, self.prefix + name)(*arguments))

    def compile(self, source, arch):
        """(error code, code object, log)."""
        program, size = ctypes.c_void_p(), ctypes.c_size_t(0)
        code = self.call(
            "CreateProgram", ctypes.byref(program), source.encode(), b"tf_smoke", 0, None, None
        )
        if code:
            return code, b"", "the program could not be created"
        flag = "--offload-arch=" if self.kind == "hip" else "--gpu-architecture="
        options = [(flag + arch).encode(), b"-std=c++17"]
        code = self.call(
            "CompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options)
        )
        log, binary = "", b""
        if self.call("GetProgramLogSize", program, ctypes.byref(size)) == 0 and size.value > 1:
            buffer = ctypes.create_string_buffer(size.value + 1)
            self.call("GetProgramLog", program, buffer)
            log = buffer.value.decode(errors="replace").strip()
        if code == 0:
            word = "CUBIN" if self.kind == "cuda" else "Code"
            code = self.call(f"Get{word}Size", program, ctypes.byref(size))
            if code == 0:
                buffer = ctypes.create_string_buffer(size.value + 1)
                code = self.call("Get" + word, program, buffer)
                binary = buffer.raw[: size.value]
        self.call("DestroyProgram", ctypes.byref(program))
        return code, binary, log


def rtc_in_child(kind, path, with_torch):
    if with_torch:
        step("import torch")
        import torch  # noqa: F401
    step("load the compiler")
    return Rtc(kind, path)


@probe
def probe_compile(kind, path, arch, with_torch=False):
    """One line for one arch; then the predefined macros, read out of the code object."""
    rtc = rtc_in_child(kind, path, with_torch)
    step(f"compile for {arch}")
    started = time.monotonic()
    code, binary, log = rtc.compile(LINE_KERNEL, arch)
    note("seconds", round(time.monotonic() - started, 4))
    note("code", code)
    note("compiled", code == 0 and len(binary) > 0)
    note("bytes", len(binary))
    note("elf", binary[:4] == b"\x7fELF")
    note("message", log[:1000])
    if code == 0:
        step(f"compile the macro table for {arch}")
        code, binary, log = rtc.compile(macro_source(), arch)
        note("macros", read_macros(binary) if code == 0 else "does not compile: " + log[:1000])


@probe
def probe_features(kind, path, arch, with_torch=False, names=tuple(FEATURES)):
    rtc = rtc_in_child(kind, path, with_torch)
    for name in names:
        step("compile " + name)
        code, _, log = rtc.compile(feature_source(kind, FEATURES[name]), arch)
        errors = [line.strip() for line in log.splitlines() if "error" in line]
        said = [*errors, log.strip() or f"error {code}"][0]
        note(name, "yes" if code == 0 else "no: " + said[:200])


@probe
def probe_threads(kind, path, arch, threads, with_torch=False):
    """8 compiles, shared among `threads` threads that start at once, without any warm-up."""
    rtc = rtc_in_child(kind, path, with_torch)
    barrier, failures = threading.Barrier(threads), []

    def work():
        barrier.wait()
        for _ in range(8 // threads):
            code, _, log = rtc.compile(LINE_KERNEL, arch)
            if code:
                failures.append(f"error {code}: {log[:200]}")

    step(f"8 compiles in {threads} thread(s)")
    workers = [threading.Thread(target=work) for _ in range(threads)]
    started = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    note("seconds", round(time.monotonic() - started, 3))
    if failures:
        raise RuntimeError(f"{len(failures)} of 8 compiles failed, first: {failures[0]}")


def compile_by_program(program, kind, arch, source):
    """(exit code, code object, log, what had to be set in the environment) of nvcc or hipcc."""
    suffix, include, flags = ".cu", "", ["-cubin", "-arch=" + arch]
    attempts = [""]
    if kind == "hip":
        suffix, include = ".hip", "#include <hip/hip_runtime.h>\n"
        flags = ["--genco", "--offload-arch=" + arch]
        if (
            "HIP_PLATFORM" not in os.environ
        ):  # Where nvcc is too, hipcc thinks that it is to use it.
            attempts.append("HIP_PLATFORM=amd")
    with tempfile.TemporaryDirectory() as folder:
        text, result = os.path.join(folder, "tf_smoke" + suffix), os.path.join(folder, "tf_smoke.o")
        with open(text, "w") as file:
            file.write(include + source)
        for needs in attempts:
            environ = dict(os.environ, **dict([needs.split("=")] if needs else []))
            done = subprocess.run(
                [program, *flags, "-O3", "-o", result, text],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=environ,
            )
            log = done.stdout.decode(errors="replace").strip()
            if done.returncode == 0:
                with open(result, "rb") as file:
                    return 0, file.read(), log, needs
        return done.returncode, b"", log, ""


@probe
def probe_program(program, kind, arches):
    step("ask for the version")
    done = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = done.stdout.decode(errors="replace").splitlines()
    note(
        "version", [line.strip() for line in lines if re.search("version|release", line, re.I)][:4]
    )
    for arch in arches:
        step("compile for " + arch)
        started = time.monotonic()
        code, binary, log, needs = compile_by_program(program, kind, arch, LINE_KERNEL)
        result = {
            "arch": arch,
            "code": code,
            "compiled": code == 0 and len(binary) > 0,
            "bytes": len(binary),
            "seconds": round(time.monotonic() - started, 3),
            "needs": needs,
            "message": log[:1000],
        }
        note("compiles", arch, result)


class Driver:
    """libcuda, or the HIP runtime that PyTorch loaded; only what loading and launching need."""

    def __init__(self, kind):
        self.kind = kind
        self.path = "libcuda.so.1" if kind == "cuda" else loaded_runtime()
        self.library = ctypes.CDLL(self.path)
        self.images = []

    def call(self, name, *arguments):
        code = int(getattr(self.library, name)(*arguments))
        if code:
            raise RuntimeError(f"{name}: error {code} ({self.text(code)})")

    def text(self, code):
        if self.kind == "hip":
            function = self.library.hipGetErrorString
            function.restype = ctypes.c_char_p
            words = function(code)
        else:
            pointer = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(pointer))
            words = pointer.value
        return words.decode(errors="replace") if words else "no text"

    def kernel(self, code, name):
        self.images.append(code)  # Some runtimes read it later than at the load.
        prefix = "hip" if self.kind == "hip" else "cu"
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call(prefix + "ModuleLoadData", ctypes.byref(module), code)
        self.call(prefix + "ModuleGetFunction", ctypes.byref(function), module, name.encode())
        return function

    def launch(self, function, blocks, threads, stream, *arguments):
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        name = "hipModuleLaunchKernel" if self.kind == "hip" else "cuLaunchKernel"
        sizes = [ctypes.c_uint(n) for n in (blocks, 1, 1, threads, 1, 1, 0)]
        self.call(name, function, *sizes, ctypes.c_void_p(stream), pointers, None)


@probe
def probe_launch(index, kind, arch, rtc=None, program=None):
    """Compiles, loads, launches on PyTorch's current and on a side stream; checks every element."""
    step("import torch")
    import torch

    device = f"cuda:{index}"
    step("touch the device")
    torch.cuda.set_device(index)
    torch.tensor([1.0], device=device)
    step("load the compiler")
    compiler = Rtc(kind, rtc) if rtc else None

    def build(source):
        step("compile for " + arch)
        if compiler:
            code, binary, log = compiler.compile(source, arch)
        else:
            code, binary, log, _ = compile_by_program(program, kind, arch, source)
        if code or not binary:
            raise RuntimeError(f"does not compile for {arch}: error {code}: {log[:500]}")
        return binary

    driver = Driver(kind)
    note("driver", driver.path)
    binary = build(LINE_KERNEL)
    step("load the module")
    line = driver.kernel(binary, "tf_line")
    count, padding = 1000, 24

    def check(where):
        x = torch.tensor([float(i % 37) for i in range(count)], dtype=torch.float32, device=device)
        y = torch.tensor([-7.0] * (count + padding), dtype=torch.float32, device=device)
        torch.cuda.synchronize(index)
        step(f"launch on the {where} stream")
        stream = int(torch.cuda.current_stream(index).cuda_stream)
        x_pointer, y_pointer = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
        driver.launch(line, 4, 256, stream, x_pointer, y_pointer, ctypes.c_int(count))
        step(f"wait for the {where} stream")
        torch.cuda.synchronize(index)
        got = y.tolist()
        wanted = [2.0 * (i % 37) + i for i in range(count)] + [-7.0] * padding
        wrong = [i for i in range(count + padding) if got[i] != wanted[i]]
        if wrong:
            i = wrong[0]
            raise RuntimeError(
                f"{len(wrong)} of {len(wanted)} elements are wrong, first [{i}]: {got[i]!r}, "
                f"not {wanted[i]!r}"
            )
        note(where, "right")

    check("current")
    with torch.cuda.stream(torch.cuda.Stream(device=index)):
        check("side")
    table = driver.kernel(build(macro_source()), "tf_macros")
    step("launch the macro kernel")
    size = len(MAGIC) + len(MACROS)
    out = torch.tensor([0] * (size + 1), dtype=torch.int32, device=device)
    stream = int(torch.cuda.current_stream(index).cuda_stream)
    driver.launch(table, 1, 1, stream, ctypes.c_void_p(out.data_ptr()))
    torch.cuda.synchronize(index)
    values = out.tolist()
    note("macros", macro_values(values[len(MAGIC) :]))
    note("warpSize", values[size])


TOOLS = {
    # Only these lines are kept: the rest can hold serial numbers, users and their programs.
    "nvidia-smi": (
        ["--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        r".*\S",
    ),
    "rocminfo": (
        [],
        r"\s*(Name: +(gfx|amdgcn)|Marketing Name:|Wavefront Size:|Compute Unit:|SIMDs per CU:|"
        r"Max Waves Per CU:|Segment: +GROUP)",
    ),
    "rocm_agent_enumerator": ([], r"gfx"),
    "hy-smi": ([], r"$^"),
    "rocm-smi": (["--showproductname"], r"$^"),
}


@probe
def probe_tool(name, program):
    arguments, keep = TOOLS[name]
    step("run " + name)
    done = subprocess.run([program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace")).splitlines()
    note("lines", [line.strip() for line in lines if re.match(keep, line)][:120])
    note("code", done.returncode)
    if done.returncode:
        errors = [line.strip() for line in lines if re.search("error|fail|HSA_|not ", line, re.I)]
        said = " | ".join(errors[:3]) or "nothing said"
        raise RuntimeError(f"exit code {done.returncode}: {said}")


@probe
def probe_device_files(
    patterns=("/dev/kfd", "/dev/dri/renderD*", "/dev/nvidiactl", "/dev/nvidia[0-9]*"),
):
    """Can the files behind the devices be opened? errno names otherwise."""
    for pattern in patterns:
        paths = sorted(glob.glob(pattern))
        if not paths:
            note(pattern, "ENOENT")
        for path in paths:
            step("open " + path)
            try:
                os.close(os.open(path, os.O_RDWR | os.O_CLOEXEC))
                note(path, "ok")
            except OSError as error:
                note(path, errno.errorcode.get(error.errno, str(error.errno)))


# --------------------------------------------------------------------------- collecting


def roots():
    """[(kind, folder)] of the installed toolkits, each real folder once."""
    found = []
    named = (
        ("dtk", "DTKROOT"),
        ("rocm", "ROCM_PATH"),
        ("rocm", "ROCM_HOME"),
        ("cuda", "CUDA_HOME"),
    )
    for kind, name in (*named, ("cuda", "CUDA_PATH")):
        found.append((kind, os.environ.get(name, "")))
    for kind in ("dtk", "rocm", "cuda"):
        parent = "/usr/local" if kind == "cuda" else "/opt"
        found += [(kind, path) for path in sorted(glob.glob(f"{parent}/{kind}*"))]
    seen, result = set(), []
    for kind, path in found:
        real = os.path.realpath(path)
        if path and os.path.isdir(path) and real not in seen and real not in ("/", "/usr"):
            seen.add(real)
            # DTK's env.sh lets ROCM_PATH point to DTK.
            result.append(("dtk" if "dtk" in os.path.basename(real) else kind, path))
    return result


LIBRARY_FOLDERS = ("lib", "lib64", "hip/lib", "hip/lib64", "hiprtc/lib", "targets/x86_64-linux/lib")
PROGRAM_FOLDERS = ("bin", "hip/bin", "llvm/bin")


def libraries_in(folder):
    """Paths of the known libraries in a folder, each real file once."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "lib*.so*"))):
        if family_of(os.path.basename(path)):
            found.setdefault(os.path.realpath(path), path)
    return sorted(found.values())


def installs():
    result = []
    for kind, root in roots():
        entry = {
            "kind": kind,
            "path": root,
            "libraries": [],
            "env_sh": os.path.exists(root + "/env.sh"),
        }
        for pattern in (".info/version*", ".info/rocm_version", "version.txt"):
            for path in sorted(glob.glob(os.path.join(root, pattern)))[:1]:
                with contextlib.suppress(OSError), open(path, errors="replace") as file:
                    entry.setdefault("version", file.read(80).strip())
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            with open(os.path.join(root, "version.json")) as file:
                entry["version"] = str(json.load(file)["cuda"]["version"])
        for folder in LIBRARY_FOLDERS:
            entry["libraries"] += libraries_in(os.path.join(root, folder))
        entry["libraries"] = sorted(
            {os.path.realpath(path): path for path in entry["libraries"]}.values()
        )
        bitcode = glob.glob(os.path.join(root, "amdgcn/bitcode/oclc_isa_version_*.bc"))
        entry["bitcode_for"] = sorted("gfx" + path.rsplit("_", 1)[1][:-3] for path in bitcode)
        search = [
            os.path.realpath(p) for p in os.environ.get("LD_LIBRARY_PATH", "").split(":") if p
        ]
        entry["in_loader_path"] = [
            folder
            for folder in LIBRARY_FOLDERS
            if os.path.realpath(os.path.join(root, folder)) in search
        ]
        result.append(entry)
    return result


def torch_files():
    """What is in PyTorch's folders, read without importing it."""
    folder = torch_lib()
    if folder is None:
        return None
    libraries = libraries_in(folder)
    for extra in sorted(glob.glob(os.path.join(folder, "../../nvidia/*/lib"))):
        libraries += libraries_in(os.path.realpath(extra))
    dynamic = {}
    for name in ("torch_hip", "torch_cuda", "c10_hip", "c10_cuda", "caffe2_nvrtc"):
        path = os.path.join(folder, f"lib{name}.so")
        if os.path.exists(path):
            dynamic[os.path.basename(path)] = elf_dynamic(path)
    return {"lib": folder, "libraries": libraries, "dynamic": dynamic}


def programs(name):
    """Where a program is found: PATH first, then the toolkits; each real file once."""
    found = {}
    candidates = [shutil.which(name)]
    candidates += [os.path.join(root, sub, name) for _, root in roots() for sub in PROGRAM_FOLDERS]
    for path in [*candidates, "/opt/hyhal/bin/" + name]:
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def system_facts():
    facts = {
        "machine": platform.machine(),
        "kernel": platform.release(),
        "libc": " ".join(platform.libc_ver()),
    }
    with contextlib.suppress(OSError, AttributeError):
        with open("/etc/os-release") as file:
            facts["os"] = re.search(r'^PRETTY_NAME="?([^"\n]*)', file.read(), re.M).group(1)
    with contextlib.suppress(OSError, AttributeError):
        with open("/proc/cpuinfo") as file:
            facts["cpu"] = re.search(r"^model name\s*:\s*(.*)", file.read(), re.M).group(1)
    facts["temporary_folder"] = False
    with contextlib.suppress(OSError), tempfile.TemporaryFile() as file:
        file.write(bytes(1 << 16))
        file.flush()
        facts["temporary_folder"] = True
    facts["cpus"] = len(os.sched_getaffinity(0))
    facts["python"] = platform.python_version()
    facts["hyhal"] = os.path.isdir("/opt/hyhal")
    facts["kernel_modules"] = {}
    for module in ("amdgpu", "hydcu", "hycu", "nvidia"):
        if os.path.isdir("/sys/module/" + module):
            version = "loaded"
            with contextlib.suppress(OSError), open(f"/sys/module/{module}/version") as file:
                version = file.read(80).strip()
            facts["kernel_modules"][module] = version
    return facts


def environment():
    names = ENVIRONMENT + sorted(name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX))
    return {name: os.environ[name] for name in names if name in os.environ}


def collect_base(run, say, brief=False):
    """Everything up to the device itself; no compiler is started. brief: only what a verdict needs."""
    report = {
        "schema": SCHEMA,
        "system": system_facts(),
        "environment": environment(),
        "installs": installs(),
    }
    report["torch_files"] = torch_files()
    say("device files and tools")
    report["device_files"] = run("device_files")
    report["tools"] = []
    for name in () if brief else TOOLS:
        for path in programs(name)[:1]:
            report["tools"].append(
                {"name": name, "path": path, "outcome": run("tool", name=name, program=path)}
            )
    say("torch")
    report["torch"] = run("torch")
    report["devices"] = []
    if ok(report["torch"]):
        if not brief:
            report["symbols"] = run("symbols")
        say("devices")
        report["device_count"] = run("devices")
        hip, seen = bool(facts_of(report["torch"]).get("hip")), set()
        for index in range(facts_of(report["device_count"]).get("count", 0)):
            say(f"device {index}")
            entry = {"index": index, "device": run("device", index=index)}
            entry["stream"] = run("stream", index=index)
            arch = facts_of(entry["device"]).get("arch")
            if hip and arch not in seen and not brief:
                entry["layout"] = run("layout", index=index)
            seen.add(arch)
            report["devices"].append(entry)
    arches = [facts_of(entry["device"]).get("arch", "") for entry in report["devices"]]
    report["identity"] = identify(
        facts_of(report["torch"]),
        [arch for arch in arches if arch],
        all_mapped(report),
        len(report["devices"]),
    )
    return report


def all_mapped(report):
    """Every library that a process with PyTorch in it had loaded, each once."""
    outcomes = [report.get("torch"), report.get("device_count")] + [
        e["device"] for e in report.get("devices", [])
    ]
    found = {}
    for outcome in outcomes:
        for entry in facts_of(outcome).get("mapped", []):
            found[entry["path"]] = entry
    return [found[path] for path in sorted(found)]


def arches_of(report, kind):
    """[(role, arch)] worth compiling for: the devices' own, else examples; always one that does not exist."""
    result = []
    for entry in report["devices"]:
        arch = facts_of(entry["device"]).get("arch", "")
        if arch.startswith("gfx" if kind == "hip" else "sm_"):
            result += [("whole", arch), ("base", base_arch(arch))]
    if not result:
        result = [("example", arch) for arch in EXAMPLE_ARCHES[kind]]
    unique = []
    for role, arch in result:
        if arch not in [known for _, known in unique]:
            unique.append((role, arch))
    return [*unique, ("wrong", WRONG_ARCH[kind])]


def rtc_candidates(report, kind):
    """Lists of names to try, likeliest first: PyTorch's own, then the toolkits', then the loader's."""
    files = report["torch_files"] or {"lib": "", "libraries": []}
    paths = [os.path.join(files["lib"], "libcaffe2_nvrtc.so")]
    paths += [entry["path"] for entry in all_mapped(report)] + files["libraries"]
    for install in report["installs"]:
        paths += install["libraries"]
    real, result = set(), []
    for family in ("libcaffe2_nvrtc",) + RTC_FAMILIES[kind]:
        for path in paths:
            name = os.path.basename(path)
            if (family_of(name) or name[:-3]) == family and os.path.exists(path):
                if os.path.realpath(path) not in real:
                    real.add(os.path.realpath(path))
                    result.append([path])
    return result + [FAMILIES[family] for family in RTC_FAMILIES[kind]]


def collect_compilers(report, run, say):
    """Which run-time compilers and compiler programs there are, and what they make of which arch."""
    build = report["identity"]["torch_build"]
    report["rtc"], report["programs"], report["loader"] = [], [], {}
    for family, names in FAMILIES.items():
        report["loader"][family] = run("library", names=names)
    for kind in ("hip", "cuda"):
        # Where PyTorch is of this kind, its process is where the compiler must work.
        ours = build == {"hip": "HIP", "cuda": "CUDA"}[kind]
        arches, seen = arches_of(report, kind), set()
        for names in rtc_candidates(report, kind):
            library = run("library", names=names, with_torch=ours)
            where = facts_of(library).get("exports", {}).get(RTC_COMPILE[kind])
            path = facts_of(library).get("loaded")
            # Through libcaffe2_nvrtc it is PyTorch's own way to the library; by itself, ours.
            through = os.path.basename(path or "").startswith("libcaffe2_nvrtc")
            if not where or (where, through) in seen or len(seen) == 4:
                continue
            seen.add((where, through))
            say(f"{RTC_NAME[kind]} in {os.path.basename(where)}")
            entry = {
                "kind": kind,
                "path": path,
                "library": where,
                "outcome": library,
                "compiles": [],
            }
            common = {"kind": kind, "path": path, "with_torch": ours}
            for role, arch in arches:
                outcome = run("compile", arch=arch, **common)
                entry["compiles"].append({"role": role, "arch": arch, "outcome": outcome})
            good = [c["arch"] for c in entry["compiles"] if facts_of(c["outcome"]).get("compiled")]
            good = [arch for arch in good if arch != WRONG_ARCH[kind]]
            if good:
                entry["serial"] = run("threads", arch=good[0], threads=1, **common)
                entry["threads"] = run("threads", arch=good[0], threads=2, **common)
                entry["features"] = run("features", arch=good[0], **common)
                if ours:
                    entry["cold"] = run(
                        "compile", arch=good[0], kind=kind, path=path, with_torch=False
                    )
            report["rtc"].append(entry)
        name = "hipcc" if kind == "hip" else "nvcc"
        for path in programs(name)[:2]:
            say(f"{name}")
            wanted = [arch for _, arch in arches]
            outcome = run("program", program=path, kind=kind, arches=wanted)
            report["programs"].append(
                {"name": name, "kind": kind, "path": path, "outcome": outcome}
            )


def collect_launches(report, run, say):
    """A compiled kernel, loaded and run, on the first device of each arch, by each compiler that can."""
    report["launches"], seen = [], set()
    for entry in report["devices"]:
        arch = facts_of(entry["device"]).get("arch", "")
        if not arch or arch in seen:
            continue
        seen.add(arch)
        kind = "hip" if arch.startswith("gfx") else "cuda"
        ways = []
        for rtc in [r for r in report["rtc"] if r["kind"] == kind]:
            for done in rtc["compiles"]:
                if done["role"] in ("whole", "base") and facts_of(done["outcome"]).get("compiled"):
                    ways.append((RTC_NAME[kind], done["arch"], {"rtc": rtc["path"]}))
        for program in [p for p in report["programs"] if p["kind"] == kind]:
            for done in facts_of(program["outcome"]).get("compiles", {}).values():
                if done["compiled"]:
                    ways.append((program["name"], done["arch"], {"program": program["path"]}))
        for compiler, target, how in ways:
            if base_arch(target) == base_arch(arch):
                say(f"launch: {compiler} for {target} on device {entry['index']}")
                outcome = run("launch", index=entry["index"], kind=kind, arch=target, **how)
                launch = {
                    "index": entry["index"],
                    "compiler": compiler,
                    "arch": target,
                    "outcome": outcome,
                }
                report["launches"].append(launch)


@contextlib.contextmanager
def scratch():
    """One private folder for whatever the children and the compilers write; it goes at the end.

    None, and all as before, where no folder can be made: that will be one of the problems."""
    try:
        folder = tempfile.mkdtemp(prefix="truefuse-smoke-")
    except OSError:
        yield None
        return
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    try:
        yield folder
    finally:
        tempfile.tempdir = before[1]
        if before[0] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[0]
        shutil.rmtree(folder, ignore_errors=True)


def collect(limit=60.0, say=lambda text: None):
    run = functools.partial(run_probe, limit=limit)
    with scratch():
        report = collect_base(run, say)
        collect_compilers(report, run, say)
        collect_launches(report, run, say)
    return report


# --------------------------------------------------------------------------- judging


def dtk_remedy(report):
    """How to make DTK's libraries visible; empty if there is no DTK."""
    for install in report["installs"]:
        if install["kind"] == "dtk":
            root = install["path"]
            return (
                f"run `source {root}/env.sh` in a shell without `set -u` (the script reads unset "
                f"variables and would stop there), and see that LD_LIBRARY_PATH has {root}/lib and "
                f"{root}/hip/lib"
            )
    return ""


def no_device(report):
    """(problem, remedy) for a PyTorch that sees no device; None where a CPU is all there is."""
    build = report["identity"]["torch_build"]
    files = facts_of(report["device_files"])
    if build == "CPU":
        there = [p for p, state in sorted(files.items()) if state != "ENOENT" and "dri" not in p]
        if not there:
            return None
        return (
            f"PyTorch is a CPU build although this machine has {', '.join(there)}",
            "install PyTorch's build for this device (CUDA, ROCm, the vendor's DAS wheel for a DCU)",
        )
    remedies = []
    denied = [path for path, state in sorted(files.items()) if state in ("EACCES", "EPERM")]
    wanted = ("/dev/kfd", "/dev/dri/renderD*") if build == "HIP" else ("/dev/nvidiactl",)
    missing = [path for path in wanted if files.get(path) == "ENOENT"]
    flags = "--device=/dev/kfd --device=/dev/dri" if build == "HIP" else "--gpus all"
    if denied:
        remedies.append(f"{', '.join(denied)} may not be opened: join the groups that own it")
    if missing:
        remedies.append(
            f"{', '.join(missing)} is missing: load the driver, or start the container with {flags}"
        )
    for name in ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        if name in report["environment"]:
            remedies.append(f"{name} is {report['environment'][name]!r}: does it hide the device?")
    if report["identity"]["dcu"] and not report["system"]["hyhal"]:
        remedies.append("/opt/hyhal is missing: mount it into the container")
    tool = "rocminfo" if build == "HIP" else "nvidia-smi"
    return (
        f"PyTorch is a {build} build and sees no device: {no_device_reason(report)}",
        "; ".join(remedies) or f"test `{tool}` in a fresh shell",
    )


def no_device_reason(report):
    counted = report.get("device_count")
    return facts_of(counted).get("reason") or describe(counted)


def torch_problem(report):
    """(problem, remedy) for a PyTorch that cannot be imported."""
    if report["torch_files"] is None:
        return (
            "PyTorch is not installed for this Python",
            "run this with the Python that has PyTorch",
        )
    said = describe(report["torch"])
    missing = re.search(r"(lib\S+?): cannot open shared object file", said)
    if missing and dtk_remedy(report):
        library = missing.group(1)
        said = f"{library} is not found, though DTK is installed"
        return f"PyTorch cannot be imported: {said}", dtk_remedy(report)
    return f"PyTorch cannot be imported: {said}", "its log is in the report; import it alone first"


def device_problems(entry):
    """[(problem, remedy)] of one device."""
    name, stream = f"device {entry['index']}", facts_of(entry["stream"])
    if not ok(entry["device"]):
        yield (
            f"{name} does not compute a one-element tensor: {describe(entry['device'])}",
            "no kernel is to blame: keep the report, try a fresh process, then restart the "
            "container or the node",
        )
    elif not ok(entry["stream"]):
        yield f"{name}: asking for streams fails: {describe(entry['stream'])}", "send this report"
    elif not stream.get("symbol") and not stream.get("default", {}).get("raw"):
        yield (
            f"{name}: there is no way to PyTorch's current stream",
            "PyTorch 2.4 and later export aoti_torch_get_current_cuda_stream",
        )
    elif any(stream.get(where, {}).get("same") is False for where in ("default", "side")):
        yield f"{name}: the C function gives another stream than Python", "send this report"


def compiler_problem(report, kind):
    """(problem, remedy) if nothing compiles for the devices of this kind, else None."""
    tried = [c for r in report["rtc"] if r["kind"] == kind for c in r["compiles"]]
    tried = [c for c in tried if c["role"] in ("whole", "base")]
    program = "hipcc" if kind == "hip" else "nvcc"
    by_program = [
        done
        for found in report["programs"]
        if found["kind"] == kind
        for done in facts_of(found["outcome"]).get("compiles", {}).values()
        if done["compiled"] and done["arch"] != WRONG_ARCH[kind]
    ]
    if any(facts_of(c["outcome"]).get("compiled") for c in tried):
        return None
    if tried:
        said = compile_verdict(tried[0]["outcome"])
        return (
            f"{RTC_NAME[kind]} does not compile for {tried[0]['arch']}: {said}",
            f"{program} can take its place" if by_program else "send this report",
        )
    if by_program:
        return None
    return f"no working {RTC_NAME[kind]} or {program} was found", dtk_remedy(
        report
    ) or "install one"


def tool_matters(report, name):
    """A tool that fails is a fault only where its kind of device should be."""
    files, build = facts_of(report["device_files"]), report["identity"]["torch_build"]
    if name == "nvidia-smi":
        return build == "CUDA" or files.get("/dev/nvidiactl", "ENOENT") != "ENOENT"
    return build == "HIP" or files.get("/dev/kfd", "ENOENT") != "ENOENT"


def problems(report):
    """[{problem, remedy}] of a report; a pure function. Only what needs someone to act."""
    found = []
    if not ok(report["torch"]):
        found.append(torch_problem(report))
    elif not report["devices"]:
        found.append(no_device(report))
    if not report["system"]["temporary_folder"]:
        problem = "no temporary folder can be written; no compiler works without one"
        found.append((problem, "make room, or set TMPDIR to a folder of yours"))
    loader, dtk = report.get("loader"), dtk_remedy(report)
    if dtk and loader and not any(facts_of(loader[f]).get("loaded") for f in HIP_RUNTIMES):
        found.append(("DTK is installed, but the loader finds no HIP runtime of it", dtk))
    for problem in duplicates(all_mapped(report)):
        found.append((problem, "take the one that is not PyTorch's own out of LD_LIBRARY_PATH"))
    if report["identity"]["contradiction"]:
        problem = "CUDA and HIP are both in one PyTorch process"
        found.append((problem, "look at LD_LIBRARY_PATH and LD_PRELOAD"))
    for entry in report["devices"]:
        found += device_problems(entry)
    for kind, name in (("hip", "HIP"), ("cuda", "CUDA")):
        if "rtc" in report and report["identity"]["platform"] == name:
            found.append(compiler_problem(report, kind))
    for launch in report.get("launches", []):
        if not ok(launch["outcome"]):
            problem = f"{launch_name(launch)} does not run: {describe(launch['outcome'])}"
            found.append((problem, "send this report"))
    for tool in report["tools"]:
        if not ok(tool["outcome"]) and tool_matters(report, tool["name"]):
            found.append((
                f"{tool['name']} fails: {describe(tool['outcome'])}",
                "if PyTorch fails too, driver or container are at fault: keep this report, restart",
            ))  # fmt: skip
    return [{"problem": entry[0], "remedy": entry[1]} for entry in found if entry]


def launch_name(launch):
    return f"device {launch['index']}: {launch['compiler']} kernel for {launch['arch']}"


def compile_verdict(outcome):
    facts = facts_of(outcome)
    if not ok(outcome):
        return describe(outcome)
    if facts.get("compiled"):
        return f"compiles in {facts['seconds']:.3g} s, {facts['bytes']} bytes"
    lines = [line for line in facts.get("message", "").splitlines() if line.strip()]
    return f"refused, error {facts['code']}: {lines[0] if lines else 'nothing said'}"


def defined(macros):
    """Those of MACROS that are defined, with their values."""
    valued = dict(MACROS)
    shown = [f"{n}={v}" if valued[n] else n for n, v in macros.items() if v != -1]
    return ", ".join(shown) or "none"


def machine_lines(report):
    system, identity = report["system"], report["identity"]
    place = f"Linux {system['kernel']}, {system['machine']}, Python {system['python']}"
    yield None, f"{system.get('os', 'unknown system')}, {place}"
    facts = facts_of(report["torch"])
    if ok(report["torch"]):
        versions = f"cuda: {facts['cuda']}, hip: {facts['hip']}"
        yield True, f"PyTorch {facts['version']} ({versions})"
    else:
        yield False, f"PyTorch: {describe(report['torch'])}"
    name = identity["platform"] + (", Hygon DCU" if identity["dcu"] else "")
    evidence = list(dict.fromkeys(identity["evidence"] + identity["dcu_evidence"]))
    yield None, f"platform {name}, by: {'; '.join(evidence) or 'nothing found'}"
    for install in report["installs"]:
        known = ", ".join(map(os.path.basename, install["libraries"])) or "no known library"
        yield None, f"{install['kind']} {install.get('version', '?')} in {install['path']}: {known}"
    for path, state in sorted(facts_of(report["device_files"]).items()):
        yield None if state == "ENOENT" else state == "ok", f"{path}: {state}"
    for tool in report["tools"]:
        good = ok(tool["outcome"]) or (False if tool_matters(report, tool["name"]) else None)
        yield good, f"{tool['name']}: {describe(tool['outcome'])}"


def device_lines(report):
    if ok(report["torch"]) and not report["devices"]:
        yield None, f"no device: {no_device_reason(report)}"
    for entry in report["devices"]:
        name, device = f"device {entry['index']}", facts_of(entry["device"])
        properties, stream = device.get("properties", {}), facts_of(entry["stream"])
        about = [
            properties.get("name", "?"),
            device.get("arch", "?"),
            f"capability {device.get('capability', '?')}",
            f"wave {device.get('wave', '?')} (by {device.get('wave_by', '?')})",
            f"{properties.get('multi_processor_count', '?')} multiprocessors",
            f"{properties.get('total_memory', 0) / 2**30:.1f} GiB",
        ]
        yield None, f"{name}: {', '.join(about)}"
        yield ok(entry["device"]), f"{name}: one-element tensor: {describe(entry['device'])}"
        for call, value in sorted(device.get("versions", {}).items()):
            yield None, f"{name}: {call}: {value}"
        for where in ("default", "side"):
            same = stream.get(where, {}).get("same")
            words = {True: "same as Python's", False: "NOT Python's", None: "C function not there"}
            yield same, f"{name}: current stream ({where}): {words[same]}"
        for call, found in sorted(facts_of(entry.get("layout")).items()):
            if isinstance(found, dict):
                yield None, f"{name}: {call}: {found}"


def library_lines(report):
    for entry in all_mapped(report):
        yield None, f"loaded with PyTorch: {entry['path']}"
    for library, symbols in sorted(facts_of(report.get("symbols")).items()):
        for symbol, where in sorted(symbols.items()):
            yield None, f"{symbol} in {library}: {'yes' if where else 'no'}"
    for family, outcome in sorted(report.get("loader", {}).items()):
        exports = ", ".join(sorted(facts_of(outcome).get("exports", {})))
        found = facts_of(outcome).get("loaded") or (
            "not found" if ok(outcome) else describe(outcome)
        )
        yield None, f"loader: {family}: {found}{' exports ' + exports if exports else ''}"


def rtc_lines(rtc):
    name = f"{RTC_NAME[rtc['kind']]} in {os.path.basename(rtc['library'])}"
    if os.path.basename(rtc["path"]).startswith("libcaffe2_nvrtc"):
        name += " (through libcaffe2_nvrtc)"
    version = facts_of(rtc["outcome"]).get("version", {}).get(RTC_NAME[rtc["kind"]], "unknown")
    yield None, f"{name}: {rtc['library']}, says version {version}"
    for done in rtc["compiles"]:
        good = facts_of(done["outcome"]).get("compiled", False)
        verdict = compile_verdict(done["outcome"])
        yield (
            good if done["role"] in ("whole", "base") else None,
            (f"{name}: {done['role']} arch {done['arch']}: {verdict}"),
        )
    for key, words in (("serial", "in one thread"), ("threads", "in two threads at once")):
        if key in rtc:
            seconds = facts_of(rtc[key]).get("seconds")
            time_text = f" ({seconds} s)" if seconds else ""
            yield None, f"{name}: 8 compiles {words}: {describe(rtc[key])}{time_text}"
    features = facts_of(rtc.get("features"))
    if features:
        yield None, f"{name} has: {', '.join(f for f in FEATURES if features.get(f) == 'yes')}"
        yield None, f"{name} lacks: {', '.join(f for f in FEATURES if features.get(f) != 'yes')}"
        if not ok(rtc["features"]):
            yield None, f"{name}: feature tests: {describe(rtc['features'])}"
    if "cold" in rtc:
        verdict = compile_verdict(rtc["cold"])
        yield None, f"{name}, without PyTorch in the process: {verdict}"
    tables = [facts_of(done["outcome"]).get("macros") for done in rtc["compiles"]]
    for table in [t for t in tables if isinstance(t, dict)][:1]:
        yield None, f"{name} defines: {defined(table)}"


def compiler_lines(report):
    for rtc in report.get("rtc", []):
        yield from rtc_lines(rtc)
    for program in report.get("programs", []):
        facts, name = facts_of(program["outcome"]), program["name"]
        yield None, f"{name} in {program['path']}: {'; '.join(facts.get('version', [])[:2])}"
        for arch, done in facts.get("compiles", {}).items():
            how = f", with {done['needs']}" if done["needs"] else ""
            text = f"compiles in {done['seconds']:.3g} s{how}" if done["compiled"] else "refused"
            yield None, f"{name} for {arch}: {text}"
        if not ok(program["outcome"]):
            yield None, f"{name}: {describe(program['outcome'])}"


def launch_lines(report):
    for launch in report.get("launches", []):
        facts, name = facts_of(launch["outcome"]), launch_name(launch)
        text = describe(launch["outcome"])
        if ok(launch["outcome"]):
            text = f"right on the current and on a side stream, warpSize {facts['warpSize']}"
        yield ok(launch["outcome"]), f"{name}, loaded by {facts.get('driver', '?')}: {text}"
        if "macros" in facts:
            yield None, f"{name}, as seen on the device: {defined(facts['macros'])}"


def with_verdicts(lines):
    """[[ok, FAIL or --, fact]]: -- where there is nothing to judge."""
    return [[{True: "ok", False: "FAIL", None: "--"}[good], fact] for good, fact in lines]


def summary(report):
    lines = []
    for part in (machine_lines, device_lines, library_lines, compiler_lines, launch_lines):
        lines += part(report)
    return with_verdicts(lines)


def finish(report):
    """Adds the judgement, then takes out everything personal: the result may be shown and sent."""
    report["summary"] = summary(report)
    report["problems"] = problems(report)
    return Cleaner()(report)


def as_text(report):
    """The summary for people: each fact with its verdict, the problems with their remedies last."""
    lines = ["truefuse smoke report"]
    lines += [f"  {verdict:<5} {fact}" for verdict, fact in report["summary"]]
    lines.append(f"Problems: {len(report['problems']) or 'none found'}")
    for number, entry in enumerate(report["problems"], 1):
        lines += [f"  {number}. {entry['problem']}", f"     -> {entry['remedy']}"]
    return "\n".join(lines) + "\n"


def main(argv):
    if "--probe" in argv:
        return serve(PROBES, argv)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", default="smoke-report.json", help='a file, or "-" for stdout')
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds a step (60)")
    options = parser.parse_args(argv)
    if not 0 < options.time_limit < float("inf"):
        parser.error("--time-limit must be a positive number of seconds")
    for stream in (sys.stdout, sys.stderr):  # A path may hold what the locale cannot show.
        stream.reconfigure(errors="backslashreplace")
    report = collect(options.time_limit, lambda text: print("...", text, file=sys.stderr))
    report = finish(report)
    text = json.dumps(report, indent=1) + "\n"
    if options.output == "-":
        sys.stderr.write(as_text(report))
        sys.stdout.write(text)
    else:
        sys.stdout.write(as_text(report))
        try:
            with open(options.output, "w", encoding="utf-8") as file:
                file.write(text)
            print(f"written: {options.output} (read it, then send it)")
        except OSError as error:
            print(f"{options.output} cannot be written ({error.strerror}); here is the report:")
            sys.stdout.write(text)
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
