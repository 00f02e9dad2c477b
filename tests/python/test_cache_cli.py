"""truefuse cache stats, verify, pack, unpack: from one process to another."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_native = pytest.importorskip(
    "truefuse._native", reason="the library is not built", exc_type=ImportError
)


def truefuse(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "truefuse", *arguments],
        capture_output=True, text=True, env={**os.environ, **environment},
    )  # fmt: skip


def flat(text: str) -> str:
    return " ".join(text.split())


def exported(printed: str) -> str:
    """What TRUEFUSE_BUNDLE is in a shell that is given the line that `pack` prints."""
    [line] = re.findall(r"^export TRUEFUSE_BUNDLE=.*$", printed, re.MULTILINE)
    shell = ["sh", "-c", f'{line}\nprintf %s "$TRUEFUSE_BUNDLE"']
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout


def test_a_bundle_serves_where_nothing_may_be_compiled(tmp_path):
    if refusal := _native.refusal("gfx906"):
        pytest.skip(refusal)
    bundle = tmp_path / "my kernels.tfb"
    packed = truefuse("cache", "pack", str(bundle), "--arch", "gfx906", "--operator", "bias_gelu")
    assert packed.returncode == 0, packed.stderr
    spec = exported(packed.stdout)
    assert re.fullmatch(rf"{re.escape(str(bundle))}#[0-9a-f]{{64}}", spec)

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

    # Room for one only: keeping a later kernel removes an earlier one.
    little = {"TRUEFUSE_CACHE_DIR": str(tmp_path / "little"), "TRUEFUSE_CACHE_LIMIT": "0.02"}
    unpacked = truefuse("cache", "unpack", spec, **little)
    kept = len(list((tmp_path / "little").glob("*.tfk")))
    assert 0 < kept < variants
    assert unpacked.returncode == 2
    assert f"only {kept} of {variants} kernels are in the cache" in flat(unpacked.stderr)

    # Unpacked kernels are entries as any other, and hide no mistake in what names a compiler.
    one = ("compile", "bias_gelu", "--arch", "gfx906")
    found = truefuse(*one, TRUEFUSE_NO_COMPILE="1", **elsewhere)
    assert found.returncode == 0 and "cache hit" in found.stderr, found.stderr
    script = """
from truefuse import _native
label = next(o for o in _native.operators() if o["name"] == "bias_gelu")["variants"][0]["label"]
print(_native.compile("bias_gelu", "gfx906", label))
"""
    none = {"TRUEFUSE_HIPRTC": "/nonexistent", "TRUEFUSE_HIPCC": "/nonexistent"}
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True,
        env={**os.environ, **elsewhere, **none},
    )  # fmt: skip
    assert "'ok': False" in run.stdout, run.stdout + run.stderr
    assert "TRUEFUSE_HIPRTC=/nonexistent is no file" in run.stdout

    costs = json.loads(truefuse("cache", "stats", "--json", **elsewhere).stdout)
    assert len(costs["compile_seconds"]) == len(costs["read_seconds"]) == variants
    assert min(costs["compile_seconds"]) > 0 and min(costs["read_seconds"]) > 0
    assert f"{variants} kernels" in truefuse("cache", "stats", **elsewhere).stdout

    damaged = sorted((tmp_path / "cache").glob("*.tfk"))[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    found = truefuse("cache", "verify", **elsewhere)
    assert found.returncode == 1 and damaged.name in found.stdout.replace("\n", "")
    assert truefuse("cache", "verify", "--repair", **elsewhere).returncode == 0
    assert not damaged.exists()


def test_flags_of_the_environment_are_not_packed(tmp_path):
    if refusal := _native.refusal("gfx906"):
        pytest.skip(refusal)
    flags = "HIPRTC_COMPILE_OPTIONS_APPEND HIPCC_COMPILE_FLAGS_APPEND".split()
    found = truefuse(
        "cache", "pack", str(tmp_path / "kernels.tfb"), "--arch", "gfx906", "--operator", "bias_gelu",
        TRUEFUSE_CACHE="off", **dict.fromkeys(flags, "-DTF_UNUSED=1"),
    )  # fmt: skip
    assert found.returncode == 2 and "_APPEND, which is set here: unset it" in flat(found.stderr)
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_packed_or_unpacked_is_said(tmp_path):
    bundle = str(tmp_path / "kernels.tfb")
    found = truefuse("cache", "pack", bundle, "--arch", "gfx906", "--operator", "nonsense")
    assert found.returncode == 2 and "unknown operator 'nonsense'" in found.stderr
    # Said before anything is compiled.
    found = truefuse("cache", "pack", str(tmp_path / "no" / "folder"), "--arch", "gfx906")
    assert found.returncode == 2 and "(No such file or directory)" in found.stderr
    cache = tmp_path / "cache"
    found = truefuse(
        "cache", "pack", str(tmp_path), "--arch", "gfx906", "--operator", "bias_gelu",
        TRUEFUSE_CACHE_DIR=str(cache),
    )  # fmt: skip
    assert found.returncode == 2 and "(Is a directory)" in found.stderr
    assert not list(cache.glob("*.tfk"))
    found = truefuse("cache", "unpack", bundle)
    assert found.returncode == 2 and "PATH#SHA256" in found.stderr
    found = truefuse("cache", "unpack", f"{bundle}#{'0' * 64}")
    assert found.returncode == 2 and "cannot be read" in found.stderr


def test_a_described_operator_is_packed_and_served_from_another_place(tmp_path):
    if refusal := _native.refusal("gfx906"):
        pytest.skip(refusal)
    bundle = tmp_path / "kernels.tfb"
    bundle.write_bytes(b"an older one")
    folder = Path(__file__).parents[2] / "examples" / "operators" / "swish"
    packed = truefuse("cache", "pack", str(bundle), "--arch", "gfx906", "--operator", str(folder))
    assert packed.returncode == 0, packed.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernels.tfb"]

    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere" / "swish")
    spec = exported(packed.stdout)
    environment = {"TRUEFUSE_CACHE_DIR": str(tmp_path / "cache"), "TRUEFUSE_LOG": "1"}
    arguments = ("compile", str(elsewhere), "--all", "--arch", "gfx906")
    found = truefuse(*arguments, TRUEFUSE_BUNDLE=spec, TRUEFUSE_NO_COMPILE="1", **environment)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "bundle hit (swish" in found.stderr and not list((tmp_path / "cache").glob("*.tfk"))


def test_a_process_counts_where_its_kernels_came_from(tmp_path):
    if refusal := _native.refusal("gfx906"):
        pytest.skip(refusal)
    script = """
import json, truefuse
from truefuse import _native
label = _native.operators()[0]["variants"][0]["label"]
for _ in range(3):
    assert _native.compile(_native.operators()[0]["name"], "gfx906", label)["ok"]
print(json.dumps(truefuse.cache_statistics()))
"""
    environment = {**os.environ, "TRUEFUSE_CACHE_DIR": str(tmp_path)}
    for compiled, disk in ((1, 2), (0, 3)):
        run = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, env=environment
        )
        assert run.returncode == 0, run.stderr
        found = json.loads(run.stdout)
        assert (found["compiled"]["count"], found["disk"]["count"]) == (compiled, disk)
        assert found["failed"]["count"] == found["loaded"]["count"] == found["bundle"]["count"] == 0
        assert found["warm"] == {"kernels": 0, "lookup_seconds": 0}
        assert found["disk"]["seconds"] >= found["disk"]["most_seconds"] > 0
