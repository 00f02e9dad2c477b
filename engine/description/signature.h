#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::description {

/// One parameter of a kernel, as the source spells it.
struct KernelParameter {
  std::string type;  ///< Without const and *, "tf::i64": of a pointer, what it points at.
  std::string name;
  bool is_pointer = false;
  bool is_const = false;  ///< Of a pointer: what it points at may only be read.
  std::size_t place = 0;  ///< In the source.
};

struct KernelSignature {
  std::string max_threads;  ///< As TF_KERNEL has it, an expression of the source.
  std::vector<KernelParameter> parameters;
  std::size_t place = 0;
};

/// The definition `TF_KERNEL(max_threads) void name(...)` or TF_KERNEL_RESIDENT in a source, or
/// `extern "C" __global__ void name(...)`, with or without __launch_bounds__. Nothing if there is
/// none. Throws Error, with "<file>:<line>" and a caret, for a parameter that is no scalar and no
/// pointer to scalars, and for a kernel that cannot be looked up by its name: a template, or
/// __global__ without extern "C".
std::optional<KernelSignature> find_signature(std::string_view file, std::string_view text,
                                              std::string_view kernel);

/// The names of all kernels that a source defines.
std::vector<std::string> kernel_names(std::string_view text);

}  // namespace truefuse::description
