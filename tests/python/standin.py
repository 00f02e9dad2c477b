"""bias_gelu in Python: mathematics in float64, rounded once, with the contract's sentences."""

from __future__ import annotations

import math
import types

import torch

DIM = {"text": "hidden", "factor": 1, "symbols": ["hidden"]}
DTYPES = ["f64", "f32", "f16", "bf16"]
TORCH_DTYPES = ["float64", "float32", "float16", "bfloat16"]


def tensor_argument(name, dtypes=(), torch_dtypes=(), like=None, pack=None, layout="contiguous"):
    return {
        "name": name,
        "optional": False,
        "kind": "tensor",
        "dtypes": list(dtypes),
        "torch_dtypes": list(torch_dtypes),
        "like": like,
        "pack": pack,
        "dims": [DIM],
        "layout": layout,
        "mutated": False,
        "alignment": 1,
    }


CONTRACT = {
    "text": "x: f64|f32|f16|bf16 [rows.., hidden] rows-strided; bias: like x [hidden] strided; "
    'approximate: "tanh"|"none" -> out: like x [rows.., hidden] contiguous',
    "symbols": [{"name": "rows", "pack": True}, {"name": "hidden", "pack": False}],
    "arguments": [
        tensor_argument("x", DTYPES, TORCH_DTYPES, pack="rows", layout="rows-strided"),
        tensor_argument("bias", like="x", layout="strided"),
        {"name": "approximate", "optional": False, "kind": "string", "values": ["tanh", "none"]},
    ],
    "outputs": [tensor_argument("out", like="x", pack="rows")],
}


def refuse_unless(holds, sentence):
    if not holds:
        raise RuntimeError(f"bias_gelu: {sentence}")


def short(dtype):
    return str(dtype).removeprefix("torch.")


def check(x, bias, approximate):
    shapes = f"x is {list(x.shape)}, bias is {list(bias.shape)}"
    allowed = f"it must be one of {', '.join(TORCH_DTYPES)}"
    refuse_unless(short(x.dtype) in TORCH_DTYPES, f"x is {short(x.dtype)}; {allowed}")
    refuse_unless(x.dim() >= 1, "x is []; it must be [rows.., hidden]")
    refuse_unless(
        x.numel() == 0 or x.shape[-1] == 1 or x.stride(-1) == 1,
        f"x has stride {x.stride(-1)} in its last dimension; it must be contiguous there",
    )
    refuse_unless(
        bias.dtype == x.dtype, f"bias is {short(bias.dtype)}; it must be {short(x.dtype)} as x is"
    )
    refuse_unless(bias.device == x.device, f"bias is on {bias.device}; x is on {x.device}")
    refuse_unless(bias.dim() == 1, f"bias is {list(bias.shape)}; it must be [hidden]; {shapes}")
    refuse_unless(
        bias.shape[0] == x.shape[-1],
        f"bias has {bias.shape[0]} elements; hidden is {x.shape[-1]} ({shapes})",
    )
    refuse_unless(
        approximate in ("tanh", "none"), f'approximate is "{approximate}"; "tanh" or "none"'
    )
    grad = torch.is_grad_enabled() and (x.requires_grad or bias.requires_grad)
    refuse_unless(not grad, "no derivative yet: call it under torch.no_grad() or detach x and bias")


def mathematics(x, bias, approximate):
    v = x.double() + bias.double()
    if approximate == "tanh":
        y = v * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v))
    else:
        y = v * (0.5 * torch.special.erfc(-v * math.sqrt(0.5)))
    return torch.where(v == -math.inf, -0.0, y).contiguous().to(x.dtype)


def implementation(x, bias, *, approximate):
    check(x, bias, approximate)
    return mathematics(x, bias, approximate)


_library = torch.library.Library("standin", "DEF")
_library.define("bias_gelu(Tensor x, Tensor bias, *, str approximate) -> Tensor")
_library.impl("bias_gelu", implementation, "CompositeImplicitAutograd")


def bias_gelu(*tensors, **keywords):
    return torch.ops.standin.bias_gelu(*tensors, **keywords)


def compiled(source="compiled", arch="gfx90a", compiler="hipRTC"):
    return {
        "ok": True,
        "error": None,
        "compiler": compiler,
        "compiler_version": "5.2",
        "target": arch,
        "seconds": 0.1 if source == "compiled" else 0.001,
        "compile_seconds": 0.1,
        "source": source,
        "code_bytes": 4096,
        "key": "ab" * 32,
        "resources": {
            "registers": 16,
            "scalar_registers": -1,
            "shared_bytes": 0,
            "scratch_bytes": 0,
            "spills": 0,
            "max_threads": 256,
            "wave": 64,
        },
        "occupancy": {"value": 8, "maximum": 8, "unit": "waves", "limited_by": "waves"},
    }


def fake_native():
    """A module with the answers of the native library."""
    fake = types.ModuleType("truefuse._native")

    def toolchain(name, found, arch, remedy=""):
        return {
            "name": name,
            "found": found,
            "path": f"/opt/{name}",
            "version": "1.0",
            "works": found,
            "problem": "",
            "remedy": remedy,
            "default_arch": arch,
        }

    def refusal(arch, compiler=None):
        return "no compiler here can compile for gfx999" if arch == "gfx999" else ""

    def compile(operator, arch, label, compiler=None, cache=True):
        if label not in [v["label"] for v in fake.operators()[0]["variants"]]:
            return {"ok": False, "error": f"no variant '{label}'"}
        return compiled("disk" if cache else "compiled", arch, compiler or "hipRTC")

    fake.operators = lambda: [
        {
            "namespace": "standin",
            "name": "bias_gelu",
            "schema": "bias_gelu(Tensor x, Tensor bias, *, str approximate) -> Tensor",
            "summary": "gelu(x + bias) in one pass.",
            "contract": CONTRACT,
            "variants": [
                {"label": "f32 tanh", "kernel": "bias_gelu", "shown": True, "only_for": []},
                {"label": "f64 tanh", "kernel": "bias_gelu", "shown": False, "only_for": []},
            ],
        }
    ]
    fake.toolchains = lambda: [
        toolchain("hipRTC", True, "gfx90a"),
        toolchain("NVRTC", False, "sm_90a", "pip install nvidia-cuda-nvrtc"),
    ]
    fake.refusal = refusal
    fake.compile = compile
    fake.cache = lambda: {
        "directory": "/home/someone/.cache/truefuse",
        "reasons": ["/nfs/cache is on a network file system"],
        "entries": [
            {
                "digest": "cd" * 32,
                "label": "bias_gelu gfx90a f32 tanh",
                "path": "/x",
                "bytes": 4096,
                "modified": 1750000000,
                "valid": True,
            }
        ],
    }
    fake.cache_why = lambda operator: [
        {
            "digest": "cd" * 32,
            "label": "bias_gelu gfx90a f32 tanh",
            "current": False,
            "differences": ["compiler: hipRTC build-id 91ab -> 4d07"],
        }
    ]
    fake.cache_clear = lambda: 1
    fake.cpu = lambda: {"isa": "AVX2", "threads": 2}
    return fake
