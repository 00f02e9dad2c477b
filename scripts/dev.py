"""What the Makefile's targets do. `python scripts/dev.py TARGET`, with these variables:

PYTHON  (Makefile only) the Python to start from: used as it is if it has torch
TORCH   a PyTorch version to use instead, in a virtual environment of its own
CXX     the C++ compiler, default g++
ARGS    further arguments: of `truefuse check bias_gelu` for check, of pytest for test
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import environment
from environment import BUILD, ROOT, Environment, Failure, quietly, say


def select() -> Environment:
    """The environment of this run; says in one line what it is."""
    chosen = environment.choose(os.environ.get("TORCH", ""))
    command, version = environment.compiler()
    say(
        f"{chosen.torch_label} {chosen.origin} · {shlex.join(command)} {version} · "
        f"{environment.cores()} cores"
    )
    return chosen


class Build:
    """A build folder; torch, its C++ ABI, the compiler and the kind of build are in its name."""

    def __init__(self, chosen: Environment, sanitize: str = "") -> None:
        command, version = environment.compiler()
        compiler = Path(command[-1]).name.replace("+", "x") + version
        torch = chosen.torch["version"].replace("+", "-")
        name = f"torch{torch}-abi{chosen.torch['cxx11_abi']}-{compiler}"
        self.chosen = chosen
        self.sanitize = sanitize
        self.folder = BUILD / (name + ("-" + sanitize.replace(",", "-") if sanitize else ""))
        self.stage = self.folder / "stage"

    def make(self, tests: bool = False) -> Path:
        """Configures if anything changed, builds, and installs into stage/, which then holds the
        Python package and nothing else. Returns stage/."""
        start = time.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        cmake = environment.cmake()
        self.configure(cmake, tests)
        quietly(
            [cmake, "--build", self.folder, "--parallel", str(jobs())], f"build {self.folder.name}"
        )
        # Installed afresh, so that a file which is gone from the sources is gone here too.
        fresh = self.folder / "stage.new"
        shutil.rmtree(fresh, ignore_errors=True)
        quietly([cmake, "--install", self.folder, "--prefix", fresh], f"install {self.folder.name}")
        shutil.rmtree(self.stage, ignore_errors=True)
        fresh.rename(self.stage)
        seconds = time.monotonic() - start
        if seconds > 3:
            say(f"built truefuse in {seconds:.0f} s")
        return self.stage

    def configure(self, cmake: Path, tests: bool) -> None:
        stamp = self.folder / "configured.json"
        before = json.loads(stamp.read_text()) if stamp.exists() else {}
        # Once on, the tests stay on: switching to and fro would configure for nothing.
        tests = tests or before.get("TRUEFUSE_BUILD_TESTS") == "ON"
        options = {
            "CMAKE_BUILD_TYPE": "RelWithDebInfo" if self.sanitize else "Release",
            "TRUEFUSE_PYTHON": self.chosen.python,
            # A library with AddressSanitizer cannot be loaded into Python: no binding then.
            "TRUEFUSE_WITH_TORCH": "OFF" if self.sanitize else "ON",
            "TRUEFUSE_SANITIZE": self.sanitize,
            "TRUEFUSE_BUILD_TESTS": "ON" if tests else "OFF",
        }
        if before == options and (self.folder / "CMakeCache.txt").exists():
            return
        stamp.unlink(missing_ok=True)
        generator = ["-G", "Ninja" if shutil.which("ninja") else "Unix Makefiles"]
        if (self.folder / "CMakeCache.txt").exists():
            generator = []
        quietly(
            [cmake, "-S", ROOT, "-B", self.folder, *generator,
             *(f"-D{name}={value}" for name, value in options.items())],
            f"configure {self.folder.name}",
        )  # fmt: skip
        stamp.write_text(json.dumps(options))


def jobs() -> int:
    """Compilers at once: one per core, with 2 GiB of memory each."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(environment.cores(), memory >> 31))


def build() -> int:
    stage = Build(select()).make()
    say(f"the package is in {stage.relative_to(ROOT)}")
    return 0


def paths() -> int:
    """Prints the PYTHONPATH with which the Python that is used runs what was built."""
    chosen = environment.choose(os.environ.get("TORCH", ""))
    chosen.add("cli", "gpu")
    print(chosen.variables(Build(chosen).stage)["PYTHONPATH"])
    return 0


def write_launchers(chosen: Environment, stage: Path) -> None:
    """build/truefuse and build/python: the command line as `make check` runs it, and the Python that
    imports what was built, for whoever wants to go on."""
    variables = chosen.variables(stage)
    names = (
        "PYTHONPATH",
        "PYTHONPYCACHEPREFIX",
        "PYTHONDONTWRITEBYTECODE",
        "PYTHONWARNINGS",
    )
    lines = [f"export {name}={shlex.quote(variables[name])}\n" for name in names]
    python = shlex.quote(chosen.python)
    for name, command in (("truefuse", f"{python} -m truefuse"), ("python", python)):
        launcher = BUILD / name
        launcher.write_text(
            "#!/bin/sh\n" + "".join(lines) + f'exec {command} "$@"\n', encoding="utf-8"
        )
        launcher.chmod(0o755)


def check() -> int:
    """The main job. Its exit status is that of `truefuse check`: 0 accept, 1 reject, 3 unknown."""
    chosen = select()
    chosen.add("cli")
    stage = Build(chosen).make()
    # An NVRTC that `make compilers` or `make test` has installed is used, but is not asked for.
    chosen.overlays += sorted((BUILD / "packages").glob("nvrtc-*[0-9a-f]/site-packages"))
    write_launchers(chosen, stage)
    device = [] if "--device" in arguments() else ["--device", chosen.torch["device"]]
    command = [chosen.python, "-m", "truefuse", "check", "bias_gelu", *device, *arguments()]
    return subprocess.run(command, cwd=ROOT, env=chosen.variables(stage)).returncode


def test() -> int:
    """All tests that need no GPU: C++ (ctest), then Python (pytest); both even if one fails."""
    chosen = select()
    install_compilers()
    chosen.add("cli", "test")
    add_nvrtc(chosen)
    add_models(chosen)
    build = Build(chosen)
    stage = build.make(tests=True)
    variables = chosen.variables(stage)
    ctest = run_ctest(build, variables)
    # A file's tests stay together: they share fixtures.
    given = ["tests", "--ignore=tests/gpu", "--dist", "loadfile", *arguments()]
    return ctest or run_pytest(chosen, variables, *given)


def simulate() -> int:
    """Every operator on the simulated devices, over its whole list of edge sizes."""
    chosen = select()
    chosen.add("cli", "test")
    variables = chosen.variables(Build(chosen).make()) | {"TRUEFUSE_FULL": "1"}
    return run_pytest(chosen, variables, "tests/python/test_simulate_operators.py", *arguments())


def targets() -> int:
    """Every kernel, dtype and variant for every target of docs/targets.md, without a device; newer AMD
    chips too where clang-19 and lld-19 are installed. Some ten minutes."""
    chosen = select()
    install_compilers()
    chosen.add("cli", "test")
    add_nvrtc(chosen)
    variables = chosen.variables(Build(chosen).make()) | {"TRUEFUSE_FULL": "1"}
    return run_pytest(chosen, variables, "tests/python/test_compile_table.py", *arguments())


def run_pytest(chosen: Environment, variables: dict[str, str], *given: str) -> int:
    """On every core: much of it waits for compilers and processes."""
    command = [chosen.python, "-m", "pytest", "--numprocesses", str(jobs()), *given]
    return subprocess.run(command, cwd=ROOT, env=variables).returncode


def sanitize() -> int:
    """The C++ tests under AddressSanitizer and UndefinedBehaviorSanitizer."""
    chosen = select()
    install_compilers()
    build = Build(chosen, "address,undefined")
    build.make(tests=True)
    # Some tests load the vendors' compilers into their own process: they leak, mix allocation functions and
    # replace the signal stack of their thread.
    options = {"ASAN_OPTIONS": "detect_leaks=0:alloc_dealloc_mismatch=0:use_sigaltstack=0"}
    return run_ctest(build, chosen.variables() | options)


def fuzz() -> int:
    """libFuzzer over each target of tests/fuzz in turn, five minutes each. Words in ARGS name targets
    or are libFuzzer's own flags: ARGS="entry -max_total_time=3600". What it finds is left in
    build/fuzz; inputs that reach new code are kept there for the next time."""
    if "clang" not in os.environ.get("CXX", ""):
        found = next(filter(shutil.which, ("clang++-19", "clang++")), None)
        if found is None:
            raise Failure("libFuzzer belongs to clang: apt-get install clang-19 libclang-rt-19-dev")
        os.environ["CXX"] = found
    build = Build(select(), "fuzzer-no-link,address,undefined")
    build.make()
    corpus = ROOT / "tests" / "fuzz" / "corpus"
    flags = [word for word in arguments() if word.startswith("-")]
    names = [word for word in arguments() if word not in flags]
    failed = []
    for name in names or sorted(path.name for path in corpus.iterdir()):
        kept = BUILD / "fuzz" / name
        kept.mkdir(parents=True, exist_ok=True)
        command = [
            build.folder / "tests" / "fuzz" / "truefuse_fuzz", "-max_total_time=300", "-timeout=5",
            "-print_final_stats=1", f"-artifact_prefix={kept.parent}/{name}-", *flags,
            kept, corpus / name,
        ]  # fmt: skip
        say(f"== {name}")
        if subprocess.run(command, env={**os.environ, "FUZZ_TARGET": name}).returncode != 0:
            failed.append(name)
    say(f"found something: {', '.join(failed)}" if failed else "nothing found")
    return 1 if failed else 0


def run_ctest(build: Build, variables: dict[str, str]) -> int:
    ctest = environment.cmake().with_name("ctest")
    command = [ctest, "--test-dir", build.folder, "--output-on-failure", "--no-tests=error"]
    return subprocess.run([*command, "--parallel", str(jobs())], cwd=ROOT, env=variables).returncode


def install_compilers() -> None:
    """Kernel compilers and GoogleTest, which only tests need; says what it could not get."""
    subprocess.run(["bash", ROOT / "scripts" / "install_compilers.sh"], stdin=subprocess.DEVNULL)


def compilers() -> int:
    chosen = select()
    install_compilers()
    add_nvrtc(chosen)
    return 0


def add_models(chosen: Environment) -> None:
    """For the tests that need them: without, these are skipped."""
    oldest = environment.TORCH_OF_MODELS
    try:
        if environment.release(chosen.torch["version"]) < environment.release(oldest):
            raise Failure(f"transformers needs PyTorch {oldest} or newer")
        chosen.add("models")
    except Failure as failure:
        say(f"no models to test with: {failure}")


def add_nvrtc(chosen: Environment) -> None:
    """NVRTC from pip, unless this Python or this PyTorch brings one, under whatever name."""
    there = any(
        name.startswith("nvidia-cuda-nvrtc") for name in environment.inventory(chosen.python)
    )
    if not there and not list(Path(chosen.torch["library_dirs"]).glob("libnvrtc*.so*")):
        chosen.add("nvrtc")


def kit() -> int:
    """Packs dist/truefuse-kit-*.tar and proves that it installs with the network off."""
    import kit

    packed = kit.pack(select())
    kit.prove(packed)
    say(f"packed {packed.tar.relative_to(ROOT)}")
    return 0


def gpu() -> int:
    variables = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(["bash", ROOT / "scripts" / "gpu.sh"], env=variables).returncode


CPP = ["*.cpp", "*.h", "*.hip"]
PYTHON_FOLDERS = ["python", "scripts", "tests", "bench", "operators"]


def lint() -> int:
    return style(["--dry-run", "-Werror"], ["check"], ["format", "--check"])


def format_sources() -> int:
    return style(["-i"], ["check", "--fix"], ["format"])


def style(clang_format: list[str], *ruff: list[str]) -> int:
    programs = environment.tools("lint") / "bin"
    variables = {**os.environ, "PYTHONPATH": str(programs.parent)}
    variables["RUFF_CACHE_DIR"] = str(BUILD / "ruff")
    commands = [[programs / "clang-format", *clang_format, *environment.sources(*CPP)]]
    folders = [folder for folder in PYTHON_FOLDERS if (ROOT / folder).exists()]
    commands += [[programs / "ruff", *arguments, *folders] for arguments in ruff]
    failed = [c for c in commands if subprocess.run(c, cwd=ROOT, env=variables).returncode != 0]
    if not failed:
        say("style: clean")
    return 1 if failed else 0


def clean() -> int:
    for name in ("build", "dist", "report"):
        shutil.rmtree(ROOT / name, ignore_errors=True)
    return 0


def arguments() -> list[str]:
    return shlex.split(os.environ.get("ARGS", ""))


TARGETS = {
    "build": build, "check": check, "test": test, "simulate": simulate, "targets": targets,
    "sanitize": sanitize, "fuzz": fuzz, "compilers": compilers,
    "kit": kit, "gpu": gpu, "paths": paths, "lint": lint, "format": format_sources, "clean": clean,
}  # fmt: skip


def main() -> int:
    if len(sys.argv) != 2 or sys.argv[1] not in TARGETS:
        say(f"{__doc__}\nTARGET is one of: {', '.join(TARGETS)}")
        return 2
    sys.stdout.reconfigure(errors="replace")  # Not every locale has every character.
    try:
        return TARGETS[sys.argv[1]]()
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 3  # Not 1: nothing was judged.
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
