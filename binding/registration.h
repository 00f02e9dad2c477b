#pragma once

#include <tuple>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <truefuse/binding/call.h>

namespace truefuse::binding {

/// An operator's entry in PyTorch's dispatcher, for as long as this object lives: the schema, and
/// kernels for CPU, CUDA (which is ROCm and DCU too), Meta and Autograd. Made by a library for each
/// of its operators, as a static object.
///
/// `boxed` works for every schema from the description alone. `typed` gives PyTorch a plain
/// function of the schema's C++ signature, which is a microsecond cheaper to call; both end in the
/// same code.
class Registration {
 public:
  static Registration boxed(const Operator& op, CpuKernel cpu = nullptr);

  /// `get` returns the operator's description; `Signature` is its schema in C++, for instance
  /// at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view). PyTorch refuses a
  /// signature that does not fit the schema.
  template <const Operator& (*get)(), CpuKernel cpu, class Signature>
  static Registration typed();

 private:
  explicit Registration(const Operator& op);

  torch::Library library_;
};

namespace detail {

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

template <class Result>
struct Returned {
  template <std::size_t... i>
  static Result from(Outputs& outputs, std::index_sequence<i...>) {
    return Result{std::move(outputs[i])...};
  }
  static Result from(Outputs& outputs) {
    return from(outputs, std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
};
template <>
struct Returned<at::Tensor> {
  static at::Tensor from(Outputs& outputs) { return std::move(outputs[0]); }
};

template <const Operator& (*get)(), CpuKernel kernel, class Signature>
struct Typed;

template <const Operator& (*get)(), CpuKernel kernel, class Result, class... Args>
struct Typed<get, kernel, Result(Args...)> {
  static Result cpu(Args... args) {
    const std::array<Argument, sizeof...(Args)> arguments{View<std::int64_t>::of(args)...};
    Outputs outputs;
    run_cpu(get(), kernel, arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result gpu(Args... args) {
    const std::array<Argument, sizeof...(Args)> arguments{View<std::int64_t>::of(args)...};
    Outputs outputs;
    run_gpu(get(), arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result meta(Args... args) {
    const std::array<BasicArgument<c10::SymInt>, sizeof...(Args)> arguments{
        View<c10::SymInt>::of(args)...};
    Outputs outputs;
    run_meta(get(), arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result autograd(c10::DispatchKeySet keys, Args... args) {
    const std::array<const at::Tensor*, sizeof...(Args)> tensors{tensor_or_null(args)...};
    refuse_gradient(get(), tensors);
    static const auto handle = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow(get().qualified_name().c_str(), "")
                                   .template typed<Result(Args...)>();
    return handle.redispatch(keys & c10::after_autograd_keyset, args...);
  }
};

}  // namespace detail

template <const Operator& (*get)(), CpuKernel cpu, class Signature>
Registration Registration::typed() {
  using Kernels = detail::Typed<get, cpu, Signature>;
  Registration registration(get());
  const std::string& name = get().name;
  torch::Library& library = registration.library_;
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(Kernels::cpu)));
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::CUDA, TORCH_FN(Kernels::gpu)));
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, TORCH_FN(Kernels::meta)));
  library.impl(name.c_str(),
               torch::dispatch(c10::DispatchKey::Autograd, TORCH_FN(Kernels::autograd)));
  return registration;
}

}  // namespace truefuse::binding
