"""Running a callable under PyTorch's profiler, and seeing which operator reads what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import DeviceType
from torch.multiprocessing.reductions import StorageWeakRef
from torch.profiler import ProfilerActivity, record_function
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from truefuse.profile_ops import Op, Profile, Value
from truefuse.profiling import record
from truefuse.stats import median

REPEATS = 3
MARK = "truefuse profile #"


class Recorder(TorchDispatchMode):
    """Names and data flow of every operator that is dispatched; each runs in a named range."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.on_gpu = False
        # By storage: who wrote it last. A new storage is the result of some operator.
        self._version: dict[int, object] = {}
        self._known: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        number = len(self.ops)
        before = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        with record_function(f"{MARK}{number}"):
            result = func(*args, **kwargs)
        after = [t for t in tree_leaves(result) if isinstance(t, Tensor)]
        if not after or _is_view(func, before, after):
            return result
        self.on_gpu |= any(t.is_cuda for t in after)
        reads = tuple(self._value(t) for t in before)
        for t in after:
            storage = self._storage(t)
            self._version[storage] = (number, storage)
        name = func.overloadpacket.__name__
        namespace = func.namespace
        self.ops.append(
            Op(
                name if namespace == "aten" else f"{namespace}::{name}",
                0.0,
                reads,
                tuple(self._value(t) for t in after),
            )
        )
        return result

    def _value(self, tensor: Tensor) -> Value:
        storage = self._storage(tensor)
        stored = tensor.untyped_storage().nbytes()
        size = min(tensor.numel() * tensor.element_size(), stored)
        return Value(self._version.get(storage, ("input", storage)), size)

    def _storage(self, tensor: Tensor) -> int:
        """Its identity: held weakly, it is not given to another one. Memory is, as soon as it is free."""
        held = StorageWeakRef(tensor.untyped_storage())
        return self._known.setdefault(held.cdata, held).cdata


def _is_view(func: Any, before: list[Tensor], after: list[Tensor]) -> bool:
    """Nothing was computed: every result is another look at an argument's memory."""
    if func._schema.is_mutable:
        return False
    known = {t.untyped_storage()._cdata for t in before}
    return all(t.untyped_storage()._cdata in known for t in after)


def run(call: Callable[[], Any]) -> Profile:
    """Profiles a call that has been made once before. Times are medians of a few calls, of the device
    where there is one, otherwise of the CPU."""
    call()
    found, samples = None, []
    for _ in range(REPEATS):
        recorder = Recorder()

        def once(recorder: Recorder = recorder) -> None:
            with recorder:
                call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()

        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        profiled = record(once, activities)
        samples.append(_seconds(profiled, recorder))
        if found is not None and [op.name for op in found.ops] != [op.name for op in recorder.ops]:
            samples = samples[-1:]  # another sequence: its own times alone
        found = recorder
    assert found is not None
    for number, op in enumerate(found.ops):
        op.seconds = median([sample[number] for sample in samples])
    device = "gpu" if found.on_gpu else "cpu"
    method = f"medians of {len(samples)} calls under PyTorch's profiler"
    return Profile(found.ops, device, "seen", method)


def _seconds(profiled: Any, recorder: Recorder) -> list[float]:
    """By op: device time of what it launched, or CPU time."""
    times = [0.0] * len(recorder.ops)
    for event in profiled.events():
        # A range has an event for the host and, on a GPU, one that spans its work there.
        if event.name.startswith(MARK) and event.device_type == DeviceType.CPU:
            number = int(event.name[len(MARK) :])
            if number < len(times):
                time = event.device_time_total if recorder.on_gpu else event.cpu_time_total
                # Views and what else is no op share the number of the op after them.
                times[number] = max(times[number], time * 1e-6)
    return times
