"""docs/author.md and docs/porting.md run as they stand, block by block; the translation has the same blocks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(name):
    return BLOCK.findall((DOCS / name).read_text(encoding="utf-8"))


def script(name):
    """A Python program that runs all blocks in order: shell blocks in a shell, line by line."""
    lines = ["import subprocess, sys"]
    for language, text in blocks(name):
        if language == "python":
            lines.append(text)
            continue
        prelude = f'set -e; truefuse() {{ "{sys.executable}" -m truefuse "$@"; }}\n'
        lines.append(f"subprocess.run(['bash', '-c', {prelude + text!r}], check=True)")
    return "\n".join(lines)


@pytest.mark.parametrize("name", ["author.md", "porting.md"])
def test_it_runs(name, tmp_path):
    if name == "porting.md" and " " in torch.__file__:
        pytest.skip(
            "torch.utils.cpp_extension cannot link to a PyTorch whose folder has a space in it"
        )
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    done = subprocess.run(
        [sys.executable, "-c", script(name)], cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={
            **os.environ, "TRUEFUSE_SOURCE": str(DOCS.parent),
            "TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions"),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_what_is_shown_is_what_the_examples_have():
    files = [path for path in (DOCS.parent / "examples" / "porting").rglob("*") if path.is_file()]
    texts = [path.read_text(encoding="utf-8") for path in files]
    guide = (DOCS / "porting.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```(?:cpp|text|py)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 6
    for block in shown:
        assert any(block in text for text in texts), block


def test_the_translation_has_the_same_blocks():
    assert len(blocks("author.md")) >= 10

    def without_comments(name):
        return [
            (language, re.sub(r"#.*", "", text).replace(" ", "")) for language, text in blocks(name)
        ]

    assert without_comments("author.zh-CN.md") == without_comments("author.md")
