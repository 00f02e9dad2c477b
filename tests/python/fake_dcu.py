"""A Hygon DCU made of two small shared libraries and a small `torch`: what smoke.py and doctor look at.

`FAKE_FAULT` in the environment of a child process chooses what goes wrong in it.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ARCH = "gfx936:sramecc+:xnack-"

GALAXYHIP = r"""
#include <signal.h>
#include <stdlib.h>
#include <string.h>

void* fake_stream = 0;  /* The current stream, set by the Python side. */

static int fault(const char* name) {
  const char* wanted = getenv("FAKE_FAULT");
  return wanted && strcmp(wanted, name) == 0;
}

int hipRuntimeGetVersion(int* version) { *version = 60325405; return 0; }
int hipDriverGetVersion(int* version) { *version = 60325405; return 0; }
const char* hipGetErrorString(int code) { return code == 218 ? "invalid kernel file" : "other"; }

int hipGetDeviceProperties(char* properties, int device) {
  strcpy(properties, "BW1000");
  strcpy(properties + 396, "gfx936:sramecc+:xnack-");
  return device;
}

int hipModuleLoadData(void** module, const void* code) {
  if (fault("module")) raise(SIGSEGV);
  *module = (void*)code;
  return memcmp(code, "\177ELF", 4) ? 218 : 0;
}

int hipModuleGetFunction(void** function, void* module, const char* name) {
  *function = strcmp(name, "tf_line") ? (void*)2 : (void*)1;
  return module ? 0 : 500;
}

int hipModuleLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void* stream, void** arguments,
                          void** extra) {
  if (stream != fake_stream || gy * gz * by * bz != 1 || shared || extra) return 400;
  if (function == (void*)1) {
    const float* x = *(float**)arguments[0];
    float* y = *(float**)arguments[1];
    const int n = *(int*)arguments[2];
    for (int i = 0; i < n && i < (int)(gx * bx); ++i) y[i] = 2 * x[i] + i;
    if (fault("wrong")) y[n] = 0;  /* Writes past the end. */
  } else {
    int* out = *(int**)arguments[0];
    memset(out, 0xff, sizeof(int) * MACRO_WORDS);
    out[3] = 1;
    out[MACRO_WORDS] = 64;
  }
  return 0;
}
"""

HIPRTC = r"""
#include <stdlib.h>
#include <string.h>

static const char* log_text = "";

int hiprtcVersion(int* major, int* minor) { *major = 9; *minor = 0; return 0; }
int hiprtcCreateProgram(char** program, const char* source, const char* name, int headers,
                        const char** contents, const char** names) {
  *program = strdup(source);
  return 0;
}
int hiprtcCompileProgram(char* source, int count, const char** options) {
  for (int i = 0; i < count; ++i) {
    const char* arch = strstr(options[i], "--offload-arch=");
    if (!arch) continue;
    arch += strlen("--offload-arch=");
    if (!strcmp(arch, "gfx999")) abort();
    if (strcmp(arch, "gfx936") && strcmp(arch, "gfx936:sramecc+:xnack-")) return 6;
  }
  log_text = strstr(source, "_sync(") ? "x:1: error: no such function" : "";
  return *log_text ? 6 : 0;
}
int hiprtcGetProgramLogSize(char* source, size_t* size) { *size = strlen(log_text) + 1; return 0; }
int hiprtcGetProgramLog(char* source, char* text) { strcpy(text, log_text); return 0; }
int hiprtcGetCodeSize(char* source, size_t* size) { *size = strlen(source) + 4; return 0; }
int hiprtcGetCode(char* source, char* code) {
  memcpy(code, "\177ELF", 4);
  memcpy(code + 4, source, strlen(source));
  return 0;
}
int hiprtcDestroyProgram(char** program) { free(*program); return 0; }
"""

TORCH_HIP = r"""
#include <stdlib.h>

extern void* fake_stream;
int aoti_torch_get_current_cuda_stream(int device, void** out) {
  *out = getenv("FAKE_FAULT") && getenv("FAKE_FAULT")[0] == 's' ? (void*)1 : fake_stream;
  return device;
}
"""

TORCH = r"""
import contextlib, ctypes, itertools, os, time, types

FAULT = os.environ.get("FAKE_FAULT", "")
if FAULT == "import":
    raise ImportError("libgalaxyhip.so.5: cannot open shared object file: No such file or directory")
__version__ = "2.5.1+das.opt1.dtk25042"
version = types.SimpleNamespace(cuda=None, hip="6.3.25405")
_hip = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "lib", "libtorch_hip.so"))
_current = ctypes.c_void_p.in_dll(_hip, "fake_stream")
_C = types.SimpleNamespace(
    _GLIBCXX_USE_CXX11_ABI=True, _cuda_getCurrentRawStream=lambda index: _current.value or 0
)
float32, int32 = ctypes.c_float, ctypes.c_int


def _flat(values):
    return [v for row in values for v in (_flat(row) if isinstance(row, list) else [row])]


class tensor:
    def __init__(self, values, dtype=float32, device="cpu"):
        if FAULT == "tensor":
            raise RuntimeError("HIP error: HSA_STATUS_ERROR_OUT_OF_RESOURCES")
        if FAULT == "hang":
            time.sleep(1000)
        self.columns = len(values[0]) if isinstance(values[0], list) else 0
        self.memory = (dtype * len(_flat(values)))(*_flat(values))

    def __add__(self, other):
        return tensor([a + b for a, b in zip(self.memory, other.memory)])

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def tolist(self):
        flat, n = list(self.memory), self.columns
        return [flat[i : i + n] for i in range(0, len(flat), n)] if n else flat


class _Stream:
    handles = itertools.count(0x1000, 16)

    def __init__(self, device=None):
        self.cuda_stream = next(self.handles)


class _Cuda:
    Stream = _Stream

    def device_count(self):
        return 0 if FAULT == "none" else 1

    def init(self):
        if FAULT == "none":
            raise RuntimeError("No HIP GPUs are available")

    def get_device_properties(self, index):
        return types.SimpleNamespace(
            name="BW1000", gcnArchName="ARCH", major=9, minor=3, multi_processor_count=80,
            total_memory=64 << 30,
        )

    def get_device_capability(self, index):
        return (9, 3)

    def current_stream(self, index=0):
        return types.SimpleNamespace(cuda_stream=_current.value or 0)

    @contextlib.contextmanager
    def stream(self, stream):
        before, _current.value = _current.value, stream.cuda_stream
        yield
        _current.value = before

    def set_device(self, index):
        pass

    def synchronize(self, index=0):
        pass


cuda = _Cuda()
"""


def build_library(path: Path, source: str, *flags: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-shared", "-fPIC", "-w", "-o", str(path), "-x", "c", "-", "-x", "none"]
    subprocess.run([*command, *flags], input=source.encode(), check=True)


def make(folder: Path, macro_words: int) -> dict[str, str]:
    """Builds it below `folder`; returns the environment in which it is the machine's device."""
    dtk, torch = folder / "dtk-25.04.2", folder / "site" / "torch"
    runtime = dtk / "lib" / "libgalaxyhip.so.5"
    build_library(
        runtime, GALAXYHIP, f"-DMACRO_WORDS={macro_words}", "-Wl,-soname,libgalaxyhip.so.5"
    )
    build_library(dtk / "lib" / "libhiprtc.so.5", HIPRTC, "-Wl,-soname,libhiprtc.so.5")
    build_library(
        torch / "lib" / "libtorch_hip.so", TORCH_HIP, str(runtime), f"-Wl,-rpath,{dtk / 'lib'}"
    )
    (torch / "__init__.py").write_text(TORCH.replace("ARCH", ARCH))
    (dtk / "env.sh").write_text("export DTKROOT\n")
    (dtk / ".info").mkdir()
    (dtk / ".info" / "version").write_text("25.04.2\n")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (
        (
            "rocminfo",
            "echo '  Name:                    gfx936'; echo '  Uuid: GPU-0123456789abcdef'",
        ),
        ("hy-smi", "echo SN-77Q1"),
    ):
        (programs / name).write_text(
            f'#!/bin/sh\n[ "$FAKE_FAULT" = tensor ] && {{ echo HSA_STATUS_ERROR_OUT_OF_RESOURCES; exit 1; }}\n{text}\n'
        )
        (programs / name).chmod(0o755)
    environ = {key: value for key, value in os.environ.items() if key not in ("LD_LIBRARY_PATH",)}
    environ.update(
        PYTHONPATH=str(folder / "site"),
        DTKROOT=str(dtk),
        LD_LIBRARY_PATH=str(dtk / "lib"),
        PATH=str(programs),
    )
    return environ
