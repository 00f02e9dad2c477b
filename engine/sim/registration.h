#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace truefuse::sim {

/// A kernel found in a preprocessed source.
struct KernelDefinition {
  std::string name;
  std::string max_threads;  ///< An expression.

  friend bool operator==(const KernelDefinition&, const KernelDefinition&) = default;
};

/// Every `TF_KERNEL(max_threads) void name(...)` that the preprocessor left in the text; a
/// declaration and its definition count once. Throws Error where something else follows TF_KERNEL.
std::vector<KernelDefinition> find_kernels(std::string_view preprocessed);

/// Source text that lists the kernels for the runtime (tf_sim::kernels).
std::string registration_of(const std::vector<KernelDefinition>& kernels, int wave);

}  // namespace truefuse::sim
