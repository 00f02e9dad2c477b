#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

#include <truefuse/core/tensor.h>
#include <truefuse/operator/operator.h>

/// One call of an operator, as the typed and the boxed registration both make it: arguments are
/// viewed, the contract is checked, outputs are allocated, and the device's path runs. Nothing here
/// knows which operator it is.
namespace truefuse::binding {

/// The CPU path of an operator; null if it has none.
using CpuKernel = void (*)(const Call& call);

using Outputs = c10::SmallVector<at::Tensor, 2>;

/// Views of a schema's arguments; they refer to the originals, which must outlive them. The
/// spelling for symbolic sizes is used by the Meta kernel, so that tracing specialises nothing.
template <class Dim>
struct View {
  static BasicArgument<Dim> of(const at::Tensor& tensor);
  static BasicArgument<Dim> of(const std::optional<at::Tensor>& tensor) {
    return tensor.has_value() ? of(*tensor) : BasicArgument<Dim>{};
  }
  static BasicArgument<Dim> of(std::int64_t value) { return value; }
  static BasicArgument<Dim> of(double value) { return value; }
  static BasicArgument<Dim> of(bool value) { return value; }
  static BasicArgument<Dim> of(c10::string_view value) {
    return std::string_view(value.data(), value.size());
  }
  template <class T>
  static BasicArgument<Dim> of(const std::optional<T>& value) {
    return value.has_value() ? of(*value) : BasicArgument<Dim>{};
  }
};

template <>
BasicArgument<std::int64_t> View<std::int64_t>::of(const at::Tensor& tensor);
template <>
BasicArgument<c10::SymInt> View<c10::SymInt>::of(const at::Tensor& tensor);

void run_cpu(const Operator& op, CpuKernel kernel, std::span<const Argument> arguments,
             Outputs& outputs);
void run_gpu(const Operator& op, std::span<const Argument> arguments, Outputs& outputs);
void run_meta(const Operator& op, std::span<const BasicArgument<c10::SymInt>> arguments,
              Outputs& outputs);

}  // namespace truefuse::binding
