#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <truefuse/core/tensor.h>
#include <truefuse/operator/operator.h>

/// One call of an operator, as the typed and the boxed registration both make it: arguments are
/// viewed, the contract is checked, outputs are allocated, and the device's path runs. Nothing here
/// knows which operator it is.
namespace truefuse::binding {

/// The CPU path of an operator; null if it has none.
using CpuKernel = void (*)(const Call& call);
using CpuFunction = std::function<void(const Call& call)>;

using Outputs = c10::SmallVector<at::Tensor, 2>;

/// Views of a schema's arguments; they refer to the originals, which must outlive them. A tensor
/// that is written in place is materialised if it is a copy-on-write one. The spelling for symbolic
/// sizes is used by the Meta kernel, so that tracing specialises nothing.
template <class Dim>
struct View {
  using Spec = ArgumentSpec;
  static BasicArgument<Dim> of(const at::Tensor& tensor, const Spec& spec);
  static BasicArgument<Dim> of(std::int64_t value, const Spec&) { return value; }
  static BasicArgument<Dim> of(double value, const Spec&) { return value; }
  static BasicArgument<Dim> of(bool value, const Spec&) { return value; }
  static BasicArgument<Dim> of(c10::string_view value, const Spec&) {
    return std::string_view(value.data(), value.size());
  }
  template <class T>
  static BasicArgument<Dim> of(const std::optional<T>& value, const Spec& spec) {
    return value.has_value() ? of(*value, spec) : BasicArgument<Dim>{};
  }
};

template <>
BasicArgument<std::int64_t> View<std::int64_t>::of(const at::Tensor& tensor, const Spec& spec);
template <>
BasicArgument<c10::SymInt> View<c10::SymInt>::of(const at::Tensor& tensor, const Spec& spec);

void run_cpu(const Operator& op, const CpuFunction& kernel, std::span<const Argument> arguments,
             Outputs& outputs);
void run_gpu(const Operator& op, std::span<const Argument> arguments, Outputs& outputs);
void run_meta(const Operator& op, std::span<const BasicArgument<c10::SymInt>> arguments,
              Outputs& outputs);

/// Null for what is no tensor.
template <class T>
const at::Tensor* tensor_or_null(const T& value) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return &value;
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return value.has_value() ? &*value : nullptr;
  } else {
    return nullptr;
  }
}

/// Around a call that writes arguments; `tensors` has an entry for each. Before it: throws if one
/// that is written is an inference tensor and inference mode is off, as PyTorch's own in-place
/// operators do. After it: counts one more version of each, so that autograd notices.
void refuse_inference_tensors(const Operator& op, std::span<const at::Tensor* const> tensors);
void bump_versions(const Operator& op, std::span<const at::Tensor* const> tensors);

}  // namespace truefuse::binding
