"""The Triton kernels and their launches as they were, and nothing of truefuse."""

import torch
import triton
import triton.language as tl


@triton.jit
def squared_relu_kernel(out, x, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count).to(tl.float32)
    # tl.maximum(value, 0) lost NaN, which the gate 'special' saw.
    value = tl.where(value <= 0, 0.0, value)
    tl.store(out + i, value * value, mask=i < count)


@triton.jit
def squared_relu_backward_kernel(grad_x, grad, x, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < count).to(tl.float32)
    value = tl.where(value <= 0, 0.0, value)
    incoming = tl.load(grad + i, mask=i < count).to(tl.float32)
    tl.store(grad_x + i, 2 * value * incoming, mask=i < count)


def squared_relu(x):
    out = torch.empty_like(x)
    if x.numel() > 0:
        squared_relu_kernel[(triton.cdiv(x.numel(), 1024),)](out, x, x.numel(), BLOCK=1024)
    return out


def squared_relu_backward(grad, x):
    grad_x = torch.empty_like(x)
    if x.numel() > 0:
        blocks = triton.cdiv(x.numel(), 1024)
        squared_relu_backward_kernel[(blocks,)](grad_x, grad, x, x.numel(), BLOCK=1024)
    return grad_x
