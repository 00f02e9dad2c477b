"""The cheats are candidates written in Python: an importable truefuse is all they need."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
