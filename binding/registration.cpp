#include <memory>
#include <vector>

#include <truefuse/binding/autocast.h>
#include <truefuse/binding/registration.h>
#include <truefuse/binding/schema.h>

namespace truefuse::binding {
namespace {

/// Views of the IValues on a dispatcher stack. The tensors stay on the stack meanwhile.
template <class Dim>
c10::SmallVector<BasicArgument<Dim>, 8> arguments_of(const torch::jit::Stack& stack,
                                                     const Operator& op) {
  const std::vector<ArgumentSpec>& specs = op.contract.arguments();
  const std::size_t count = specs.size();
  c10::SmallVector<BasicArgument<Dim>, 8> arguments;
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      arguments.push_back(View<Dim>::of(value.toTensor(), specs[arguments.size()]));
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

/// An entry for every argument: null for what is no tensor.
c10::SmallVector<const at::Tensor*, 8> tensors_of(const torch::jit::Stack& stack,
                                                  std::size_t count) {
  c10::SmallVector<const at::Tensor*, 8> tensors;
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    tensors.push_back(stack[i].isTensor() ? &stack[i].toTensor() : nullptr);
  }
  return tensors;
}

void replace(torch::jit::Stack& stack, std::size_t count, Outputs& outputs) {
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  for (at::Tensor& output : outputs) stack.emplace_back(std::move(output));
}

class CpuBoxed final : public c10::OperatorKernel {
 public:
  CpuBoxed(const Operator& op, CpuFunction kernel) : op_(op), kernel_(std::move(kernel)) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    Outputs outputs;
    run_cpu(op_, kernel_, arguments_of<std::int64_t>(*stack, op_), outputs);
    replace(*stack, count, outputs);
  }

 private:
  const Operator& op_;
  CpuFunction kernel_;
};

class GpuBoxed final : public c10::OperatorKernel {
 public:
  explicit GpuBoxed(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/,
                  torch::jit::Stack* stack) {
    const std::size_t count = handle.schema().arguments().size();
    Outputs outputs;
    run_gpu(op_, arguments_of<std::int64_t>(*stack, op_), outputs);
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
    run_meta(op_, arguments_of<c10::SymInt>(*stack, op_), outputs);
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
    if (rules_->records(tensors_of(*stack, handle.schema().arguments().size()))) {
      rules_->record(handle, keys, *stack);
    } else {
      handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
  }

 private:
  std::shared_ptr<const Autograd> rules_;
};

class InPlaceBoxed final : public c10::OperatorKernel {
 public:
  explicit InPlaceBoxed(const Operator& op) : op_(op) {}
  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    // The stack holds the results afterwards, so the tensors are kept beside it.
    std::vector<at::Tensor> kept;
    for (const at::Tensor* tensor : tensors_of(*stack, op_.contract.arguments().size())) {
      kept.push_back(tensor == nullptr ? at::Tensor() : *tensor);
    }
    c10::SmallVector<const at::Tensor*, 8> tensors;
    for (const at::Tensor& tensor : kept) tensors.push_back(&tensor);
    refuse_inference_tensors(op_, tensors);
    handle.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    bump_versions(op_, tensors);
  }

 private:
  const Operator& op_;
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
  // The contract looks at strides, so the compiler must keep their order; PyTorch 2.5 does not by
  // itself.
  c10::FunctionSchema schema = torch::schema(op.schema.c_str());
  require_same(op, schema);
  library_.def(std::move(schema), {at::Tag::pt2_compliant_tag, at::Tag::needs_fixed_stride_order});
  register_autocast(library_, op);
  // Last: if PyTorch refuses the schema, the name stays free.
  register_operator(op);
  entry_.reset(&op);
}

Registration Registration::boxed(const Operator& op, const CpuFunction& cpu,
                                 const Derivative& derivative) {
  Registration registration = without_cpu(op, derivative);
  registration.library_.impl(op.name.c_str(),
                             boxed_function<CpuBoxed>(c10::DispatchKey::CPU, op, cpu));
  return registration;
}

Registration Registration::without_cpu(const Operator& op, const Derivative& derivative) {
  Registration registration = without_devices(op, derivative);
  registration.library_.impl(op.name.c_str(), boxed_function<GpuBoxed>(c10::DispatchKey::CUDA, op));
  return registration;
}

Registration Registration::without_devices(const Operator& op, const Derivative& derivative) {
  Registration registration(op, derivative);
  torch::Library& library = registration.library_;
  const char* name = op.name.c_str();
  library.impl(name, boxed_function<MetaBoxed>(c10::DispatchKey::Meta, op));
  library.impl(name,
               boxed_function<AutogradBoxed>(c10::DispatchKey::Autograd, registration.autograd_));
  if (op.contract.mutates()) {
    library.impl(name, boxed_function<InPlaceBoxed>(c10::DispatchKey::ADInplaceOrView, op));
  }
  return registration;
}

}  // namespace truefuse::binding
