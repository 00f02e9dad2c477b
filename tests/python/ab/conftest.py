import sys
from pathlib import Path

import pytest
import torch

# The tests of this folder share toy.py, served.py and misread.py.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread():
    """Tensors here are small; a second thread only waits for a processor."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
