"""Operators on the simulated device: the same calls, the same gates, the kernel's own faults."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("truefuse._native", reason="the library is not built", exc_type=ImportError)

from typer.testing import CliRunner

from truefuse import case as cases
from truefuse import lanes, simulate, simulate_check, simulate_dialect, simulate_orders
from truefuse.cli import app

BIAS_GELU = torch.ops.truefuse.bias_gelu
KERNEL = """#include "truefuse/device.h"
TF_KERNEL(64) void scale(const float* x, float* y, float factor, int count) {
  const int i = tf::block_x() * 64 + tf::thread_x();
  if (i LESS count) y[i] = factor * x[i];
}
"""
CUDA = """#include <cuda_runtime.h>
template <class T> __device__ T twice(T x) { return x + x; }
/* A __shared__ word; in a comment. */
extern "C" __global__ void __launch_bounds__(64) sums(const float* __restrict__ x, float* y) {
  __shared__ float tile[2][33];
  extern __shared__ float s[];
  const int t = threadIdx.x;
  s[t] = twice(x[blockIdx.x * 64 + t]);
  SYNC
  float v = s[63 - t];
  for (int m = 16; m > 0; m /= 2) v += __shfl_xor_sync(0xffffffff, v, m, 32);
  if (t % 32 == 0) tile[t / 32][32] = v;
  __syncthreads();
  if (t == 0) y[blockIdx.x] = tile[0][32] + tile[1][32];
}
"""


def run_scale(source: str, count: int, **device):
    x, y = torch.arange(100.0), torch.zeros(100)
    arguments = [
        simulate.argument(x), simulate.argument(y, written=True),
        simulate.argument(3.0, dtype="float32"), simulate.argument(count, dtype="int32"),
    ]  # fmt: skip
    found = simulate.run_kernel(
        "scale.hip", source, "scale", (2, 1, 1), (64, 1, 1), arguments, simulate.Device(**device)
    )
    return found["fault"], y


@pytest.mark.parametrize("arch", simulate.ARCHS)
def test_a_kernel_runs_and_its_faults_have_lines(arch):
    fault, y = run_scale(KERNEL.replace("LESS", "<"), 100, arch=arch)
    assert fault is None and torch.equal(y, 3 * torch.arange(100.0))
    fault, y = run_scale(KERNEL.replace("LESS", "<="), 100, arch=arch)
    assert fault["kind"] == "global_read_out_of_bounds" and (fault["file"], fault["line"]) == (
        "scale.hip", 4,
    )  # fmt: skip
    assert not y.any(), "a launch with a fault writes nothing"


def test_calls_go_to_the_simulated_device_only_inside():
    x, bias = torch.randn(3, 40), torch.randn(40)
    want = torch.nn.functional.gelu(x + bias, approximate="tanh")
    with simulate.Simulated(simulate.Device(trace=True, sanitizers=("none",))) as simulated:
        got = BIAS_GELU(x, bias, approximate="tanh")
    torch.testing.assert_close(got, want)
    assert len(simulated.calls) == 1
    BIAS_GELU(x, bias, approximate="tanh")
    assert len(simulated.calls) == 1


def test_refusals_are_those_of_the_operator():
    x = torch.randn(3, 40)
    with pytest.raises(RuntimeError, match="bias has 39 elements") as outside:
        BIAS_GELU(x, torch.randn(39), approximate="tanh")
    with (
        simulate.Simulated(simulate.Device()),
        pytest.raises(RuntimeError, match="bias has 39 elements") as inside,
    ):
        BIAS_GELU(x, torch.randn(39), approximate="tanh")
    assert str(inside.value) == str(outside.value).splitlines()[0]


def test_the_orders_gate_knows_a_race_from_none():
    for arch in simulate.ARCHS:
        assert simulate_orders.self_test(arch) == []


def test_a_candidate_that_is_wrong_on_the_device_alone_is_rejected():
    case = cases.load("bias_gelu")
    contract = {"arguments": []}

    def last_row_twice(x, bias, **mode):
        result = BIAS_GELU(x, bias, **mode)
        result[-1] = BIAS_GELU(x, bias, **mode)[0]
        return result

    context = simulate_check.context(case, "sim:wave64", 1, "mine", contract)
    context.case = simulate_check.replace(
        context.case,
        dtypes=(torch.float32,),
        edge_sizes=((2, 3),),
        candidate=simulate_check.on_device(last_row_twice, context.simulated),
        operator=None,
    )
    found = simulate_check.run(context, only=["edges"])
    assert found.verdict.value == "REJECT" and found.performance is None


def test_lanes_names_the_elements_and_the_bytes_of_each_access():
    case = cases.load("bias_gelu")
    mode = {"approximate": "tanh"}
    [(call, groups)] = lanes.trace(case, (2, 512), torch.bfloat16, mode, "sim:wave64")
    by_tensor = {(g.tensor, g.writes): g for g in groups}
    assert set(by_tensor) == {("x", False), ("bias", False), ("out", True)}
    x = call["tensors"]["x"]
    group = by_tensor["x", False]
    assert group.bytes == 16 and group.line > 0
    covered = sorted((a.address - x.data_ptr()) // 2 for a in group.accesses)
    assert covered == list(range(0, 1024, 8)), "each element is read once, eight at a time"
    text = "\n".join(lanes.lines_of(call, groups, 64))
    assert "lanes 0…63: x[0, 0…7] in the first, x[0, 504…511] in the last, 16 bytes apart" in text


def test_lanes_names_elements_in_the_layout_of_the_call():
    case = cases.load("gdn_decode")
    texts = []
    for mode in case.modes[:2]:  # Interleaved by key head, then flat.
        [(call, groups)] = lanes.trace(case, (1, 2, 2, 16, 16), torch.float32, mode, "sim:wave64")
        read = [group for group in groups if group.tensor == "qkvz" and not group.writes]
        seen = set()
        for access in (access for group in read for access in group.accesses):
            offset = (access.address - call["tensors"]["qkvz"].data_ptr()) // 4
            seen.add(call["layouts"]["qkvz"].element_at(offset).segment)
        assert seen <= set("qkvz") and "q" in seen
        texts.append("\n".join(lanes.lines_of(call, groups, 64)))
    # Head 1's query is behind the whole head 0 in the one row, and behind its query in the other.
    assert all("qkvz[0, q H=0 K=0" in text for text in texts)
    interleaved, flat = (call_layout(case, mode) for mode in case.modes[:2])
    assert lanes.stretch(interleaved, 96, 99) == lanes.stretch(flat, 16, 19) == "q H=1 K=0…3"
    assert lanes.stretch(flat, 31, 32) == "q H=1 K=15 … k H=0 K=0"
    assert lanes.stretch(flat, 64, 64) == "v H=0 G=0 V=0"


def call_layout(case, mode):
    sizes = {"num_k_heads": 2, "num_v_heads": 4, "head_k_dim": 16, "head_v_dim": 16}
    return case.layouts_of(sizes, mode)["qkvz"]


def test_an_element_is_found_through_any_strides():
    whole = torch.zeros(4, 6, 8)
    view = whole.transpose(0, 1)[1:, ::2, 2:]
    for index in ((0, 0, 0), (4, 1, 5), (2, 0, 3)):
        assert lanes.index_of(view, view[index].data_ptr()) == index
    # One element in front of a row, and the column that the slice leaves out.
    assert lanes.index_of(view, whole[1, 1, 2].data_ptr()) is None


def test_a_cuda_file_runs_under_every_check(tmp_path):
    arguments = ["--grid", "2", "--block", "64", "--shared", "256"]
    arguments += ["--arg", "f32[128]", "--arg", "out:f32[2]", "--device", "sim:wave64"]
    file = tmp_path / "sums.cu"
    file.write_text(CUDA.replace("SYNC", "__syncthreads();"))
    found = CliRunner().invoke(app, ["sim", str(file), *arguments])
    assert found.exit_code == 0 and "sums: nothing found in 8 runs" in found.output
    file.write_text(CUDA.replace("SYNC", ""))
    found = CliRunner().invoke(app, ["sim", str(file), *arguments])
    assert found.exit_code == 1 and "sums.cu:10: race" in found.output.replace("\n", " ")


def test_a_cuda_file_computes_what_it_says(tmp_path):
    x, y = torch.arange(128.0), torch.zeros(2)
    source = simulate_dialect.translate("sums.cu", CUDA.replace("SYNC", "__syncthreads();"))
    arguments = [simulate.argument(x), simulate.argument(y, written=True)]
    found = simulate.run_kernel(
        "sums.cu", source, "sums", (2, 1, 1), (64, 1, 1), arguments, simulate.Device(), 256
    )
    assert found["fault"] is None and torch.equal(y, 2 * x.view(2, 64).sum(1))


SAMPLE = """// As samples are often written: a blank line, then

#include <hip/hip_runtime.h>
#include <stdint.h>
#define BLOCK 64

__constant__ float weights[2] = {2.0f, 3.0f};
extern __shared__ float staged[];
__device__ unsigned int ticket = 0;

static __device__ __forceinline__ float into(volatile float* s, int i) {
  return s[i] + s[i ^ 1];
}
__launch_bounds__(BLOCK, 2) static __global__ void
    sample(const uchar4* __restrict__ x,
           float* y, uint32_t* turns) {
  __shared__ float by_two[BLOCK],
      sums[2];
  const int t = hipThreadIdx_x;
  const uchar4 c = x[t];
  staged[t] = weights[0] * c.x + weights[1] * c.w;
  SYNC
  by_two[t] = into(staged, t);
  if (t % 32 == 0) sums[t / 32] = make_float3(1, 2, 3).z;
  __syncthreads();
  y[t] = by_two[BLOCK - 1 - t] + sums[1];
  if (t < 5) turns[atomicInc(&ticket, 9u)] = 1u;
}
"""
SAMPLE_ARGUMENTS = ["--arg", "u8[64x4]", "--arg", "out:f32[64]", "--arg", "out:i32[64]"]


def test_a_sample_as_others_write_it_computes_what_it_says():
    x = torch.arange(256, dtype=torch.uint8).view(64, 4)
    y, turns = torch.zeros(64), torch.zeros(64, dtype=torch.int32)
    source = simulate_dialect.translate("s.hip", SAMPLE.replace("SYNC", "__syncthreads();"))
    arguments = [simulate.argument(v, written=v is not x) for v in (x, y, turns)]
    shape = (1, 1, 1), (64, 1, 1)
    device = simulate.Device("sim:wave64", ("race",), "interleaved")
    found = simulate.run_kernel("s.hip", source, "sample", *shape, arguments, device, 256)
    assert found["fault"] is None
    staged = 2.0 * x[:, 0] + 3.0 * x[:, 3]
    pairs = staged.view(32, 2).sum(1).repeat_interleave(2)
    assert torch.equal(y, pairs.flip(0) + 3)
    assert turns.tolist() == [1] * 5 + [0] * 59


def sim(tmp_path, text, *arguments):
    file = tmp_path / "mine.cu"
    file.write_text(text)
    found = CliRunner().invoke(app, ["sim", str(file), "--device", "sim:wave64", *arguments])
    return found.exit_code, " ".join(found.output.split())


def test_faults_in_inlined_functions_have_the_files_own_lines(tmp_path):
    launch = ("--block", "64", "--shared", "256")
    code, said = sim(tmp_path, SAMPLE.replace("SYNC", ""), *launch, *SAMPLE_ARGUMENTS)
    assert code == 1 and "mine.cu:12: race" in said and "the other place is mine.cu:21" in said
    # Each kind of fault once a line, and in how many of the runs it was.
    assert said.count("mine.cu:12: race") == said.count("mine.cu:12: shared_read") - 1 == 1
    assert "mine.cu:12: shared_read_uninitialised: in 3 runs" in said
    code, said = sim(tmp_path, SAMPLE.replace("SYNC", "nothing();"), *launch, *SAMPLE_ARGUMENTS)
    assert code == 2 and "mine.cu:22: error: 'nothing'" in said and "> 22 | nothing();" in said


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (["--block", "65", *SAMPLE_ARGUMENTS], "at most 64 threads per block; the launch has 65"),
        (["--shared", "65500", *SAMPLE_ARGUMENTS], "64 lanes 65536 are the most"),
        (
            ["--arg", "u8[64x4]", "--arg", "f64[64]"],
            "`float* y`: write f32 for it, not --arg 'f64[64]'",
        ),
        (["--arg", "u8[64x4]", "--arg", "f32=1"], "`float* y`, a pointer; --arg 'f32=1' is none"),
    ],
)
def test_launches_that_no_device_takes_and_values_of_another_type(tmp_path, launch, words):
    text = SAMPLE.replace("SYNC", "__syncthreads();")
    code, said = sim(tmp_path, text, *launch)
    assert code == 2 and words in said


def test_a_sum_that_depends_on_the_order_is_said_with_how_far(tmp_path):
    text = """__global__ void sum(const float* x, float* y) { atomicAdd(y, x[threadIdx.x]); }"""
    code, said = sim(tmp_path, text, "--arg", "f32[64]", "--arg", "out:f32[1]")
    assert code == 1 and "argument 2 depends on the order of lanes and blocks: 1 of 1" in said
    code, said = sim(
        tmp_path, text.replace("float", "int"), "--arg", "i32[64]", "--arg", "out:i32[1]"
    )
    assert code == 0


def test_a_kernel_that_does_not_end_is_run_once(tmp_path, monkeypatch):
    fault = {"kind": "time_limit", "text": "stopped"}
    runs = []
    monkeypatch.setattr(simulate, "run_kernel", lambda *_: runs.append(1) or {"fault": fault})
    code, said = sim(tmp_path, "__global__ void k(float* y) {}", "--arg", "out:f32[1]")
    assert code == 1 and "stopped" in said and "left out" in said and len(runs) == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("__constant__ float c[4];", "give it values where it is declared"),
        ("__shared__ struct { int i; } s;", "a type that has a name"),
        ("template <int N> __launch_bounds__(64) __global__ void k();", "no kernel templates"),
        ("__global__ [[noreturn]] void k();", "without further attributes"),
        ("k<<<1, 2>>>(x);", "no launches"),
        ("template <int N> __global__ void k();", "no kernel templates"),
        ('printf("x");', "no printf"),
        ('asm volatile("");', "no inline assembly"),
        ("__half h;", "tf::f16"),
        ("cudaMalloc(&p, 4);", "no host code"),
        ("#include <cub/cub.cuh>", "header 'cub/cub.cuh'"),
    ],
)
def test_what_is_not_supported_is_said_in_a_sentence(line, words):
    with pytest.raises(simulate_dialect.NotSupported, match=words):
        simulate_dialect.translate("k.cu", "// fine\n" + line + "\n")
    simulate_dialect.translate("k.cu", f"// {line}\n")  # In a comment it is nothing.


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["lanes", "bias_gelu", "--device", "sim:wave16"], "sim:wave32, sim:wave64"),
        (["lanes", "bias_gelu", "--size", "4,5"], "4x512"),
        (["lanes", "nonsense"], "unknown operator"),
        (["sim", "nowhere.cu"], "nowhere.cu"),
        (["check", "bias_gelu", "--device", "sim:wave7"], "sim:wave32, sim:wave64"),
        (["check", "bias_gelu", "--device", "sim:wave64", "--gate", "x"], "orders"),
    ],
)
def test_usage_errors_name_the_choices(arguments, words):
    found = CliRunner().invoke(app, arguments)
    assert found.exit_code == 2 and words in " ".join(found.output.split())
