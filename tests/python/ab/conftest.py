import sys
from pathlib import Path

# The tests of this folder share toy.py and served.py.
sys.path.insert(0, str(Path(__file__).parent))
