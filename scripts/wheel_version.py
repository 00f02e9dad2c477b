"""The version in the package's metadata: 0.1.0+torch2.13.cxx11abi1.

A built truefuse holds for one PyTorch minor version and one C++ ABI, so both stand in its version,
where `pip list` and the file name of the wheel show them. Without a torch (metadata made inside
pip's build isolation) the plain version is given; the build itself then says what to do.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch_facts

ROOT = Path(__file__).resolve().parent.parent


def base_version() -> str:
    """The project's version; it is written once, in CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    match = re.search(r"project\(\s*truefuse\s+VERSION\s+([0-9][0-9.]*)", text)
    if not match:
        raise RuntimeError("CMakeLists.txt has no `project(truefuse VERSION ...)`")
    return match.group(1)


def dynamic_metadata(field: str, settings: dict) -> str:
    """scikit-build-core's interface for a computed field of [project]."""
    if field != "version" or settings:
        raise ValueError("wheel_version provides `version` alone and takes no settings")
    try:
        facts = torch_facts.facts()
    except torch_facts.NoTorch:
        return base_version()
    return f"{base_version()}+torch{facts['minor']}.cxx11abi{facts['cxx11_abi']}"
