#pragma once

#include <truefuse/operator/operator.h>

namespace truefuse {

/// out = gelu(x + bias): see the schema and the contract in operator.cpp.
const Operator& bias_gelu_operator();

namespace bias_gelu {

/// Positions of the arguments in the schema.
inline constexpr std::size_t kX = 0, kBias = 1, kApproximate = 2;

/// Pure: see Operator::plan.
void plan(const Call& call, const DeviceFacts& device, Plan& plan);

/// All that `plan` can ask for.
std::vector<Operator::NamedVariant> variants(const DeviceFacts& device);

/// The names of a variant's constants, in order.
std::vector<std::string> constant_names();

}  // namespace bias_gelu
}  // namespace truefuse
