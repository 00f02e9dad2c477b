"""Which Python, torch and compiler a build uses, and where additional packages go.

A Python that has torch is used as it is: nothing is installed into it. Packages that it lacks are
installed into folders under build/ that hold nothing which it already has, so nothing of its own is
shadowed. Only where there is no torch is a virtual environment made.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
DEFAULT_TORCH = "2.13.0"
OLDEST_PYTHON = (3, 10)
SITE = "site-packages"

# Sets of packages, by what needs them. The import of truefuse and its operators need torch alone.
PACKAGES = {
    "cli": ["typer>=0.12", "rich>=13", "jinja2>=3.1"],
    "test": ["pytest>=7", "pytest-xdist>=3", "hypothesis>=6", "jsonschema>=4", "numpy"],
    # Whole models to swap operators into; tests that need them are skipped without, and where PyTorch is
    # older than TORCH_OF_MODELS, which transformers asks for.
    "models": ["transformers==5.24.0"],
    "gpu": ["pytest>=7"],  # All that tests/gpu needs: such a machine may have no network.
    "nvrtc": ["nvidia-cuda-nvrtc"],
    "lint": ["ruff==0.17.6", "clang-format==14.0.6"],
    "cmake": ["cmake>=3.22"],
    "wheel": ["scikit-build-core>=0.10"],
}


TORCH_OF_MODELS = "2.6"


class Failure(Exception):
    """A sentence for the person at the keyboard: what is wrong and what to do."""


def say(text: str) -> None:
    print(text, flush=True)


def cores() -> int:
    return len(os.sched_getaffinity(0))


def quietly(command: list[str | Path], what: str, env: dict[str, str] | None = None) -> None:
    """Runs a command with its output in build/log/, shown only if it fails."""
    log = BUILD / "log" / f"{re.sub(r'[^a-z0-9.]+', '-', what.lower())}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        status = subprocess.run(
            command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out
        ).returncode
    if status != 0:
        lines = log.read_text(errors="replace").splitlines()
        say("\n".join(lines[-60:]))
        raise Failure(f"{what} failed with status {status}; the whole output is in {log}")


@dataclass
class Environment:
    """A Python with torch, and the folders that are added to what it can import."""

    python: str
    torch: dict[str, str]
    origin: str
    overlays: list[Path] = field(default_factory=list)

    @property
    def torch_label(self) -> str:
        torch = self.torch
        kind = "CUDA " + torch["cuda"] if torch["cuda"] else "CPU"
        return f"torch {torch['version']} ({'HIP ' + torch['hip'] if torch['hip'] else kind} build)"

    def variables(self, *front: Path) -> dict[str, str]:
        """Environment of a child: `front` is imported from first (it holds truefuse alone), the
        overlays last."""
        inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*map(str, front), *inherited, *map(str, self.overlays)]),
            # Written here and nowhere else, so also where somebody wants none (many images set this): without
            # it every process compiles PyTorch's sources again, 3 s each.
            "PYTHONPYCACHEPREFIX": str(BUILD / "pycache"),
            "PYTHONDONTWRITEBYTECODE": "",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(BUILD / "hypothesis"),
            # PyTorch says so at every import where there is no numpy, which truefuse does not need.
            "PYTHONWARNINGS": ",".join(
                filter(
                    None, [os.environ.get("PYTHONWARNINGS"), "ignore:Failed to initialize NumPy"]
                )
            ),
        }

    def add(self, *names: str) -> None:
        """Makes the packages of PACKAGES[name] importable."""
        for name in names:
            overlay = overlay_for(self.python, name)
            if overlay and overlay not in self.overlays:
                self.overlays.append(overlay)


def ask_torch(python: str) -> dict[str, str] | None:
    """Facts about the torch of `python`; None if it has none. A broken torch is a Failure."""
    try:
        run = subprocess.run(
            [python, ROOT / "scripts" / "torch_facts.py"], stdin=subprocess.DEVNULL,
            capture_output=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise Failure(f"cannot run {python}: {error.strerror}; set PYTHON= to a Python") from error
    if run.returncode == 3:
        return None
    if run.returncode != 0:
        raise Failure(f"{python}: {run.stderr.strip()}")
    return dict(line.split("=", 1) for line in run.stdout.splitlines() if "=" in line)


def choose(torch_wanted: str = "") -> Environment:
    """The Python that runs this script if it has torch (the wanted version, if one is wanted),
    else a virtual environment that has it."""
    if sys.version_info < OLDEST_PYTHON:
        raise Failure(
            f"{sys.executable} is Python {sys.version.split()[0]}; truefuse needs 3.10 or newer. "
            "Set PYTHON= to one."
        )
    here = ask_torch(sys.executable)
    if here and torch_wanted in ("", here["version"], here["version"].split("+")[0]):
        return Environment(sys.executable, here, f"of {sys.executable}, used as it is")
    found = f"torch {here['version']}" if here else "no torch"
    reason = f"{found} in {sys.executable}"
    version = torch_wanted or DEFAULT_TORCH
    folder = ROOT / ".venv" if version == DEFAULT_TORCH else BUILD / f"venv-torch{version}"
    python = make_venv(folder, version, reason)
    facts = ask_torch(python)
    if facts is None:
        raise Failure(f"{folder} has lost its torch; remove that folder and try again")
    return Environment(python, facts, f"in {folder.relative_to(ROOT)} ({reason})")


def make_venv(folder: Path, version: str, reason: str) -> str:
    """A virtual environment with that torch alone; made again if it is unfinished or of another
    Python. A folder that somebody else made is left alone."""
    python = str(folder / "bin" / "python")
    stamp = folder / "made-by-truefuse"
    wanted = f"torch {version}, Python {sys.version.split()[0]} of {sys.base_prefix}\n"
    if folder.exists():
        if not stamp.exists():
            raise Failure(f"{folder} was made by somebody else; activate it, or rename it")
        if stamp.read_text(encoding="utf-8") == wanted:
            return python
        shutil.rmtree(folder)
    say(f"making {folder.relative_to(ROOT)} with torch {version} ({reason})")
    folder.mkdir(parents=True)
    stamp.write_text("unfinished\n", encoding="utf-8")
    try:
        quietly([sys.executable, "-m", "venv", folder], "python -m venv")
    except Failure as failure:
        raise Failure(f"{failure}. On Debian and Ubuntu: apt-get install python3-venv") from failure
    quietly([python, "-m", "pip", "install", f"torch=={version}"], f"pip install torch=={version}")
    stamp.write_text(wanted, encoding="utf-8")
    return python


_INVENTORY = """
import importlib.metadata as m, json, os, re
found = {re.sub(r'[-_.]+', '-', d.metadata['Name']).lower(): d.version
         for d in m.distributions() if d.metadata['Name']}
print(json.dumps(found, sort_keys=True))
"""


@functools.cache
def inventory(python: str) -> dict[str, str]:
    """Installed distributions of `python`, normalised name to version."""
    BUILD.mkdir(exist_ok=True)
    run = subprocess.run([python, "-c", _INVENTORY], capture_output=True, check=True, cwd=BUILD)
    return json.loads(run.stdout)


def overlay_for(python: str, name: str) -> Path | None:
    """A folder with those packages of PACKAGES[name] that `python` lacks, and of what they need
    again only what it lacks; None if it lacks nothing."""
    there = inventory(python)
    lacking = [text for text in PACKAGES[name] if lacks(there, text, python)]
    if not lacking:
        return None
    content = json.dumps([python, python_version(python), there, lacking])
    overlay = BUILD / "packages" / f"{name}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if overlay.exists():
        return overlay / SITE
    say(f"installing {', '.join(map(project_name, lacking))} into {overlay.relative_to(ROOT)}")
    making = overlay.with_suffix(".making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    constraints = making / "constraints.txt"
    # Versions that are there are kept, so that what is installed fits to them. Local versions
    # (+cpu, +das...) exist on no index: such packages are asked for by nobody here.
    constraints.write_text(
        "".join(f"{dist}=={version}\n" for dist, version in there.items() if version.isascii()
                and re.fullmatch(r"[0-9][0-9a-z.!]*", version))
    )  # fmt: skip
    quietly(
        [python, "-m", "pip", "install", "--no-input", "--no-compile", "--target", making / SITE,
         "--constraint", constraints, *lacking],
        f"pip install {name}",
    )  # fmt: skip
    remove_distributions(making / SITE, set(there))
    making.rename(overlay)
    return overlay / SITE


def remove_distributions(folder: Path, names: set[str]) -> None:
    """Removes from a --target folder the files of the distributions with these normalised names."""
    import importlib.metadata

    for distribution in list(importlib.metadata.distributions(path=[str(folder)])):
        if project_name(distribution.metadata["Name"]) in names:
            for file in distribution.files or []:
                path = (folder / file).resolve()
                if path.is_relative_to(folder):
                    path.unlink(missing_ok=True)
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def project_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[A-Za-z0-9._-]+", requirement)[0]).lower()


def lacks(there: dict[str, str], requirement: str, python: str) -> bool:
    """Whether a requirement (NAME or NAME>=VERSION) is not installed. One that is installed but too
    old is a Failure: neither replacing nor shadowing it is ours to decide."""
    name, _, oldest = requirement.partition(">=")
    version = there.get(project_name(name))
    if version is None:
        return True
    if oldest and release(version) < release(oldest):
        raise Failure(
            f"{python} has {name} {version}, and {requirement} is needed. Upgrade it there, or say "
            f"TORCH={DEFAULT_TORCH} to use a virtual environment instead"
        )
    return False


def release(version: str) -> list[int]:
    return [int(number) for number in re.match(r"[0-9.]*", version)[0].split(".") if number]


def tools(name: str) -> Path:
    """A folder with programs (in bin/) and packages that only building and linting use."""
    digest = hashlib.sha256(json.dumps([PACKAGES[name], sys.version]).encode()).hexdigest()[:12]
    folder = BUILD / "packages" / f"{name}-{digest}"
    if not folder.exists():
        say(f"installing {', '.join(PACKAGES[name])} into {folder.relative_to(ROOT)}")
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        quietly(
            [sys.executable, "-m", "pip", "install", "--no-input", "--no-compile",
             "--target", making, *PACKAGES[name]],
            f"pip install {name}",
        )  # fmt: skip
        making.rename(folder)
    return folder


@functools.cache
def python_version(python: str) -> str:
    command = [python, "-c", "import sys; print(sys.version, sys.prefix)"]
    return subprocess.run(command, capture_output=True, check=True).stdout.decode(errors="replace")


def compiler() -> tuple[list[str], str]:
    """The C++ compiler ($CXX, default g++) and its version."""
    command = shlex.split(os.environ.get("CXX") or "g++")
    try:
        asked = [*command, "-dumpfullversion", "-dumpversion"]
        run = subprocess.run(asked, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(
            f"the C++ compiler {shlex.join(command)} does not run ({error}). Install g++ 11 or "
            "newer (Debian, Ubuntu: apt-get install g++) or set CXX="
        ) from error
    return command, run.stdout.strip()


def cmake() -> Path:
    """A CMake of 3.22 or newer: the system's, or one from pip under build/packages/."""
    found = shutil.which("cmake")
    if found:
        text = subprocess.run([found, "--version"], capture_output=True, text=True).stdout
        match = re.search(r"(\d+)\.(\d+)", text)
        if match and (int(match[1]), int(match[2])) >= (3, 22):
            return Path(found)
    return tools("cmake") / "cmake" / "data" / "bin" / "cmake"


def sources(*patterns: str) -> list[str]:
    """Tracked and new files of the work tree, ignored ones left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"]
    try:
        run = subprocess.run([*command, *patterns], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure(f"{ROOT} has to be a git work tree for this: {error}") from error
    return [name for name in run.stdout.decode().split("\0") if name and (ROOT / name).exists()]
