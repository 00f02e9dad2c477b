#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace truefuse {

/// x sigmoid(x), as torch.ops.truefuse.swish; differentiable.
at::Tensor swish(const at::Tensor& x);

}  // namespace truefuse
