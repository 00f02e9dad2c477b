#pragma once

#include <truefuse/operator/operator.h>

namespace truefuse {

/// out = swish(x): see the schemas and the contracts in operator.cpp.
const Operator& swish_operator();

/// dx = grad swish'(x).
const Operator& swish_backward_operator();

namespace swish {

/// Pure: see Operator::plan.
void plan(const Call& call, const DeviceFacts& device, Plan& plan);
void plan_backward(const Call& call, const DeviceFacts& device, Plan& plan);

/// All that they can ask for.
std::vector<Operator::NamedVariant> variants();
std::vector<Operator::NamedVariant> backward_variants();

}  // namespace swish
}  // namespace truefuse
