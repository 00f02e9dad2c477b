#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <truefuse/operator/operator.h>
#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/gated/activation.h>

namespace truefuse {

/// out = activation(gate) up, with swish (swiglu) or gelu (geglu) as activation; gate and up are
/// two tensors or lie in one packed tensor. See the schemas and the contracts in operator.cpp.
const Operator& swiglu_operator();
const Operator& geglu_operator();
const Operator& swiglu_packed_operator();
const Operator& geglu_packed_operator();

/// Their gradients.
const Operator& swiglu_backward_operator();
const Operator& geglu_backward_operator();
const Operator& swiglu_packed_backward_operator();
const Operator& geglu_packed_backward_operator();

namespace gated {

/// Which of the operators.
struct Kind {
  bool geglu, packed, backward;
};

/// A call of any of them, as kernels and CPU paths see it.
struct GatedCall {
  Activation activation;
  bool round_gate;
  bool gate_first;  ///< In the packed tensor.
  std::span<const std::int64_t> sizes;
  /// out, gate, up; or grad_gate, grad_up, grad_out, gate, up. The data of an output that is not
  /// wanted is null.
  std::array<common::Operand, 5> operands;
  std::size_t count;
  bool wanted;  ///< Any output.

  GatedCall(const Call& call, const Kind& kind);

  DType dtype() const { return dtype_; }
  std::span<const common::Operand> view() const { return {operands.data(), count}; }

 private:
  DType dtype_;
};

/// Pure: see Operator::plan.
template <bool kGeglu, bool kPacked, bool kBackward>
void plan(const Call& call, const DeviceFacts& device, Plan& plan);

/// All that they can ask for.
std::vector<Operator::NamedVariant> variants(const Kind& kind, const DeviceFacts& device);

std::vector<std::string> constant_names();

}  // namespace gated
}  // namespace truefuse
