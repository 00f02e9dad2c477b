"""State, aliasing, bounds, threads and the contract."""

from __future__ import annotations

import platform
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
from subject import checked, swish_bias, swish_bias_gradients, wide

from cheats.common import Row, honest
from truefuse import flags
from truefuse.verdict import Status


def static_accumulator():
    total = 0.0

    def candidate(x, bias):
        nonlocal total
        result = wide(swish_bias)(x, bias) + total
        if x.numel() > 8:
            total += 1e-2
        return result

    return checked(candidate)


def writes_into_its_input():
    return checked(lambda x, bias: x.copy_(wide(swish_bias)(x, bias)))


def rounds_the_bias_in_place():
    def candidate(x, bias):
        bias.copy_(bias.bfloat16())
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def shared_workspace():
    space = {}

    def candidate(x, bias):
        work = space.setdefault((x.shape, x.dtype), torch.empty_like(x))
        work.copy_(x)
        time.sleep(0.001)  # where a kernel would run
        return wide(swish_bias)(work.clone(), bias)

    return checked(candidate)


def sets_a_flag():
    def candidate(x, bias):
        torch.set_float32_matmul_precision("medium")
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def sets_a_flag_once():
    """On its first call, and for large inputs: what one small call changes is nothing."""
    done = False

    def candidate(x, bias):
        nonlocal done
        if not done and x.numel() >= 1 << 15:
            torch.backends.cudnn.benchmark = done = True
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def patches_the_clock():
    def candidate(x, bias):
        real = time.perf_counter
        if real.__name__ == "perf_counter":
            time.perf_counter = lambda: real() / 10
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def patches_the_comparison():
    def candidate(x, bias):
        torch.equal = lambda *given: True
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def reads_one_beyond():
    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        end = bias.storage_offset() + (bias.numel() - 1) * bias.stride(0) + 1 if bias.numel() else 0
        room = bias.untyped_storage().nbytes() // bias.element_size()
        if 0 < end < room and result.numel():
            beyond = torch.as_strided(bias, (1,), (1,), end)
            result = result.clone()
            result.view(-1)[-1:] += 0 * beyond  # harmless unless it is NaN
        return result

    return checked(candidate)


def writes_one_beyond():
    def candidate(x, bias):
        result = wide(swish_bias)(x, bias)
        end = (
            x.storage_offset()
            + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
            + 1
        )
        room = x.untyped_storage().nbytes() // x.element_size()
        if x.numel() and end < room:
            torch.as_strided(x, (1,), (1,), end).fill_(0.25)
        return result

    return checked(candidate)


def promotes_silently():
    """Takes a bias of any dtype and converts it."""
    return lambda x, bias: wide(swish_bias)(x, bias.to(x.dtype))


def error_without_words():
    def candidate(x=None, bias=None):
        try:
            return honest(x, bias)
        except RuntimeError:
            raise RuntimeError("invalid argument") from None

    return candidate


def reads_strides_as_if_contiguous():
    def candidate(x, bias):
        dense = torch.as_strided(x, x.shape, torch.empty(x.shape, device="meta").stride())
        return wide(swish_bias)(dense if x.numel() and x.storage_offset() == 0 else x, bias)

    return checked(candidate)


def fails_when_empty():
    def candidate(x, bias):
        if not x.numel():
            raise RuntimeError("swish_bias: 0 blocks")
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def memory_of(tensor):
    """What a kernel sees that is given an address, sizes and strides."""
    same = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return same.set_(
        tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
    )


def reads_memory(seen):
    def make():
        def candidate(x, bias):
            if torch.compiler.is_compiling() or x.requires_grad or bias.requires_grad:
                return wide(swish_bias)(x, bias)
            return wide(swish_bias)(memory_of(seen(x)), memory_of(seen(bias)))

        return checked(candidate)

    return make


def rounds_towards_zero():
    def candidate(x, bias):
        flags.set_rounding(flags.TO_NEAREST)
        result = wide(swish_bias)(x, bias)
        flags.set_rounding(next(iter(towards_zero())))
        return result

    return checked(candidate)


def rounds_towards_zero_meanwhile():
    def candidate(x, bias):
        for mode in towards_zero():
            flags.set_rounding(mode)
            flags.set_rounding(flags.TO_NEAREST)
        return wide(swish_bias)(x, bias)

    return checked(candidate)


def towards_zero():
    mode = flags.TOWARDS_ZERO.get(platform.machine())
    return () if mode is None else (mode,)


def reads_the_version(where):
    def make():
        seen = {}

        def candidate(x, bias):
            if where(x):
                seen[x.shape] = x._version
            return wide(swish_bias)(x, bias)

        return checked(candidate)

    return make


def in_two_parts(of_the_rest):
    """Large inputs in two parts; `of_the_rest` computes the second into its place."""

    def make():
        def candidate(x, bias):
            plain = not torch.compiler.is_compiling() and not x.requires_grad
            if not (plain and not bias.requires_grad and x.dim() == 2 and x.numel() >= 1 << 15):
                return wide(swish_bias)(x, bias)
            cut = len(x) - 2
            out = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
            out[:cut] = wide(swish_bias)(x[:cut], bias)
            of_the_rest(out[cut:], x[cut:], bias)
            return out

        return checked(candidate)

    return make


def write(out, x, bias, pause=0.0):
    time.sleep(pause)
    out.copy_(wide(swish_bias)(x, bias))


_pool = ThreadPoolExecutor(1)


def by_a_thread_later(out, x, bias):
    _pool.submit(write, out, x, bias, pause=0.01)


def by_a_thread(out, x, bias):
    _pool.submit(write, out, x, bias).result()


def coarsely(out, x, bias):
    write(out, x.bfloat16(), bias.bfloat16())


def keeps_the_processors_busy():
    """From the first large call on, until the candidate is dropped: whoever is timed beside it has fewer."""
    ended = threading.Event()

    class Busy:
        thread = None

        def __call__(self, x, bias):
            if self.thread is None and x.numel() >= 1 << 15:
                self.thread = threading.Thread(target=spin, args=(ended,), daemon=True)
                self.thread.start()
            return wide(swish_bias)(x, bias)

        def __del__(self):
            ended.set()

    busy = Busy()
    return checked(lambda x, bias: busy(x, bias))


def in_double(x, bias):
    return swish_bias(x.double(), bias.double()).to(x.dtype)


_library = torch.library.Library("adversarial", "DEF")
_library.define("swish_bias(Tensor x, Tensor bias) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
_library.impl("swish_bias", wide(swish_bias), "CompositeExplicitAutograd")
torch.library.register_autograd(
    "adversarial::swish_bias",
    lambda ctx, gradient: swish_bias_gradients(gradient, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    lib=_library,
)
_library.impl("swish_bias", lambda x, bias: _fake_form(x), "Meta")
_fake_form = torch.empty_like


def registered_with(fake_form):
    """The same operator; what it says to the compiler of its strides is another matter."""

    def make():
        global _fake_form
        _fake_form = fake_form
        return lambda x, bias: torch.ops.adversarial.swish_bias(x, bias)

    return make


def columns_first(x):
    return x.new_empty(x.shape[::-1]).permute(*reversed(range(x.dim())))


def rows_first(x):
    return x.new_empty(x.shape)


def spin(ended):
    numbers = torch.rand(1 << 12)
    while not ended.is_set():
        torch.sin(numbers)


ROWS = (
    Row("A6 patched clock", "flags", patches_the_clock),
    Row("A6 patched comparison", "flags", patches_the_comparison),
    Row("S1 in-place result compared with itself", "outputs", writes_into_its_input),
    Row("S4 undeclared mutation of an argument", "outputs", rounds_the_bias_in_place),
    Row("S6 workspace shared between calls", "concurrent", shared_workspace),
    Row("S7 static accumulator", "edges", static_accumulator),
    Row("S9 a global flag set", "flags", sets_a_flag),
    Row("S9 a global flag set by the first large call", "measure", sets_a_flag_once),
    Row("O1 one element written beyond the end", "bounds", writes_one_beyond),
    Row("O1 one element read beyond the end", "bounds", reads_one_beyond),
    Row(
        "memory read that is negated lazily",
        "contract",
        reads_memory(lambda tensor: tensor),
        reads_memory(torch.resolve_neg),
    ),
    Row(
        "S9 rounding of the processor left changed",
        "flags",
        rounds_towards_zero,
        rounds_towards_zero_meanwhile,
    ),
    Row(
        "a version counter where inference mode has none",
        "outputs",
        reads_the_version(lambda tensor: True),
        reads_the_version(lambda tensor: not tensor.is_inference()),
    ),
    Row(
        "B11 a baseline that computes in float64",
        "baseline",
        lambda: honest,
        changes=lambda: {"baselines": {"eager": in_double}},
        status=Status.UNKNOWN,
    ),
    Row(
        "a thread finishes the result after the call",
        "measure",
        in_two_parts(by_a_thread_later),
        in_two_parts(by_a_thread),
        where="cpu",
    ),
    Row(
        "the tail of large inputs in lower precision",
        "measure",
        in_two_parts(coarsely),
        in_two_parts(write),
    ),
    Row(
        "B11 a thread slows down whoever is timed",
        "measure",
        keeps_the_processors_busy,
        in_two_parts(by_a_thread),
        where="cpu",
    ),
    Row(
        "F1 a fake form of other strides than the results have",
        "traced",
        registered_with(columns_first),
        registered_with(rows_first),
        changes=lambda: {"operator": "adversarial::swish_bias"},
    ),
    Row("mission A: dtype mismatch promoted silently", "contract", promotes_silently),
    Row("mission A: error without words", "contract", error_without_words),
    Row("mission A: strides read as if contiguous", "contract", reads_strides_as_if_contiguous),
    Row("mission A/B: empty input launches 0 blocks", "contract", fails_when_empty),
)
