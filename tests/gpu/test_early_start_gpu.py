"""Launches that start while the one before them ends (Launch::starts_early) see all that came before, and
write over nothing that is still read."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import truefuse

ROUNDS = 40
SIZES = ((1, 64), (512, 1024), (8192, 4096))


def copied(x, source, pinned):
    x.copy_(source)


def from_the_host(x, source, pinned):
    x.copy_(pinned, non_blocking=True)


def cleared_and_added(x, source, pinned):
    x.zero_()  # not a kernel, on most versions
    x += source


def computed(x, source, pinned):
    torch.mul(source, 1.0, out=x)


def by_another_stream(x, source, pinned):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000)
        x.copy_(source)
    torch.cuda.current_stream().wait_stream(side)


PRODUCERS = (copied, from_the_host, cleared_and_added, computed, by_another_stream)


@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("producer", PRODUCERS, ids=lambda one: one.__name__)
def test_what_was_written_just_before_is_read(producer, shape) -> None:
    torch.manual_seed(0)
    sources = [torch.randn(shape, device="cuda") for _ in range(4)]
    pinned = [source.cpu().pin_memory() for source in sources]
    bias = torch.randn(shape[-1], device="cuda")
    expected = [
        (truefuse.swish(s), truefuse.bias_gelu(s, bias, approximate="tanh")) for s in sources
    ]
    torch.cuda.synchronize()
    x = torch.empty(shape, device="cuda")
    results = []
    for round in range(ROUNDS):
        for call in (truefuse.swish, lambda t: truefuse.bias_gelu(t, bias, approximate="tanh")):
            x.fill_(float("nan"))
            producer(x, sources[round % 4], pinned[round % 4])
            results.append(call(x).sum() if round % 2 else call(x))
    torch.cuda.synchronize()
    for number, got in enumerate(results):
        want = expected[number // 2 % 4][number % 2]
        assert torch.equal(got, want.sum() if number // 2 % 2 else want), number


@pytest.mark.parametrize("captured", [False, True], ids=["launched", "replayed"])
def test_a_chain_of_them_is_what_its_links_are(captured) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 512, device="cuda")
    bias = torch.randn(512, device="cuda")
    up = torch.randn(64, 512, device="cuda")

    def chain(pause) -> torch.Tensor:
        y = x
        for _ in range(100):
            y = truefuse.bias_gelu(y, bias, approximate="none")
            pause()
            y = truefuse.swiglu(y, up, gate_rounding="storage")
            pause()
            y = y / y.abs().amax()
            pause()
        return y

    want = chain(torch.cuda.synchronize)
    for _ in range(5):
        if captured:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                got = chain(lambda: None)
            for _ in range(3):
                graph.replay()
        else:
            got = chain(lambda: None)
        assert torch.equal(got, want)


def test_memory_that_is_still_read_is_not_written_over() -> None:
    torch.manual_seed(0)
    source = torch.randn(8192, 4096, device="cuda")
    small = torch.randn(8192, 4096, device="cuda")
    want = source * 2
    results = []
    for _ in range(ROUNDS):
        held = source.clone()
        address = held.data_ptr()
        results.append(torch.mul(held, 2))
        del held  # Its memory goes to whoever asks next on this stream.
        taken = truefuse.swish(small)
        assert taken.data_ptr() == address, "the allocator gave other memory: this tests nothing"
        del taken
        results = results[-2:]
        assert torch.equal(results[-1], want)


def test_training_steps_are_the_same_with_pauses_and_without() -> None:
    """The sum of bias_gelu's backward starts while the partial sums are still being written."""
    torch.manual_seed(0)
    x = torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16).requires_grad_()
    bias = torch.randn(1024, device="cuda", dtype=torch.bfloat16).requires_grad_()
    grads = [torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(4)]

    def step(grad):
        out = truefuse.bias_gelu(x, bias, approximate="tanh")
        return torch.autograd.grad(out, (x, bias), grad)

    want = []
    for grad in grads:
        want.append(step(grad))
        torch.cuda.synchronize()
    got = [step(grads[i % 4]) for i in range(ROUNDS)]
    for i, (one, other) in enumerate(zip(got, want * (ROUNDS // 4), strict=True)):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]), i


def test_silu_between_two_streams_that_wait_for_each_other() -> None:
    torch.manual_seed(0)
    x = torch.randn(2048, 2048, device="cuda")
    want = x
    for _ in range(8):
        want = F.silu(want) + 1
    side = torch.cuda.Stream()
    for _ in range(10):
        y = x.clone()
        for turn in range(8):
            stream = side if turn % 2 else torch.cuda.default_stream()
            stream.wait_stream(torch.cuda.default_stream() if turn % 2 else side)
            with torch.cuda.stream(stream):
                y.copy_(truefuse.swish(y) + 1)
        torch.cuda.default_stream().wait_stream(side)
        torch.testing.assert_close(y, want, rtol=1e-5, atol=1e-5)
