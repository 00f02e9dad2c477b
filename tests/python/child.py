"""The worker, with the package taken from the source tree where no library is built."""

import sys

import conftest  # noqa: F401  (makes truefuse importable)

from truefuse import debugging, worker

if __name__ == "__main__":
    if sys.argv[1] == "debugging":
        del sys.argv[1]
        debugging.main()
    else:
        worker.main()
