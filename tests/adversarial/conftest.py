"""The cheats are candidates written in Python: an importable truefuse is all they need."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))


def pytest_addoption(parser):
    parser.addoption(
        "--repeat",
        type=int,
        default=1,
        metavar="N",
        help="each cheat and each honest twin N times, made anew: whether a verdict stays the same",
    )


def pytest_generate_tests(metafunc):
    # Not there where pytest was started for a folder above this one.
    times = metafunc.config.getoption("repeat", 1)
    if times > 1 and "row" in metafunc.fixturenames:
        metafunc.fixturenames.append("time")
        names = [f"time{number}" for number in range(1, times + 1)]
        metafunc.parametrize("time", names, ids=names)
