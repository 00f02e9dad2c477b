#pragma once

#include <truefuse/operator/operator.h>

namespace truefuse {

/// out = swish(x): see the schemas and the contracts in operator.cpp.
const Operator& swish_operator();

/// grad_x = grad_out swish'(x).
const Operator& swish_backward_operator();

namespace swish {

/// Position of the flag in the schema of swish_backward.
inline constexpr std::size_t kXWanted = 2;

/// Pure: see Operator::plan.
void plan(const Call& call, const DeviceFacts& device, Plan& plan);
void plan_backward(const Call& call, const DeviceFacts& device, Plan& plan);

/// All that they can ask for.
std::vector<Operator::NamedVariant> variants(const DeviceFacts& device);
std::vector<Operator::NamedVariant> backward_variants(const DeviceFacts& device);

}  // namespace swish
}  // namespace truefuse
