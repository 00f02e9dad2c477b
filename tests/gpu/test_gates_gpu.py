"""The gates that have a meaning on a GPU alone: a built-in operator passes each of them, and each proves
itself first. What they catch is in tests/adversarial, which runs on the GPU too."""

from dataclasses import replace

import pytest
import torch

from truefuse import bandwidth, case, gates, graphtime
from truefuse.context import Context
from truefuse.delay import Delay
from truefuse.rotation import Sets
from truefuse.verdict import Status
from truefuse.worker import contract_of


@pytest.fixture(scope="module")
def context():
    found = case.load("bias_gelu")
    return Context(found, torch.device("cuda", 0), 5, "bias_gelu", contract_of(found))


@pytest.mark.parametrize("gate", ["streams", "sync", "capture", "launches", "concurrent", "bounds"])
def test_gate_passes(context, gate):
    module = next(module for module in gates.GATES if module.NAME == gate)
    found = gates.run_one(module, context)
    assert found.status is Status.PASS, found


def test_one_kernel_a_call(context):
    module = next(module for module in gates.GATES if module.NAME == "launches")
    assert gates.run_one(module, context).numbers["candidate"] == 1


def test_delay_takes_the_time_that_was_asked_for():
    delay = Delay(torch.device("cuda", 0))
    stream = torch.cuda.Stream()
    delay.prepare(stream)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record(stream)
    event = delay.on(stream, 50.0)
    assert not event.query()
    end.record(stream)
    end.synchronize()
    assert begin.elapsed_time(end) >= 25.0


def test_graph_time_is_cold_and_warm(context):
    small = replace(context, case=replace(context.case, timing_sizes=((1024, 768),)))
    sets = Sets(small, (1024, 768))
    assert len(sets) * sets.bytes_moved >= 2 * bandwidth.GPU_CACHE or not sets.cold
    found = graphtime.measure(small, sets)
    assert found["cold"]["candidate_us"] > 0 and found["warm"]["candidate_us"] > 0


def test_bandwidth_is_plausible(context):
    assert 1e10 < bandwidth.measured(context) < 2e13
