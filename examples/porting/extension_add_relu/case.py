"""A cpp_extension module under the gate."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch.utils import cpp_extension

from truefuse.case import Case

# Of a module with PYBIND11_MODULE: module = cpp_extension.load(...), and then module.add_relu.
cpp_extension.load(
    "extension_add_relu",
    [str(Path(__file__).with_name("add_relu.cpp"))],
    extra_cflags=["-O2"],
    is_python_module=False,
)


def extension(x, y, *, alpha):
    return torch.ops.extension.add_relu(x, y, alpha)


def reference(x, y, *, alpha):
    return torch.relu(x + alpha * y)


def gradients(grad, x, y, *, alpha):
    passed = grad * (x + alpha * y > 0)
    return passed, alpha * passed


def make_inputs(size, dtype, device, generator, kind):
    x, y = torch.randn((2, *size), generator=generator, dtype=torch.float64).to(dtype).to(device)
    return {"x": x, "y": y}


case = Case(
    name="add_relu",
    candidate=lambda *tensors, **mode: torch.ops.ported.add_relu(*tensors, **mode),
    baselines={"eager": lambda x, y, *, alpha: F.relu(torch.add(x, y, alpha=alpha))},
    reference=reference,
    scale=lambda x, y, *, alpha: x.abs() + abs(alpha) * y.abs(),
    make_inputs=make_inputs,
    modes=({"alpha": 0.7},),
    gradients=("x", "y"),
    faults={"x and y exchanged": lambda inputs, mode: ({"x": inputs["y"], "y": inputs["x"]}, mode)},
)
