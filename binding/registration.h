#pragma once

#include <tuple>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <truefuse/binding/call.h>

namespace truefuse::binding {

/// An operator's entry in PyTorch's dispatcher, for as long as this object lives: the schema, and
/// kernels for CPU, CUDA (which is ROCm and DCU too), Meta and Autograd, and ADInplaceOrView where
/// the contract says that an argument is written. Made by a library for each of its operators, as a
/// static object. Throws Error if the schema and the contract differ in the arguments.
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
  template <class Dim, std::size_t... i>
  static std::array<BasicArgument<Dim>, sizeof...(Args)> views(std::index_sequence<i...>,
                                                               const Args&... args) {
    const std::vector<ArgumentSpec>& specs = get().contract.arguments();
    return {View<Dim>::of(args, specs[i])...};
  }
  static constexpr auto kAll = std::index_sequence_for<Args...>{};

  static Result cpu(Args... args) {
    const auto arguments = views<std::int64_t>(kAll, args...);
    Outputs outputs;
    run_cpu(get(), kernel, arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result gpu(Args... args) {
    const auto arguments = views<std::int64_t>(kAll, args...);
    Outputs outputs;
    run_gpu(get(), arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result meta(Args... args) {
    const auto arguments = views<c10::SymInt>(kAll, args...);
    Outputs outputs;
    run_meta(get(), arguments, outputs);
    return Returned<Result>::from(outputs);
  }

  static Result autograd(c10::DispatchKeySet keys, Args... args) {
    const std::array<const at::Tensor*, sizeof...(Args)> tensors{tensor_or_null(args)...};
    refuse_gradient(get(), tensors);
    return handle().redispatch(keys & c10::after_autograd_keyset, args...);
  }

  static Result in_place(c10::DispatchKeySet keys, Args... args) {
    const std::array<const at::Tensor*, sizeof...(Args)> tensors{tensor_or_null(args)...};
    refuse_inference_tensors(get(), tensors);
    Result result = handle().redispatch(keys & c10::after_ADInplaceOrView_keyset, args...);
    bump_versions(get(), tensors);
    return result;
  }

  static const c10::TypedOperatorHandle<Result(Args...)>& handle() {
    static const auto found = c10::Dispatcher::singleton()
                                  .findSchemaOrThrow(get().qualified_name().c_str(), "")
                                  .template typed<Result(Args...)>();
    return found;
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
  if (get().contract.mutates()) {
    library.impl(name.c_str(),
                 torch::dispatch(c10::DispatchKey::ADInplaceOrView, TORCH_FN(Kernels::in_place)));
  }
  return registration;
}

}  // namespace truefuse::binding
