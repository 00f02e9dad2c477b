#include <memory>
#include <vector>

#include <truefuse/binding/autocast.h>
#include <truefuse/binding/registration.h>

namespace truefuse::binding {
namespace {

/// Views of the IValues on a dispatcher stack. The tensors stay on the stack meanwhile.
template <class Dim>
c10::SmallVector<BasicArgument<Dim>, 8> arguments_of(const torch::jit::Stack& stack,
                                                     std::size_t count) {
  c10::SmallVector<BasicArgument<Dim>, 8> arguments;
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      arguments.push_back(View<Dim>::of(value.toTensor()));
    } else if (value.isInt()) {
      arguments.push_back(value.toInt());
    } else if (value.isDouble()) {
      arguments.push_back(value.toDouble());
    } else if (value.isBool()) {
      arguments.push_back(value.toBool());
    } else if (value.isString()) {
      arguments.push_back(std::string_view(value.toStringRef()));
    } else if (value.isNone()) {
      arguments.push_back(std::monostate{});
    } else {
      throw Error("argument " + std::to_string(i - (stack.size() - count)) + " is a " +
                  value.tagKind() + ", which no contract can describe");
    }
  }
  return arguments;
}

void replace(torch::jit::Stack& stack, std::size_t count, Outputs& outputs) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (at::Tensor& output : outputs) stack.emplace_back(std::move(output));
}

class CpuBoxed final : public c10::OperatorKernel {
 public:
  CpuBoxed(const Operator& op, CpuKernel kernel) : op_(op), kernel_(kernel) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    Outputs outputs;
    run_cpu(op_, kernel_, arguments_of<std::int64_t>(*stack, count), outputs);
    replace(*stack, count, outputs);
  }

 private:
  const Operator& op_;
  CpuKernel kernel_;
};

class GpuBoxed final : public c10::OperatorKernel {
 public:
  explicit GpuBoxed(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    Outputs outputs;
    run_gpu(op_, arguments_of<std::int64_t>(*stack, count), outputs);
    replace(*stack, count, outputs);
  }

 private:
  const Operator& op_;
};

class MetaBoxed final : public c10::OperatorKernel {
 public:
  explicit MetaBoxed(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    Outputs outputs;
    run_meta(op_, arguments_of<c10::SymInt>(*stack, count), outputs);
    replace(*stack, count, outputs);
  }

 private:
  const Operator& op_;
};

class AutogradBoxed final : public c10::OperatorKernel {
 public:
  explicit AutogradBoxed(std::shared_ptr<const Autograd> rules) : rules_(std::move(rules)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    c10::SmallVector<const at::Tensor*, 8> tensors;
    const std::size_t count = handle.schema().arguments().size();
    for (std::size_t i = stack->size() - count; i < stack->size(); ++i) {
      if ((*stack)[i].isTensor()) tensors.push_back(&(*stack)[i].toTensor());
    }
    if (rules_->records(tensors)) {
      rules_->record(handle, keys, *stack);
    } else {
      handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
  }

 private:
  std::shared_ptr<const Autograd> rules_;
};

template <class Kernel, class... Args>
torch::CppFunction boxed_function(c10::DispatchKey key, Args&&... args) {
  return torch::dispatch(key,
                         torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(
                             std::make_unique<Kernel>(std::forward<Args>(args)...))));
}

}  // namespace

Registration::Registration(const Operator& op, const Derivative& derivative)
    : autograd_(std::make_shared<const Autograd>(op, derivative)),
      library_(torch::Library::FRAGMENT, op.name_space, std::nullopt, __FILE__, __LINE__) {
  if (op.contract.mutates()) {
    throw Error(op.name +
                ": its contract mutates an argument, which the registration with PyTorch does not "
                "support yet (version counters, copy-on-write). Return a new tensor instead");
  }
  // The contract looks at strides, so the compiler must keep their order; PyTorch 2.5 does not by
  // itself.
  library_.def(op.schema.c_str(), {at::Tag::pt2_compliant_tag, at::Tag::needs_fixed_stride_order});
  register_autocast(library_, op);
  // Last: if PyTorch refuses the schema, the name stays free.
  register_operator(op);
}

Registration Registration::boxed(const Operator& op, CpuKernel cpu, const Derivative& derivative) {
  Registration registration(op, derivative);
  torch::Library& library = registration.library_;
  const char* name = op.name.c_str();
  library.impl(name, boxed_function<CpuBoxed>(c10::DispatchKey::CPU, op, cpu));
  library.impl(name, boxed_function<GpuBoxed>(c10::DispatchKey::CUDA, op));
  library.impl(name, boxed_function<MetaBoxed>(c10::DispatchKey::Meta, op));
  library.impl(name,
               boxed_function<AutogradBoxed>(c10::DispatchKey::Autograd, registration.autograd_));
  return registration;
}

}  // namespace truefuse::binding
