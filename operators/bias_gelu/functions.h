#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace truefuse {

/// gelu(x + bias), as torch.ops.truefuse.bias_gelu; approximate is "tanh" or "none".
/// Differentiable.
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate);

}  // namespace truefuse
