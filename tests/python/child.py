"""The worker, with the package taken from the source tree where no library is built."""

import conftest  # noqa: F401  (makes truefuse importable)

from truefuse import worker

if __name__ == "__main__":
    worker.main()
