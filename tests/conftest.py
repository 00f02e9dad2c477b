import pytest
import torch


@pytest.fixture(autouse=True)
def subnormal_numbers():
    """Kept for the next test: PyTorch 2.5, with a GCC before 13, makes a thread flush them once it has loaded
    a kernel that torch.compile made for the CPU."""
    yield
    torch.set_flush_denormal(False)
