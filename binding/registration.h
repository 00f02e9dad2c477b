#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <truefuse/binding/autograd.h>
#include <truefuse/binding/call.h>

namespace truefuse::binding {

/// An operator's entry in PyTorch's dispatcher, for as long as this object lives: the schema, and
/// kernels for CPU, CUDA (which is ROCm and DCU too), Meta, Autograd and autocast, and
/// ADInplaceOrView where the contract says that an argument is written. Made by a library for each
/// of its operators, as a static object. Throws Error if the schema and the contract differ in the
/// arguments.
///
/// `boxed` works for every schema from the description alone. `typed` gives PyTorch a plain
/// function of the schema's C++ signature, which is a microsecond cheaper to call; both end in the
/// same code.
class Registration {
 public:
  static Registration boxed(const Operator& op, const CpuFunction& cpu = nullptr,
                            const Derivative& derivative = {});

  /// The same without a kernel for CPU tensors, which somebody else registers.
  static Registration without_cpu(const Operator& op, const Derivative& derivative = {});

  /// Nor one for tensors on a GPU.
  static Registration without_devices(const Operator& op, const Derivative& derivative = {});

  /// `get` returns the operator's description; `Signature` is its schema in C++, for instance
  /// at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view). PyTorch refuses a
  /// signature that does not fit the schema.
  template <const Operator& (*get)(), CpuKernel cpu, class Signature>
  static Registration typed(const Derivative& derivative = {});

 private:
  Registration(const Operator& op, const Derivative& derivative);

  struct Unregister {
    void operator()(const Operator* op) const { unregister_operator(*op); }
  };

  std::shared_ptr<const Autograd> autograd_;

  torch::Library library_;
  std::unique_ptr<const Operator, Unregister> entry_;  // In the engine's table.
};

namespace detail {

inline at::Tensor taken(at::Tensor& value) { return std::move(value); }
inline at::Tensor taken(c10::IValue& value) { return std::move(value).toTensor(); }

/// The result of the C++ signature from the outputs, or from a stack that holds them.
template <class Result>
struct Returned {
  template <class Values, std::size_t... i>
  static Result from(Values& values, std::index_sequence<i...>) {
    return Result{taken(values[i])...};
  }
  template <class Values>
  static Result from(Values& values) {
    return from(values, std::make_index_sequence<std::tuple_size_v<Result>>{});
  }
};
template <>
struct Returned<at::Tensor> {
  template <class Values>
  static at::Tensor from(Values& values) {
    return taken(values[0]);
  }
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
    if (!rules->records(tensors)) {
      return handle().redispatch(keys & c10::after_autograd_keyset, args...);
    }
    torch::jit::Stack stack;
    torch::jit::push(stack, args...);
    rules->record(handle(), keys, stack);
    return Returned<Result>::from(stack);
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

  /// Set when the operator is registered.
  static inline std::shared_ptr<const Autograd> rules;
};

}  // namespace detail

template <const Operator& (*get)(), CpuKernel cpu, class Signature>
Registration Registration::typed(const Derivative& derivative) {
  using Kernels = detail::Typed<get, cpu, Signature>;
  Registration registration(get(), derivative);
  Kernels::rules = registration.autograd_;
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
