"""What a kernel costs cold, from disk and warm, and what sixteen processes wait that want the same one.

    python bench/cache.py [--operator bias_gelu] [--arch gfx906] [--processes 16]

Cold and disk are whole look-ups of each variant in a cache of their own, without loading it into a
driver. The processes start together, at a barrier, with an empty cache. The mark: one of them compiles,
and none has its kernel later than 1.2 times one compile plus a second. Warm is how long a call takes to
find a loaded kernel, so it needs a GPU.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import time
from typing import Any

import torch

import truefuse
from truefuse import _native


def look_up(operator: str, arch: str, label: str) -> dict[str, Any]:
    answer = _native.compile(operator, arch, label)
    if not answer["ok"]:
        raise SystemExit(answer["error"])
    return answer


def of_spread(seconds: list[float]) -> str:
    return (
        f"{1e3 * statistics.median(seconds):9.3f} ms  ({1e3 * min(seconds):.3f} … "
        f"{1e3 * max(seconds):.3f}, {len(seconds)} kernels)"
    )


def in_a_process(operator: str, arch: str, label: str, barrier: Any, answers: Any) -> None:
    barrier.wait()
    begin = time.perf_counter()
    answer = look_up(operator, arch, label)
    answers.put((time.perf_counter() - begin, answer["source"], answer["compile_seconds"]))


def together(operator: str, arch: str, label: str, count: int) -> list[tuple[float, str, float]]:
    context = multiprocessing.get_context("fork")  # Before anything is compiled here.
    barrier, answers = context.Barrier(count), context.Queue()
    arguments = (operator, arch, label, barrier, answers)
    processes = [context.Process(target=in_a_process, args=arguments) for _ in range(count)]
    for process in processes:
        process.start()
    found = [answers.get(timeout=600) for _ in processes]
    for process in processes:
        process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operator", default="bias_gelu")
    parser.add_argument("--arch", default="gfx906")
    parser.add_argument("--processes", type=int, default=16)
    given = parser.parse_args()
    description = next(o for o in _native.operators() if o["name"] == given.operator)
    labels = [v["label"] for v in description["variants"] if not v["only_for"]]

    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRUEFUSE_CACHE_DIR"] = folder + "/together"
        found = together(given.operator, given.arch, labels[0], given.processes)
        [alone] = [seconds for seconds, source, _ in found if source == "compiled"]
        latest = max(seconds for seconds, _, _ in found)
        kept = latest <= 1.2 * alone + 1
        print(
            f"{given.processes} processes: 1 compiled in {alone:.3f} s, the last had it after "
            f"{latest:.3f} s; the mark, {1.2 * alone + 1:.3f} s, is {'kept' if kept else 'MISSED'}"
        )

        os.environ["TRUEFUSE_CACHE_DIR"] = folder + "/alone"
        cold = [look_up(given.operator, given.arch, label)["seconds"] for label in labels]
        disk = [look_up(given.operator, given.arch, label)["seconds"] for label in labels]
        print(f"cold {of_spread(cold)}")
        print(f"disk {of_spread(disk)}")

    if not torch.cuda.is_available():
        print("warm: not measured, there is no GPU")
        return
    truefuse.prepare(given.operator)
    warm = truefuse.cache_statistics()["warm"]
    print(f"warm {1e9 * warm['lookup_seconds']:9.1f} ns  ({warm['kernels']} kernels loaded)")


if __name__ == "__main__":
    main()
