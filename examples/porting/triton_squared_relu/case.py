"""A Triton kernel under the gate."""

import torch

from truefuse.case import Case, beside

mine = beside(__file__, "squared_relu")  # squared_relu.py of this folder


def launch(x):
    return mine.squared_relu(x)


def launch_backward(grad_out, x, *, x_wanted):
    return mine.squared_relu_backward(grad_out, x) if x_wanted else x.new_empty(0)


def reference(x):
    return torch.relu(x).square()


def reference_gradients(grad, x):
    return 2 * torch.relu(x) * grad


def make_inputs(size, dtype, device, generator, kind):
    x = torch.randn(size, generator=generator, dtype=torch.float64)
    return {"x": x.to(dtype).to(device)}


case = Case(
    name="triton squared_relu",
    candidate=lambda *tensors, **mode: torch.ops.ported.squared_relu(*tensors, **mode),
    baselines={"eager": lambda x: torch.relu(x).square()},
    reference=reference,
    reference_gradients=reference_gradients,
    make_inputs=make_inputs,
    dtypes=(torch.float32, torch.bfloat16),
    gradients=("x",),
    faults={"the sign of x": lambda inputs, mode: ({"x": -inputs["x"]}, mode)},
)
