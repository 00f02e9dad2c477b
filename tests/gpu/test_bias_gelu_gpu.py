"""bias_gelu on a real device: values, layouts, sizes, streams, capture, threads, tracing."""

import math
import os
import subprocess
import sys
import threading

import pytest
import torch

import truefuse

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
FORMS = ["tanh", "none"]


def mathematics(v: torch.Tensor, approximate: str) -> torch.Tensor:
    """gelu(v) in fp64, the tail by forms that do not cancel."""
    if approximate == "tanh":
        u = math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)
        return torch.where(v > -1e30, v * torch.sigmoid(2 * u), torch.zeros_like(v))
    return torch.where(
        v > -1e30, 0.5 * v * torch.special.erfc(-v / math.sqrt(2)), torch.zeros_like(v)
    )


def assert_right(got: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, approximate: str) -> None:
    """Within a few roundings of the dtype, one of them in the sum, which the steep tail enlarges. The
    bounds per binade are the check's concern, not this file's."""
    assert got.shape == x.shape and got.dtype == x.dtype and got.is_contiguous()
    eps = torch.finfo(x.dtype).eps
    v = x.double() + bias.double()
    want = mathematics(v, approximate)
    rounding = 2 * torch.finfo(torch.float32 if x.dtype.itemsize == 2 else x.dtype).eps * v.abs()
    slope = (mathematics(v + rounding, approximate) - mathematics(v - rounding, approximate)).abs()
    # The tanh form in bfloat16 ends at 1.2e-37 instead of 1.2e-38; see gelu.h.
    last = 1.2e-37 if x.dtype == torch.bfloat16 else 2 * torch.finfo(x.dtype).tiny
    allowed = 4 * eps * want.abs() + 4 * slope + last
    excess = ((got.double() - want).abs() / allowed).max()
    assert excess <= 1, f"{excess:.3g} times the allowed error"


def inputs(dtype, *sizes, generator_seed=0, device="cuda"):
    generator = torch.Generator(device).manual_seed(generator_seed)
    x = torch.randn(*sizes, device=device, dtype=torch.float32, generator=generator) * 2
    bias = torch.randn(sizes[-1], device=device, dtype=torch.float32, generator=generator)
    return x.to(dtype), bias.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", FORMS)
@pytest.mark.parametrize(
    "sizes",
    [
        (1, 1),
        (1, 8),
        (7, 33),
        (16, 64),
        (257, 1023),
        (1024, 768),
        (3, 5, 7, 11),
        (13,),
        (4096, 1024),
    ],
)
def test_values(dtype, approximate, sizes):
    x, bias = inputs(dtype, *sizes)
    assert_right(truefuse.bias_gelu(x, bias, approximate=approximate), x, bias, approximate)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layouts(dtype):
    big, bias = inputs(dtype, 6, 10, 64)
    views = {
        "sliced rows": big[:, ::2],
        "x[:, 1:, :]": big[:, 1:, :],
        "transposed leading": big.transpose(0, 1),
        "narrow columns": big[..., 3:60],
        "unaligned": big.flatten()[1:641].view(10, 64),
        "expanded rows": big[:1, :1].expand(5, 4, 64),
        "five dims": big.view(2, 3, 5, 2, 64).permute(3, 1, 0, 2, 4),
    }
    for name, x in views.items():
        b = bias[: x.shape[-1]]
        for b_view in (b, torch.cat([b, b])[1::2][: x.shape[-1]], b[:1].expand(x.shape[-1])):
            if b_view.shape[0] != x.shape[-1]:
                continue
            try:
                assert_right(truefuse.bias_gelu(x, b_view, approximate="tanh"), x, b_view, "tanh")
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


@pytest.mark.parametrize("shape", [(65536, 1), (65536, 3), (4194304, 1), (1, 1 << 22)])
def test_grid_limits(shape):
    x, bias = inputs(torch.bfloat16, *shape)
    assert_right(truefuse.bias_gelu(x, bias, approximate="tanh"), x, bias, "tanh")


@pytest.mark.parametrize(
    "shape", [(262145, 8192 + 8), ((1 << 31) + 8, 1), (1, (1 << 31) + 8), (2098177, 1025)]
)
def test_more_than_two_to_the_31_elements(shape):
    x = torch.empty(shape, device="cuda", dtype=torch.bfloat16)
    x.view(-1)[: 1 << 20].normal_()
    filled = 1 << 20
    while filled < x.numel():
        step = min(filled, x.numel() - filled)
        x.view(-1)[filled : filled + step] = x.view(-1)[:step]
        filled += step
    bias = torch.randn(shape[-1], device="cuda").bfloat16()
    out = truefuse.bias_gelu(x, bias, approximate="tanh")
    rows, hidden = shape
    spots = [0, rows // 2, rows - 1]
    columns = slice(max(0, hidden - 4096), hidden)
    for row in spots:
        assert_right(out[row, columns].contiguous(), x[row, columns], bias[columns], "tanh")
    if rows > 1 << 20:
        tail = slice(rows - 4096, rows)
        assert_right(out[tail].contiguous(), x[tail], bias, "tanh")


def test_empty_launches_nothing():
    for shape in [(0, 8), (4, 0), (0,)]:
        x = torch.empty(shape, device="cuda")
        bias = torch.zeros(shape[-1], device="cuda")
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            out = truefuse.bias_gelu(x, bias, approximate="tanh")
            torch.cuda.synchronize()
        assert out.shape == x.shape
        assert not [e for e in profile.events() if "gelu" in e.name]


def test_refusals_name_the_argument():
    x, bias = inputs(torch.float32, 2, 8)
    for arguments, words in [
        ((x, bias.cpu()), ["bias", "cpu", "cuda:0"]),
        ((x.cpu(), bias), ["x", "cpu", "cuda:0"]),
        ((x, bias[:7]), ["bias", "7", "8"]),
        ((x.t().contiguous().t(), bias), ["x", "stride", "contiguous"]),
        ((x, bias.bfloat16()), ["bias", "bfloat16", "float32"]),
    ]:
        with pytest.raises(RuntimeError) as error:
            truefuse.bias_gelu(*arguments, approximate="tanh")
        assert all(word in str(error.value) for word in words), str(error.value)


def _slow(stream_work=200_000_000):
    torch.cuda._sleep(stream_work)


def test_side_stream_sees_its_late_producer():
    x, bias = inputs(torch.float32, 512, 512)
    truefuse.bias_gelu(x, bias, approximate="tanh")
    late = torch.full_like(x, float("nan"))
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        _slow()
        late.copy_(x)
        out = truefuse.bias_gelu(late, bias, approximate="tanh")
        result = out.clone()
    stream.synchronize()
    assert_right(result, x, bias, "tanh")


def test_current_stream_runs_while_the_default_stream_is_blocked():
    x, bias = inputs(torch.float32, 64, 64)
    truefuse.bias_gelu(x, bias, approximate="tanh")
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    _slow(2_000_000_000)
    done = torch.cuda.Event()
    with torch.cuda.stream(stream):
        truefuse.bias_gelu(x, bias, approximate="tanh")
        done.record()
    stream.synchronize()
    still_blocked = not torch.cuda.default_stream().query()
    torch.cuda.synchronize()
    assert still_blocked, "the operator waited for the default stream, or the block was too short"


def test_graph_replays_with_new_inputs():
    x, bias = inputs(torch.bfloat16, 128, 256)
    static_x = x.clone()
    truefuse.bias_gelu(static_x, bias, approximate="tanh")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = truefuse.bias_gelu(static_x, bias, approximate="tanh")
    for seed in range(3):
        fresh, _ = inputs(torch.bfloat16, 128, 256, generator_seed=seed + 10)
        static_x.copy_(fresh)
        graph.replay()
        assert_right(out, fresh, bias, "tanh")


FIRST_CALL = """
import torch, truefuse
x = torch.randn(64, 128, device="cuda"); bias = torch.randn(128, device="cuda")
{body}
torch.cuda.synchronize()
want = torch.nn.functional.gelu(x + bias, approximate="tanh")
assert torch.allclose(out, want, atol=1e-5), (out - want).abs().max()
"""

CAPTURE = """
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = truefuse.bias_gelu(x, bias, approximate="tanh")
out.fill_(7)
graph.replay()
"""

THREAD = """
import threading
results = []
thread = threading.Thread(target=lambda: results.append(truefuse.bias_gelu(x, bias, approximate="tanh")))
thread.start(); thread.join()
out = results[0]
"""


@pytest.mark.parametrize("body", [CAPTURE, THREAD], ids=["capture", "fresh thread"])
def test_first_call_of_a_process_with_an_empty_cache(body, tmp_path):
    environment = dict(os.environ, TRUEFUSE_CACHE_DIR=str(tmp_path / "cache"))
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL.format(body=body)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert list((tmp_path / "cache").glob("*.tfk")), "nothing was published to the cache"


def test_a_forbidden_compile_is_an_error_and_prepare_makes_it_unnecessary(tmp_path):
    code = FIRST_CALL.format(body='out = truefuse.bias_gelu(x, bias, approximate="tanh")')
    environment = dict(
        os.environ, TRUEFUSE_CACHE_DIR=str(tmp_path / "cache"), TRUEFUSE_NO_COMPILE="1"
    )
    refused = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert refused.returncode != 0 and "TRUEFUSE_NO_COMPILE" in refused.stderr
    prepared = subprocess.run(
        [sys.executable, "-c", 'import truefuse; truefuse.prepare("bias_gelu")'],
        env=environment | {"TRUEFUSE_NO_COMPILE": "0"}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert prepared.returncode == 0, prepared.stderr
    allowed = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert allowed.returncode == 0, allowed.stderr


def test_threads_on_their_own_streams():
    _, bias = inputs(torch.float32, 256, 256)
    failures = []

    def work(seed):
        try:
            mine, _ = inputs(torch.float32, 256, 256, generator_seed=seed)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                stream.wait_stream(torch.cuda.default_stream())
                for _ in range(50):
                    out = truefuse.bias_gelu(mine, bias, approximate="none")
            stream.synchronize()
            assert_right(out, mine, bias, "none")
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


def test_compile_makes_one_graph_for_five_row_counts():
    graphs = []

    def backend(module, example_inputs):
        graphs.append(module)
        return module.forward

    @torch.compile(dynamic=True, fullgraph=True, backend=backend)
    def model(x, bias):
        return truefuse.bias_gelu(x, bias, approximate="tanh") * 2

    for rows in (3, 17, 64, 100, 1000):
        x, bias = inputs(torch.float32, rows, 96)
        torch.testing.assert_close(
            model(x, bias), truefuse.bias_gelu(x, bias, approximate="tanh") * 2
        )
    assert len(graphs) == 1


def test_inductor_agrees_with_eager():
    model = torch.compile(
        lambda x, bias: truefuse.bias_gelu(x * 2, bias, approximate="tanh") + 1, fullgraph=True
    )
    x, bias = inputs(torch.float32, 64, 96)
    torch.testing.assert_close(
        model(x, bias), truefuse.bias_gelu(x * 2, bias, approximate="tanh") + 1
    )


def test_opcheck():
    x, bias = inputs(torch.float32, 5, 33)
    torch.library.opcheck(torch.ops.truefuse.bias_gelu.default, (x, bias), {"approximate": "tanh"})


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU in this machine")
def test_second_gpu():
    x, bias = inputs(torch.float32, 33, 65, device="cuda:1")
    assert torch.cuda.current_device() == 0
    out = truefuse.bias_gelu(x, bias, approximate="tanh")
    assert out.device.index == 1 and torch.cuda.current_device() == 0
    assert_right(out, x, bias, "tanh")


def test_random_shapes_and_strides_share_few_kernels(tmp_path):
    code = """
import random, torch, truefuse
random.seed(3)
for _ in range(1000):
    rows, hidden, pad, shift = random.randint(1, 40), random.randint(1, 300), random.choice([0, 0, 1, 8]), random.choice([0, 0, 1])
    base = torch.randn((rows + 1) * 3 * (hidden + pad) + 8, device="cuda")
    x = base[shift:].as_strided((3, rows, hidden), (random.choice([rows, rows + 1]) * (hidden + pad), hidden + pad, 1))
    bias = torch.randn(hidden * 2, device="cuda")[:: random.choice([1, 2])][:hidden]
    got = truefuse.bias_gelu(x, bias, approximate="tanh")
    want = torch.nn.functional.gelu(x.double() + bias.double(), approximate="tanh").float()
    torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-6)
"""
    cache = tmp_path / "cache"
    done = subprocess.run(
        [sys.executable, "-c", code], env=dict(os.environ, TRUEFUSE_CACHE_DIR=str(cache)),
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert 1 <= len(list(cache.glob("*.tfk"))) <= 6
