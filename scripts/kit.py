"""The offline kit: the wheel, the sources, and every wheel that installing either of them needs.

truefuse-kit-VERSION-linux_ARCH/
  install.sh        installs the wheel, or builds from source where it does not fit the torch
  torch_facts.py    asks the torch that is there, for install.sh
  cli.txt           names of the packages that the command line needs
  wheels/           truefuse and those packages, for several versions of Python
  build-wheels/     what a build from source needs
  source.tar.gz     the sources
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import environment
from environment import BUILD, ROOT, Environment, Failure, quietly, say

# A kit may be packed with another Python than it is installed with.
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]
GLIBCS = ["2_28", "2_27", "2_24", "2_17", "2_12", "2_5"]
# The last three are what scikit-build-core needs on Python 3.10 alone.
BUILD_PACKAGES = ["scikit-build-core>=0.10", "ninja", "cmake>=3.22"]
BUILD_PACKAGES += ["exceptiongroup", "tomli", "typing-extensions"]

# Run where the kit was installed: a right answer, from the library in site-packages.
PROOF = """
import torch, truefuse
x, bias = torch.randn(3, 5), torch.randn(5)
wanted = torch.nn.functional.gelu(x + bias, approximate="tanh")
torch.testing.assert_close(truefuse.bias_gelu(x, bias, approximate="tanh"), wanted)
"""


@dataclass(frozen=True)
class Kit:
    chosen: Environment
    tar: Path
    projects: set[str]  # Normalised names of what may be installed.


def pack(chosen: Environment) -> Kit:
    making = BUILD / "kit"
    shutil.rmtree(making, ignore_errors=True)
    wheel = build_wheel(chosen, making / "wheel")
    name = "truefuse-kit-" + wheel.stem.removeprefix("truefuse-").replace("-py3-none", "")
    folder = making / name
    say("collecting the wheels for the command line and for a build from source")
    projects = download(chosen.python, folder / "wheels", environment.PACKAGES["cli"])
    download(chosen.python, folder / "build-wheels", BUILD_PACKAGES)
    shutil.copy(wheel, folder / "wheels")
    (folder / "cli.txt").write_text("".join(f"{project}\n" for project in sorted(projects)))
    shutil.copy(ROOT / "scripts" / "kit_install.sh", folder / "install.sh")
    shutil.copy(ROOT / "scripts" / "torch_facts.py", folder)
    with tarfile.open(folder / "source.tar.gz", "w:gz") as tar:
        for file in environment.sources():
            tar.add(ROOT / file, f"source/{file}")
    packed = ROOT / "dist" / f"{name}.tar"
    packed.parent.mkdir(exist_ok=True)
    with tarfile.open(packed, "w") as tar:
        tar.add(folder, name)
    return Kit(chosen, packed, projects | {"truefuse"})


def build_wheel(chosen: Environment, folder: Path) -> Path:
    """Builds the wheel exactly as `pip install --no-build-isolation` does."""
    say("building the wheel")
    variables = chosen.variables(environment.tools("wheel"))
    variables["PATH"] = f"{environment.cmake().parent}{os.pathsep}{variables['PATH']}"
    quietly(
        [chosen.python, "-m", "pip", "wheel", "--no-index", "--no-deps", "--no-build-isolation",
         "--wheel-dir", folder, ROOT],
        "pip wheel", variables,
    )  # fmt: skip
    (wheel,) = folder.glob("truefuse-*.whl")
    return wheel


def download(python: str, folder: Path, requirements: list[str]) -> set[str]:
    """Downloads wheels for them and for all that they need, compiled ones for every version in
    PYTHONS for which there is one. Returns the normalised names."""
    command = [python, "-m", "pip", "download", "--no-input", "--only-binary=:all:", "-d", folder]
    quietly([*command, *requirements], f"pip download {folder.name}")
    wheels = [path.stem.split("-") for path in folder.glob("*.whl")]
    machine = platform.machine()
    platforms = [f"--platform=manylinux_{glibc}_{machine}" for glibc in GLIBCS]
    for project, version, *_, python_tag, _abi, _platform in wheels:
        if not python_tag.startswith("cp"):
            continue
        for other in PYTHONS:
            target = ["--no-deps", f"--python-version={other}", "--implementation=cp", *platforms]
            try:
                quietly([*command, *target, f"{project}=={version}"], f"pip download {project}")
            except Failure:
                say(f"the kit has no {project} {version} for Python {other}")
    return {environment.project_name(project) for project, *_ in wheels}


def prove(kit: Kit) -> None:
    """Installs the kit with the network off, the wheel and then from source, in an environment that
    has torch; Failure if anything else than the kit's packages changes, or if it does not work."""
    with tarfile.open(kit.tar) as tar:
        place = BUILD / "kit" / "unpacked, ü"  # Not a convenient path, on purpose.
        tar.extractall(place)
    (folder,) = place.iterdir()
    for option in ([], ["--from-source"]):
        say(f"installing the kit with the network off {' '.join(option)}")
        venv = BUILD / "kit" / "venv"
        python = venv_with_torch_of(kit.chosen, venv)
        before = freeze(python)
        install = [*network_off(), "bash", folder / "install.sh", *option]
        quietly(
            install, f"kit install {' '.join(option)}", {**offline_variables(), "PYTHON": python}
        )
        after = freeze(python)
        changed = {
            name for name in before.keys() | after.keys() if before.get(name) != after.get(name)
        }
        if (
            "truefuse" not in changed
            or changed - kit.projects
            or not before.items() <= after.items()
        ):
            raise Failure(
                f"installing the kit changed {sorted(changed)}; it may only add {sorted(kit.projects)}"
            )
        for proof in (["-c", PROOF], ["-m", "truefuse", "--help"]):
            quietly([python, *proof], "kit proof", {**offline_variables(), "PYTHON": python})


def venv_with_torch_of(chosen: Environment, folder: Path) -> str:
    """A new environment that also sees the site-packages in which torch is."""
    shutil.rmtree(folder, ignore_errors=True)
    quietly([chosen.python, "-m", "venv", folder], "python -m venv")
    (site,) = folder.glob("lib/python3*/site-packages")
    (site / "torch.pth").write_text(str(Path(chosen.torch["dir"]).parent) + "\n", encoding="utf-8")
    return str(folder / "bin" / "python")


def freeze(python: str) -> dict[str, str]:
    environment.inventory.cache_clear()
    return environment.inventory(python)


def network_off() -> list[str]:
    """A prefix that runs a command without network, where the system lets us."""
    for prefix in (["unshare", "--net"], ["unshare", "--net", "--map-root-user"]):
        try:
            if subprocess.run([*prefix, "true"], capture_output=True).returncode == 0:
                return prefix
        except FileNotFoundError:
            break
    say("unshare does not work here: the network stays on, pip is told not to use it")
    return []


def offline_variables() -> dict[str, str]:
    """The environment without pip's configuration, which may point to wheels on this disk."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    kept.pop("PYTHONPATH", None)
    return {**kept, "PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
