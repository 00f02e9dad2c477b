"""truefuse cache verify, pack, unpack: from one process to another."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

_native = pytest.importorskip(
    "truefuse._native", reason="the library is not built", exc_type=ImportError
)


def truefuse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "truefuse", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def test_a_bundle_serves_where_nothing_may_be_compiled(tmp_path):
    if refusal := _native.refusal("gfx906"):
        pytest.skip(refusal)
    bundle = tmp_path / "kernels.tfb"
    packed = truefuse("cache", "pack", str(bundle), "--arch", "gfx906", "--operator", "bias_gelu")
    assert packed.returncode == 0, packed.stderr
    [spec] = re.findall(r"export TRUEFUSE_BUNDLE=(\S+)", packed.stdout)
    assert spec.startswith(f"{bundle}#")

    # Another, empty cache, and a device that states features the bundle leaves open.
    elsewhere = {"TRUEFUSE_CACHE_DIR": str(tmp_path / "cache"), "TRUEFUSE_LOG": "1"}
    arguments = ("compile", "bias_gelu", "--arch", "gfx906:sramecc+:xnack-")
    found = truefuse(*arguments, TRUEFUSE_BUNDLE=spec, **elsewhere)
    assert found.returncode == 0, found.stderr
    assert "built for gfx906, which runs on gfx906:sramecc+:xnack-" in found.stderr
    assert not list((tmp_path / "cache").glob("*.tfk"))

    unpacked = truefuse("cache", "unpack", spec, **elsewhere)
    variants = len(next(o for o in _native.operators() if o["name"] == "bias_gelu")["variants"])
    assert unpacked.returncode == 0 and f"{variants} kernels in" in unpacked.stdout
    assert truefuse("cache", "verify", **elsewhere).returncode == 0

    damaged = sorted((tmp_path / "cache").glob("*.tfk"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    found = truefuse("cache", "verify", **elsewhere)
    assert found.returncode == 1 and damaged.name in found.stdout.replace("\n", "")
    assert truefuse("cache", "verify", "--repair", **elsewhere).returncode == 0
    assert not damaged.exists()


def test_what_cannot_be_packed_or_unpacked_is_said(tmp_path):
    bundle = str(tmp_path / "kernels.tfb")
    found = truefuse("cache", "pack", bundle, "--arch", "gfx906", "--operator", "nonsense")
    assert found.returncode == 2 and 'there is no operator "nonsense"' in found.stderr
    found = truefuse("cache", "unpack", bundle)
    assert found.returncode == 2 and "PATH#SHA256" in found.stderr
    found = truefuse("cache", "unpack", f"{bundle}#{'0' * 64}")
    assert found.returncode == 2 and "cannot be read" in found.stderr
