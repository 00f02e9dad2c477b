#pragma once

#include <string_view>

#include <ATen/core/Tensor.h>

namespace truefuse {

/// swish(gate) up and gelu(gate) up, as torch.ops.truefuse.swiglu and so on; differentiable. For
/// the texts see docs/activations.md.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, std::string_view gate_rounding);
at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up, std::string_view approximate,
                 std::string_view gate_rounding);

/// The same of one tensor [..., 2 * hidden].
at::Tensor swiglu_packed(const at::Tensor& packed, std::string_view packing,
                         std::string_view gate_rounding);
at::Tensor geglu_packed(const at::Tensor& packed, std::string_view packing,
                        std::string_view approximate, std::string_view gate_rounding);

}  // namespace truefuse
