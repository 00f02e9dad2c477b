"""gdn_decode beside the ways to do without it, on a GPU, in one run: layouts, adapters, peers, drift.

    python bench/gdn_decode.py [--output FILE] [--heads 48 ...] [--steps 1024]

H16 HV48 K128 V128 W4, bf16 rows, fp32 state [HV,V,K], everything fused including the gated norm.
Device time: a CUDA graph of calls that walk over sets of states, together more than 400 MB, replayed;
median over replays of the time per call. `floor` is `mul_` in place on the same states. Every column's
results are held against float64 before it is timed; one that computes something else shows no time, and
the gate of `truefuse check` says what it thinks of it. Beside FILE a picture FILE.svg of the drift.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
import torch.nn.functional as F
from drift_picture import picture
from timing import graph_microseconds

import truefuse
from truefuse import case as cases
from truefuse import environment, gates
from truefuse.context import Context

H, K, V, TAPS = 16, 128, 128, 4
FLAT = ("q=H K | k=H K | v=H G V | z=H G V", "b=H G | a=H G")  # Qwen3.5
INTERLEAVED = ("H (q=K | k=K | v=G V | z=G V)", "H (b=G | a=G)")  # Qwen3-Next
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DEVICE = torch.device("cuda")
CASE = str(Path(__file__).parent.parent / "operators/gdn_decode/case.py")
Z_COPIED = "PyTorch chain, z copied too"
OUT_ERROR, STATE_ERROR = 3e-3, 1e-6  # relative L2; bf16 rounding is 1.7e-3
PEER_OUT_ERROR, PEER_STATE_ERROR = 6e-3, 1e-3  # of chains that store values between their kernels


class Problem:
    """Sets of one call's tensors: set i uses the slots i * B to (i + 1) * B, in random order."""

    def __init__(self, batch: int, heads: int, interleaved: bool, sets: int | None = None) -> None:
        torch.manual_seed(batch)
        self.batch, self.heads, self.groups = batch, heads, heads // H
        self.interleaved = interleaved
        self.channels = 2 * H * K + heads * V
        self.A_log = torch.empty(heads, device=DEVICE).uniform_(0.5, 16).log()
        self.dt_bias = torch.randn(heads, device=DEVICE).bfloat16()
        self.conv_weight = (0.5 * torch.randn(self.channels, TAPS, device=DEVICE)).bfloat16()
        self.norm: torch.Tensor | None = (0.5 + torch.rand(V, device=DEVICE)).bfloat16()
        needed = math.ceil(400e6 / (batch * heads * K * V * 4))
        self.sets = sets or min(max(2, needed), 140)
        slots = self.sets * batch
        self.state = torch.randn(slots, heads, V, K, device=DEVICE)
        history = torch.randn(slots, TAPS - 1, self.channels, device=DEVICE).bfloat16()
        self.conv_state = history.transpose(1, 2)
        columns = self.channels + heads * V
        self.qkvz = [
            torch.randn(batch, columns, device=DEVICE).bfloat16() for _ in range(self.sets)
        ]
        self.ba = [
            torch.randn(batch, 2 * heads, device=DEVICE).bfloat16() for _ in range(self.sets)
        ]
        self.slots = [
            (i * batch + torch.randperm(batch, device=DEVICE)).int() for i in range(self.sets)
        ]

    def fused(self, i: int, layouts=None, rows=None) -> torch.Tensor:
        qkvz, ba = rows or (self.qkvz[i], self.ba[i])
        qkvz_layout, ba_layout = layouts or (INTERLEAVED if self.interleaved else FLAT)
        return truefuse.gdn_decode(
            qkvz, ba, self.conv_state, self.state, self.conv_weight, None, self.A_log, self.dt_bias,
            self.norm, qkvz_layout=qkvz_layout, ba_layout=ba_layout, state_layout="[HV,V,K]",
            num_k_heads=H, num_v_heads=self.heads, head_k_dim=K, head_v_dim=V, rounding="fp32",
            state_indices=self.slots[i], padding="negative",
            norm_eps=None if self.norm is None else 1e-6,
            gate_activation=None if self.norm is None else "silu",
        )  # fmt: skip

    def split(self, i: int):
        """q, k [B, 1, H, K], v, z [B, 1, HV, V], b, a [B, 1, HV] of set i."""
        x, ba, G, batch = self.qkvz[i], self.ba[i], self.groups, self.batch
        if self.interleaved:
            q, k, v, z = x.view(batch, H, -1).split([K, K, G * V, G * V], -1)
            b, a = ba.view(batch, H, 2, G).unbind(2)
        else:
            q, k, v, z = x.split([H * K, H * K, self.heads * V, self.heads * V], -1)
            b, a = ba.split([self.heads, self.heads], -1)
        one = lambda t, n, d: t.reshape(batch, 1, n, d)  # noqa: E731
        return (
            one(q, H, K), one(k, H, K), one(v, self.heads, V), one(z, self.heads, V),
            b.reshape(batch, 1, -1), a.reshape(batch, 1, -1),
        )  # fmt: skip

    def interleave(self, i: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Flat rows copied into the other layout: the adapter."""
        q, k, v, z, b, a = self.split(i)
        parts = [t.reshape(self.batch, H, -1) for t in (q, k, v, z)]
        gates = [t.reshape(self.batch, H, -1) for t in (b, a)]
        return torch.cat(parts, -1).flatten(1), torch.cat(gates, -1).flatten(1)

    def expected(self, maths: ModuleType, i: int):
        slots = self.slots[i].long()
        weights = maths.Weights(
            self.conv_weight, self.A_log, self.dt_bias, norm=self.norm, norm_eps=1e-6
        )
        state = self.state[slots].transpose(-1, -2)
        return maths.decode(self.conv_state[slots], state, maths.Rows(*self.split(i)), weights)

    def errors(self, maths: ModuleType, call: Callable[[int], torch.Tensor], i: int = 0):
        """Of output and state, relative L2; whether the histories are right, bit for bit."""
        slots = self.slots[i].long()
        want = self.expected(maths, i)
        out = call(i).view(self.batch, 1, self.heads, V)
        states, inputs = want.states[:, -1].transpose(-1, -2), want.inputs[..., 1:]
        relative = lambda a, b: float((a.double() - b).norm() / b.norm())  # noqa: E731
        return (
            relative(out, want.out),
            relative(self.state[slots], states),
            torch.equal(self.conv_state[slots].double(), inputs.double()),
        )


class Chain:
    """The same step, unfused, in PyTorch's operators; the states of a set lie together."""

    def __init__(self, problem: Problem) -> None:
        self.p = problem
        problem.slots = [slots.sort().values for slots in problem.slots]

    def __call__(self, i: int, copies_z: bool = False) -> torch.Tensor:
        p = self.p
        own = slice(i * p.batch, (i + 1) * p.batch)
        x, ba = p.qkvz[i], p.ba[i]
        mixed, z = x[:, : p.channels], x[:, p.channels :]
        z = (z.contiguous() if copies_z else z).view(p.batch, p.heads, V)
        history = torch.cat([p.conv_state[own], mixed[..., None]], 2)
        p.conv_state[own].copy_(history[..., 1:])
        y = F.silu((history.float() * p.conv_weight.float()).sum(-1)).bfloat16().float()
        q, k, v = y.split([H * K, H * K, p.heads * V], -1)
        unit = lambda t: F.normalize(t.view(p.batch, H, 1, K), dim=-1)  # noqa: E731
        q = (unit(q) * K**-0.5).expand(-1, -1, p.groups, -1).reshape(p.batch, p.heads, K)
        k = unit(k).expand(-1, -1, p.groups, -1).reshape(p.batch, p.heads, K)
        b, a = ba.float().split([p.heads, p.heads], -1)
        decay = torch.exp(-p.A_log.exp() * F.softplus(a + p.dt_bias.float()))
        state = p.state[own].mul_(decay[..., None, None])
        read = (state @ k[..., None])[..., 0]
        delta = torch.sigmoid(b)[..., None] * (v.view(p.batch, p.heads, V) - read)
        state.add_(delta[..., None] * k[:, :, None])
        core = (state @ q[..., None])[..., 0].bfloat16().float()
        normed = core * torch.rsqrt((core * core).mean(-1, keepdim=True) + 1e-6) * p.norm.float()
        return (normed * F.silu(z.float())).bfloat16()


class FlaChain:
    """flash-linear-attention's kernels: convolution, recurrence, norm. Its convolution keeps four
    columns, its recurrence writes a new state."""

    def __init__(self, problem: Problem) -> None:
        from fla.modules.causal_conv1d.ops import causal_conv1d_update
        from fla.modules.norm.fused_norm_gate import rms_norm_gated
        from fla.ops.gated_delta_rule import fused_recurrent_gated_delta_rule

        self.convolve, self.norm = causal_conv1d_update, rms_norm_gated
        self.recur = fused_recurrent_gated_delta_rule
        self.p = problem
        problem.slots = [slots.sort().values for slots in problem.slots]
        self.history = F.pad(problem.conv_state, (1, 0)).contiguous()

    def __call__(self, i: int) -> torch.Tensor:
        p = self.p
        own = slice(i * p.batch, (i + 1) * p.batch)
        x, ba = p.qkvz[i], p.ba[i]
        mixed, z = x[:, : p.channels], x[:, p.channels :]
        y, _ = self.convolve(
            mixed[:, None], self.history[own], weight=p.conv_weight, activation="silu"
        )
        q, k, v = y.split([H * K, H * K, p.heads * V], -1)
        b, a = ba[:, None].split([p.heads, p.heads], -1)
        out, state = self.recur(
            q.view(p.batch, 1, H, K), k.view(p.batch, 1, H, K), v.view(p.batch, 1, p.heads, V),
            g=a.contiguous(), beta=b.contiguous(), initial_state=p.state[own],
            output_final_state=True, use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True,
            A_log=p.A_log, dt_bias=p.dt_bias, use_beta_sigmoid_in_kernel=True, state_v_first=True,
        )  # fmt: skip
        self.final = state
        z = z.reshape(p.batch, 1, p.heads, V)
        return self.norm(out, z, p.norm, None, activation="swish", eps=1e-6)


def verdicts() -> dict[str, str]:
    """What the gate says of the operator, and of the operator with the other model's layouts."""
    case = cases.load(CASE)
    flat = tuple(mode for mode in case.modes if mode["qkvz_layout"] == "qwen3.5/qkvz")
    other = {"qkvz_layout": "qwen3-next/qkvz", "ba_layout": "qwen3-next/ba"}

    def misread(*given, **mode):
        return case.candidate(*given, **mode | other)

    found = {}
    for name, candidate in (
        ("native flat", case.candidate),
        ("flat given as interleaved", misread),
    ):
        judged = dataclasses.replace(case, modes=flat, candidate=candidate)
        result = gates.run_one(gates.numerics, Context(judged, DEVICE, 1))
        found[name] = f"{result.status.value}: {result.summary}"
    return found


def microseconds(call: Callable[[int], object], sets: int) -> float:
    calls = [partial(call, i % sets) for i in range(max(20, min(sets, 100)))]
    return statistics.median(graph_microseconds(calls, kept=0, replays=15))


def row(maths: ModuleType, batch: int, heads: int) -> dict:
    copied = batch * heads * V * 2
    result: dict = {
        "batch": batch, "heads": heads, "us": {}, "errors": {}, "not shown": {},
        "flagged": {Z_COPIED: f"copies {copied} bytes that change no result: no peer to be faster than"},
    }  # fmt: skip

    def column(
        name: str, make: Callable[[], tuple[Problem, Callable[[int], torch.Tensor]]]
    ) -> None:
        try:
            problem, call = make()
            errors = problem.errors(maths, call)
        except Exception as error:
            result["not shown"][name] = f"{type(error).__name__}: {error}"[:300]
            return
        result["errors"][name] = errors[:2]
        right = errors[0] < OUT_ERROR and errors[1] < STATE_ERROR and errors[2]
        if "chain" in name:
            states_are_right = isinstance(call, FlaChain) or (  # which writes new ones elsewhere
                errors[1] < PEER_STATE_ERROR and errors[2]
            )
            right = errors[0] < PEER_OUT_ERROR and states_are_right
        if right:
            result["us"][name] = microseconds(call, problem.sets)
        else:
            result["not shown"][name] = f"wrong: output {errors[0]:.1e}, state {errors[1]:.1e}"

    def flat() -> Problem:
        return Problem(batch, heads, interleaved=False)

    def scaled(i: int, states: torch.Tensor) -> torch.Tensor:
        return states[i * batch : (i + 1) * batch].mul_(0.999)

    problem = flat()
    result["us"]["floor"] = microseconds(partial(scaled, states=problem.state), problem.sets)
    del problem
    column("native flat", lambda: (p := flat(), p.fused))
    column("native interleaved", lambda: (p := Problem(batch, heads, True), p.fused))
    column(
        "flat given as interleaved",
        lambda: (p := flat(), lambda i: p.fused(i, layouts=INTERLEAVED)),
    )
    column(
        "adapter and interleaved",
        lambda: (p := flat(), lambda i: p.fused(i, INTERLEAVED, p.interleave(i))),
    )
    column("PyTorch chain", lambda: (p := flat(), Chain(p)))
    column(Z_COPIED, lambda: (p := flat(), partial(Chain(p), copies_z=True)))
    column("FLA chain", lambda: (p := flat(), FlaChain(p)))
    return result


def drift(maths: ModuleType, heads: int, steps: int, slow: bool, core: bool) -> dict:
    """Relative L2 of output (the core, or what the norm makes of it) and state after `steps` successive
    calls, against float64."""
    problem = Problem(1, heads, interleaved=False, sets=2)
    if core:
        problem.norm = None
    if slow:  # decay about 0.999, small beta
        problem.A_log.fill_(math.log(1e-3 / math.log(2)))
        problem.dt_bias.zero_()
        for ba in problem.ba:
            ba[:, :heads] -= 4
            ba[:, heads:] = 0
    weights = maths.Weights(
        problem.conv_weight, problem.A_log, problem.dt_bias, norm=problem.norm, norm_eps=1e-6
    )
    problem.slots = [torch.zeros(1, dtype=torch.int32, device=DEVICE)] * 2
    first = (problem.state.clone(), problem.conv_state.clone())
    window, state = problem.conv_state[:1].clone(), problem.state[:1].transpose(-1, -2).double()
    relative = lambda a, b: float((a.double() - b).norm() / b.norm())  # noqa: E731
    curve, outs, exact_history = [], [], True
    for step in range(steps):
        rows = maths.Rows(*problem.split(step % 2))
        want = maths.decode(window, state, rows, weights)
        state, window = want.states[:, -1], want.inputs[..., 1:].to(window.dtype)
        out = problem.fused(step % 2).view(1, 1, heads, V)
        outs.append(out)
        exact_history &= torch.equal(problem.conv_state[:1], window)
        if step % 16 == 15 or step == steps - 1:
            curve.append([step + 1, relative(out, want.out),
                          relative(problem.state[:1].transpose(-1, -2), state)])  # fmt: skip
    problem.state.copy_(first[0])
    problem.conv_state.copy_(first[1])
    again = [problem.fused(step % 2).view(1, 1, heads, V) for step in range(steps)]
    return {
        "steps": steps,
        "slow decay": slow,
        "output": "core" if core else "behind the norm",
        "curve [step, output, state]": curve,
        "finite": bool(problem.state[:1].isfinite().all()),
        "history bit for bit": exact_history,
        "two runs bit for bit": all(torch.equal(a, b) for a, b in zip(outs, again, strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path)
    parser.add_argument("--heads", type=int, nargs="+", default=[48], help="value heads")
    parser.add_argument("--steps", type=int, default=1024)
    arguments = parser.parse_args()
    maths = cases.beside(CASE, "reference")
    said = verdicts()
    for name, verdict in said.items():
        print(f"gate, {name}: {verdict}", flush=True)
    rows = []
    for heads, batch in itertools.product(arguments.heads, BATCHES):
        rows.append(row(maths, batch, heads))
        torch.cuda.empty_cache()
        us = rows[-1]["us"]
        shown = (f"{n} {t:.2f}" + "*" * (n in rows[-1]["flagged"]) for n, t in us.items())
        print(f"HV{heads} B={batch:4}  " + "  ".join(shown), flush=True)
        print("        " + "  ".join(f"{n}: {why}" for n, why in rows[-1]["not shown"].items()))
    for name, why in rows[-1]["flagged"].items():
        print(f"* {name}: {why}")
    drifts = [
        drift(maths, arguments.heads[0], arguments.steps, slow, core)
        for slow, core in itertools.product((False, True), repeat=2)
    ]
    for one in drifts:
        print({key: value for key, value in one.items() if not key.startswith("curve")},
              one["curve [step, output, state]"][-1])  # fmt: skip
    if arguments.output:
        result = {
            "benchmark": "gdn_decode",
            "shape": {"H": H, "HV": arguments.heads, "K": K, "V": V, "W": TAPS},
            "environment": environment.describe(DEVICE),
            "gate": said,
            "device_time": rows,
            "drift": drifts,
        }
        arguments.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        arguments.output.with_suffix(".svg").write_text(picture(drifts), encoding="utf-8")


if __name__ == "__main__":
    main()
