#pragma once

#include <truefuse/operator/operator.h>

namespace truefuse {

/// grad_x = grad_out gelu'(x + bias) and grad_bias, its sum over the rows: see the schema and the
/// contract in backward.cpp.
const Operator& bias_gelu_backward_operator();

namespace bias_gelu::backward {

/// Positions of the arguments and outputs in the schema.
inline constexpr std::size_t kGradOut = 0, kX = 1, kBias = 2, kApproximate = 3, kXWanted = 4,
                             kBiasWanted = 5;
inline constexpr std::size_t kGradX = 0, kGradBias = 1;

/// Pure: see Operator::plan.
void plan(const Call& call, const DeviceFacts& device, Plan& plan);

/// All that `plan` can ask for.
std::vector<Operator::NamedVariant> variants(const DeviceFacts& device);

/// The names of a variant's constants, in order.
std::vector<std::string> constant_names();

}  // namespace bias_gelu::backward
}  // namespace truefuse
