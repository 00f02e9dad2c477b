#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <truefuse/description/geometry.h>
#include <truefuse/operator/operator.h>

namespace truefuse::description {

/// Numbers for the sizes (a pack counts as one dimension) and for int arguments, by name.
using Example = std::map<std::string, std::int64_t>;

/// The variants that a plan asks for in calls which the contract allows: every dtype, word, bool
/// and optional tensor, with the sizes of each example, with aligned memory and without. Labels say
/// only what makes a difference: "bf16 tanh unaligned". Throws Error for an example that the
/// contract refuses, and what planning throws.
std::vector<Operator::NamedVariant> variants_of(const std::string& op, const Contract& contract,
                                                const Geometry& geometry,
                                                const std::vector<Example>& examples);

}  // namespace truefuse::description
