#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/operator/operator.h>

namespace truefuse::description {

/// An operator that was read from a text and a kernel source, and what the text says beside it.
struct Described {
  Operator op;  ///< An ordinary one; its plan evaluates the text's expressions.

  std::string reference;  ///< Name of a Python function: the operator's mathematics.
  std::string cpu;        ///< Name of a Python function for CPU tensors; empty: the simulator.
  std::string gpu;        ///< The same for tensors on a GPU; empty: the kernel.
  bool has_kernel = true;
  std::string backward_file;           ///< Another description in the folder; or empty.
  std::string backward_function;       ///< Name of a Python function; or empty.
  std::vector<std::string> gradients;  ///< Arguments that backward_function differentiates.

  // For errors of what is done with the description later.
  std::string schema_place;  ///< "my_op/description.txt:3"
};

/// Where a description's pieces come from, and the names that it gets.
struct Sources {
  std::string name;  ///< Of the description in errors: "my_op/description.txt".
  std::string text;
  /// By the names that #include directives, `kernel:` and `plan:` use: "kernel.hip", "plan.cpp".
  jit::Files files;
  /// In front of those names in errors and in the cache: "my_op".
  std::string prefix;
  /// Instead of what the text says, if not empty.
  std::string name_space, op_name;
};

/// Reads a description:
///
///   operator: my_ops::bias_gelu
///   summary:  gelu(x + bias) in one pass over memory
///   schema:   bias_gelu(Tensor x, Tensor bias, *, str approximate) -> Tensor
///   contract:                      # see contract.h
///     x: f32|bf16 [rows.., hidden] contiguous; ...
///   kernel:   kernel.hip
///   plan:      plan.cpp -> splits                 # values of a C++ function, see host/plan.h
///   let:       vector = x.bytes == 2 ? 8 : 4      # see Expression and Facts
///   constants: TF_STORAGE = x.dtype   TF_VECTOR = vector
///   scratch:   partial = 4 * rows                 # bytes
///   launch:    bias_gelu_forward
///     grid  = ceil_div(hidden, 256), min(rows, 65535)
///     block = 256
///     shared = 0                                  # bytes, of dynamic shared memory
///   examples:  rows = 4, hidden = 4096; rows = 3, hidden = 7
///   reference: reference
///   cpu:       simulator | NAME of a function
///   gpu:       NAME of a function                 # in place of kernel and launch
///   backward:  other.txt | NAME -> x, bias
///
/// plan, let, constants, scratch, examples, cpu and backward may be left out; there may be several
/// launches, which run in order. What runs may be Python functions alone, such as those of a Triton
/// kernel: then nothing is said of a kernel. `#` begins a comment. The parameters of a kernel are
/// matched by their names (Geometry::bind). Throws Error with the file, the line and a caret for
/// whatever is wrong with the text or does not fit the kernel's source.
std::unique_ptr<Described> read(const Sources& sources);

}  // namespace truefuse::description
