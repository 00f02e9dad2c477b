"""What tests of operators share."""

import pytest
import torch


@pytest.fixture(scope="session")
def inductor() -> None:
    """torch.compile's code generator works here: it needs a C++ compiler, and a PyTorch in whose path there
    is no space."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(64))
    except Exception as error:
        pytest.skip(f"torch.compile cannot compile x.sin() + 1 here: {type(error).__name__}")
