"""Cold build of bias_gelu: through torch.utils.cpp_extension and through truefuse, in one run.

    python bench/cold_build.py [--output FILE]

Both start from nothing (an empty build folder, an empty cache, a fresh process for truefuse) and end
with a correct result of the same call, which is checked before any time is shown. On a machine without
a GPU the extension is the CPU one, and truefuse compiles its kernel for a GPU that is not there, so the
last step of its chain, loading and launching, is missing from the figure; the output says so.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from truefuse import environment

HERE = Path(__file__).resolve().parent

FIRST_CALL = """
import json, time, torch, truefuse
x = torch.randn(1024, 768, device="cuda"); bias = torch.randn(768, device="cuda")
torch.cuda.synchronize()
begin = time.perf_counter()
out = truefuse.bias_gelu(x, bias, approximate="tanh")
torch.cuda.synchronize()
seconds = time.perf_counter() - begin
want = torch.nn.functional.gelu(x.double() + bias.double(), approximate="tanh")
assert (out.double() - want).abs().max() < 1e-5
print(json.dumps(seconds))
"""

COMPILE_ONLY = """
import json, truefuse
from truefuse import _native
answer = _native.compile("bias_gelu", {arch!r}, "f32 tanh vector", {compiler!r}, cache=False)
assert answer["ok"], answer["error"]
print(json.dumps(answer["seconds"]))
"""


def extension_seconds(gpu: bool) -> float:
    """One cold build and load, and one right answer."""
    from torch.utils import cpp_extension

    sources = [str(HERE / "cpp_extension/bias_gelu.cpp")]
    flags = []
    if gpu:
        sources.append(str(HERE / "cpp_extension/bias_gelu_kernel.cu"))
        flags.append("-DWITH_CUDA")
        major, minor = torch.cuda.get_device_capability()
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", f"{major}.{minor}")
    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        module = cpp_extension.load(
            "truefuse_bench_bias_gelu",
            sources,
            extra_cflags=["-O3", *flags],
            build_directory=folder,
        )
        seconds = time.perf_counter() - begin
        device = "cuda" if gpu else "cpu"
        x, bias = torch.randn(64, 96, device=device), torch.randn(96, device=device)
        want = torch.nn.functional.gelu(x + bias, approximate="tanh")
        torch.testing.assert_close(module.bias_gelu(x, bias), want, rtol=1e-5, atol=1e-6)
    return seconds


def fresh_process(code: str, cache: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, TRUEFUSE_CACHE_DIR=cache),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    gpu = torch.cuda.is_available()

    ours: dict[str, float] = {}
    if gpu:
        cold, cached = [], []
        for _ in range(arguments.repeats):
            with tempfile.TemporaryDirectory() as cache:
                os.chmod(cache, 0o700)
                cold.append(fresh_process(FIRST_CALL, cache))
                cached.append(fresh_process(FIRST_CALL, cache))
        ours["first call, empty cache"] = statistics.median(cold)
        ours["first call, disk cache"] = statistics.median(cached)
    else:
        for arch, compiler in [("gfx90a", "hipRTC"), ("sm_90a", "NVRTC")]:
            code = COMPILE_ONLY.format(arch=arch, compiler=compiler)
            with tempfile.TemporaryDirectory() as cache:
                times = [fresh_process(code, cache) for _ in range(arguments.repeats)]
            ours[f"compile for {arch} ({compiler}), not loaded or launched"] = statistics.median(
                times
            )
    extension = extension_seconds(gpu)

    result = {
        "benchmark": "cold_build",
        "environment": environment.describe(
            torch.device("cuda" if torch.cuda.is_available() else "cpu")
        ),
        "cpp_extension": {"kind": "CUDA" if gpu else "CPU", "seconds": extension},
        "truefuse_seconds": ours,
        "ratio": {name: extension / seconds for name, seconds in ours.items()},
        "repeats": arguments.repeats,
    }
    print(f"torch.utils.cpp_extension ({result['cpp_extension']['kind']})  {extension:8.2f} s")
    for name, seconds in ours.items():
        print(f"truefuse, {name:55} {seconds:8.3f} s   {extension / seconds:6.0f} x faster")
    if arguments.output:
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
