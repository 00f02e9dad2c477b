#include <algorithm>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <truefuse/binding/autograd.h>
#include <truefuse/core/error.h>

namespace truefuse::binding {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// PyTorch counts the references to nodes in one way up to 2.12 or so, in another since.
using NodePointer = std::remove_cvref_t<decltype(std::declval<const at::Tensor&>().grad_fn())>;

template <class Node, class... Args>
NodePointer make_node(Args&&... args) {
  if constexpr (std::is_same_v<NodePointer, std::shared_ptr<torch::autograd::Node>>) {
    auto* const node = new Node(std::forward<Args>(args)...);
    return NodePointer(node, [](auto* last) { deleteNode(last); });
  } else {
    return c10::make_intrusive<Node>(std::forward<Args>(args)...);
  }
}

c10::OperatorHandle handle_of(const Operator& op) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(op.qualified_name().c_str(), "");
}

bool is_given(const at::Tensor& tensor) { return tensor.defined(); }

/// The tensor, or a copy of it if its layout is not what the contract asks for.
at::Tensor fitting(at::Tensor tensor, const TensorSpec& spec) {
  if (spec.layout == Layout::strided || tensor.dim() == 0) return tensor;
  if (spec.layout == Layout::rows_strided && tensor.sym_stride(-1) == 1) return tensor;
  return tensor.contiguous();
}

}  // namespace

/// Computes the gradients of one recorded call.
class BackwardNode final : public torch::autograd::Node {
 public:
  BackwardNode(const Autograd& rules, at::ArrayRef<c10::IValue> arguments)
      : rules_(rules), arguments_(arguments.begin(), arguments.end()), saved_(arguments.size()) {
    variable_list tensors;
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      if (!arguments_[i].isTensor()) continue;
      saved_[i] = SavedVariable(arguments_[i].toTensor(), /*is_output=*/false);
    }
    for (const Autograd::Gradient& gradient : rules_.gradients_) {
      const c10::IValue& argument = arguments_[gradient.argument];
      tensors.push_back(argument.isTensor() ? argument.toTensor() : at::Tensor());
    }
    set_next_edges(torch::autograd::collect_next_edges(tensors));
    for (c10::IValue& argument : arguments_) {
      if (argument.isTensor()) argument = c10::IValue();  // saved_ has it.
    }
  }

  variable_list apply(variable_list&& incoming) override {
    const std::scoped_lock lock(mutex_);
    const Operator& backward = *rules_.derivative_.backward();
    variable_list outgoing(rules_.gradients_.size());
    if (std::none_of(incoming.begin(), incoming.end(), is_given)) return outgoing;

    torch::jit::Stack stack;
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const ArgumentSpec& spec = backward.contract.arguments()[i];
      if (incoming[i].defined()) {
        stack.emplace_back(fitting(std::move(incoming[i]), *spec.tensor()));
      } else if (spec.optional) {
        stack.emplace_back();
      } else {
        stack.emplace_back(input_metadata(i).zeros_like());
      }
    }
    for (std::size_t i = 0; i < arguments_.size(); ++i) {
      at::Tensor saved = saved_[i].unpack();
      stack.push_back(saved.defined() ? c10::IValue(std::move(saved)) : arguments_[i]);
    }
    const std::size_t flags = stack.size();
    stack.resize(flags + rules_.flags_, false);
    for (std::size_t g = 0; g < outgoing.size(); ++g) {
      if (task_should_compute_output(g)) stack[flags + rules_.gradients_[g].flag] = true;
    }
    const torch::jit::Stack wanted(stack.begin() + static_cast<std::ptrdiff_t>(flags), stack.end());

    handle_of(backward).callBoxed(stack);
    for (std::size_t g = 0; g < outgoing.size(); ++g) {
      const Autograd::Gradient& gradient = rules_.gradients_[g];
      if (wanted[gradient.flag].toBool()) outgoing[g] = stack[gradient.output].toTensor();
    }
    return outgoing;
  }

  void release_variables() override {
    const std::scoped_lock lock(mutex_);
    for (SavedVariable& saved : saved_) saved.reset_data();
  }

  std::string name() const override { return rules_.derivative_.backward()->name; }

 private:
  const Autograd& rules_;
  torch::jit::Stack arguments_;  // Those that are no tensors.
  std::vector<SavedVariable> saved_;
};

Derivative Derivative::by(const Operator& backward) {
  Derivative derivative;
  derivative.backward_ = &backward;
  return derivative;
}

Autograd::Autograd(const Operator& op, const Derivative& derivative)
    : op_(op), derivative_(derivative) {
  if (derivative.backward() != nullptr) match(*derivative.backward());
}

void Autograd::match(const Operator& backward) {
  const auto& forward_arguments = op_.contract.arguments();
  const auto& arguments = backward.contract.arguments();
  const auto refuse = [&](const std::string& what) {
    throw Error(op_.name + ": " + backward.name + " cannot be its backward operator: " + what +
                ". A backward operator takes grad_<output>, then the arguments of " + op_.name +
                " in their order, then a bool for each gradient, and returns grad_<argument> ... "
                "if <bool>");
  };
  std::size_t next = 0;
  for (std::size_t i = 0; i < op_.contract.outputs().size(); ++i) {
    if (next == arguments.size()) break;
    if (arguments[next].name != "grad_" + op_.contract.outputs()[i].name) continue;
    if (arguments[next].tensor() == nullptr) refuse(arguments[next].name + " is no tensor");
    outputs_.push_back(i);
    ++next;
  }
  if (outputs_.empty()) refuse("it takes the gradient of no output; name one grad_<output>");
  for (const ArgumentSpec& argument : forward_arguments) {
    if (next == arguments.size() || arguments[next].name != argument.name) {
      refuse("argument " + std::to_string(next) + " must be " + argument.name + ", as " + op_.name +
             " has it");
    }
    ++next;
  }
  flags_ = arguments.size() - next;
  const auto& outputs = backward.contract.outputs();
  for (std::size_t i = 0; i < forward_arguments.size(); ++i) {
    for (std::size_t k = 0; k < outputs.size(); ++k) {
      if (outputs[k].name != "grad_" + forward_arguments[i].name) continue;
      if (forward_arguments[i].tensor() == nullptr || !outputs[k].wanted ||
          *outputs[k].wanted < next) {
        refuse(outputs[k].name + " must be the gradient of a tensor, and computed if one of the " +
               "last arguments, a bool, says so");
      }
      gradients_.push_back({i, k, *outputs[k].wanted - next});
    }
  }
  if (gradients_.size() != outputs.size() || gradients_.empty()) {
    refuse("each of its outputs must be grad_<argument>");
  }
}

bool Autograd::records(std::span<const at::Tensor* const> tensors) const {
  const bool enabled = c10::GradMode::is_enabled();
  bool records = false;
  for (const at::Tensor* tensor : tensors) {
    if (tensor == nullptr || !tensor->defined()) continue;
    // A tangent of forward mode counts also under no_grad.
    if (tensor->_fw_grad(/*level=*/0).defined()) {
      throw Error(
          op_.name +
          ": a tensor carries a forward-mode gradient (a tangent), and this operator has no "
          "forward-mode derivative; leaving it out silently would be wrong. Use reverse "
          "mode, or the eager form");
    }
    records |= enabled && tensor->requires_grad();
  }
  return records;
}

void Autograd::record(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack) const {
  if (derivative_.composite().isValid()) return record_composite(handle, keys, stack);
  if (derivative_.backward() == nullptr) {
    throw Error(op_.name +
                ": a gradient is required, but this operator has no derivative, and leaving it "
                "out silently would train a wrong model. Call it under torch.no_grad(), detach "
                "every argument that requires one, or use the eager form where you train");
  }
  const std::size_t count = op_.contract.arguments().size();
  const auto arguments = torch::jit::last(stack, count);
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool has_gradient = next < gradients_.size() && gradients_[next].argument == i;
    next += has_gradient ? 1 : 0;
    if (has_gradient || !arguments[i].isTensor() || !arguments[i].toTensor().requires_grad()) {
      continue;
    }
    const std::string& name = op_.contract.arguments()[i].name;
    throw Error(op_.name + ": " + name + " requires a gradient, but this operator has none with " +
                "respect to it. Pass " + name + ".detach(), or use the eager form where you train");
  }

  const NodePointer node = make_node<BackwardNode>(*this, arguments);
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    handle.redispatchBoxed(keys & c10::after_autograd_keyset, &stack);
  }
  const auto results = torch::jit::last(stack, op_.contract.outputs().size());
  for (const std::size_t output : outputs_) {
    torch::autograd::set_history(results[output].toTensor(), node);
  }
}

void Autograd::record_composite(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                                torch::jit::Stack& stack) const {
  const auto& outputs = op_.contract.outputs();
  const auto arguments = torch::jit::last(stack, op_.contract.arguments().size()).vec();
  derivative_.composite().callBoxed(handle, keys, &stack);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    c10::IValue& result = torch::jit::peek(stack, i, outputs.size());
    if (outputs[i].wanted && !arguments[*outputs[i].wanted].toBool()) {
      result = at::empty({0}, result.toTensor().options());
    }
  }
}

}  // namespace truefuse::binding
