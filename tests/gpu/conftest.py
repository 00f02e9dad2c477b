"""Tests that need a GPU; `make gpu` runs them. On a machine without one they fail, they do not skip."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def gpu() -> torch.device:
    if not torch.cuda.is_available():
        pytest.exit(
            "tests/gpu needs a CUDA, ROCm or DCU device and PyTorch sees none", returncode=2
        )
    return torch.device("cuda", 0)
