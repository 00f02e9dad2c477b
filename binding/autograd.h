#pragma once

#include <span>

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <truefuse/operator/operator.h>

namespace truefuse::binding {

/// How PyTorch differentiates an operator: by another operator, by a composite, or not at all, and
/// then a call that would have to record a gradient is refused.
class Derivative {
 public:
  Derivative() = default;

  /// The registered operator `backward` computes the gradients. By their names in its contract,
  ///
  /// - it takes `grad_<output>` for each output of the forward operator that has a gradient, in
  ///   order; then the forward operator's arguments, in order; then the bools that follow;
  /// - it returns `grad_<argument> ... if <flag>` for each argument that has a gradient, in order,
  ///   where <flag> is one of those bools: whether this gradient is wanted.
  ///
  /// An incoming gradient that is missing is passed as None where the contract calls it optional,
  /// else as zeros; it is copied only where the contract asks for a layout that it does not have.
  static Derivative by(const Operator& backward);

  /// `function`, of the operator's signature, computes what the operator does in ATen calls that
  /// PyTorch can differentiate. It is called instead of the operator where a gradient is recorded.
  /// A backward operator with one can be differentiated again, as often as ATen can. It need not
  /// look at whether an output is wanted.
  template <auto function>
  static Derivative by_composite() {
    Derivative derivative;
    derivative.composite_ = c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(function));
    return derivative;
  }

  const Operator* backward() const { return backward_; }               ///< Null: none.
  const c10::KernelFunction& composite() const { return composite_; }  ///< Invalid: none.

 private:
  const Operator* backward_ = nullptr;
  c10::KernelFunction composite_;
};

/// What an operator's Autograd kernel does; made once, when the operator is registered.
class Autograd {
 public:
  /// Throws Error if the contract of the backward operator does not fit.
  Autograd(const Operator& op, const Derivative& derivative);

  /// Whether a call of these tensors (null: not given) has to record a gradient. Throws Error if
  /// one of them carries a tangent of forward mode, which nobody would propagate.
  bool records(std::span<const at::Tensor* const> tensors) const;

  /// Runs the operator, with the arguments that lie on the stack, and records its derivative; the
  /// outputs are on the stack afterwards.
  void record(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
              torch::jit::Stack& stack) const;

 private:
  friend class BackwardNode;

  void match(const Operator& backward);
  void record_composite(const c10::OperatorHandle& handle, c10::DispatchKeySet keys,
                        torch::jit::Stack& stack) const;

  const Operator& op_;
  Derivative derivative_;

  // Of the backward operator.
  struct Gradient {
    std::size_t argument;  ///< Of the forward operator.
    std::size_t output;    ///< Of the backward operator.
    std::size_t flag;      ///< Position of the bool among the backward operator's last arguments.
  };
  std::vector<std::size_t> outputs_;  ///< Outputs of the forward operator that have a gradient.
  std::vector<Gradient> gradients_;
  std::size_t flags_ = 0;
};

}  // namespace truefuse::binding
