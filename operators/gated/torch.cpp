#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>

#include <truefuse/binding/registration.h>
#include <truefuse/operators/common_torch/activation.h>
#include <truefuse/operators/gated/cpu.h>

namespace truefuse::gated {
namespace {

using at::Tensor;
using binding::Derivative;
using binding::Registration;
using Text = c10::string_view;

// What can be differentiated again: the gradients in ATen, half types in fp32.

template <class Function>
std::tuple<Tensor, Tensor> gradients(const Function& function, const Tensor& grad_out,
                                     const Tensor& gate, const Tensor& up, Text gate_rounding) {
  const differentiable::Wide wide(gate);
  const Tensor g = wide.up(grad_out), x = wide.up(gate), u = wide.up(up);
  Tensor activated = function.value(x);
  if (gate_rounding == "storage") activated = wide.up(wide.down(activated));
  return {wide.down(g * u * function.derivative(x)), wide.down(g * activated)};
}

template <class Function>
Tensor packed_gradient(const Function& function, const Tensor& grad_out, const Tensor& packed,
                       Text packing, Text gate_rounding) {
  const bool interleaved = packing.size() > 7;
  const bool gate_first = packing[0] == 'g';
  const c10::SymInt hidden = packed.sym_size(-1) / 2;
  const auto part = [&](int i) {
    return interleaved ? packed.slice_symint(-1, i, std::nullopt, 2)
                       : packed.narrow_symint(-1, i * hidden, hidden);
  };
  const auto [gate, up] = gradients(function, grad_out, part(gate_first ? 0 : 1),
                                    part(gate_first ? 1 : 0), gate_rounding);
  const Tensor& first = gate_first ? gate : up;
  const Tensor& second = gate_first ? up : gate;
  return interleaved ? at::stack({first, second}, -1).flatten(-2) : at::cat({first, second}, -1);
}

std::tuple<Tensor, Tensor> swiglu(const Tensor& grad_out, const Tensor& gate, const Tensor& up,
                                  Text gate_rounding, bool /*gate_wanted*/, bool /*up_wanted*/) {
  return gradients(differentiable::swish(), grad_out, gate, up, gate_rounding);
}
std::tuple<Tensor, Tensor> geglu(const Tensor& grad_out, const Tensor& gate, const Tensor& up,
                                 Text approximate, Text gate_rounding, bool /*gate_wanted*/,
                                 bool /*up_wanted*/) {
  return gradients(differentiable::gelu(approximate), grad_out, gate, up, gate_rounding);
}
Tensor swiglu_packed(const Tensor& grad_out, const Tensor& packed, Text packing, Text gate_rounding,
                     bool /*packed_wanted*/) {
  return packed_gradient(differentiable::swish(), grad_out, packed, packing, gate_rounding);
}
Tensor geglu_packed(const Tensor& grad_out, const Tensor& packed, Text packing, Text approximate,
                    Text gate_rounding, bool /*packed_wanted*/) {
  return packed_gradient(differentiable::gelu(approximate), grad_out, packed, packing,
                         gate_rounding);
}

// The registrations.

const auto swiglu_backward =
    Registration::typed<swiglu_backward_operator, run_on_cpu<false, false, true>, decltype(swiglu)>(
        Derivative::by_composite<swiglu>());
const auto geglu_backward =
    Registration::typed<geglu_backward_operator, run_on_cpu<true, false, true>, decltype(geglu)>(
        Derivative::by_composite<geglu>());
const auto swiglu_packed_backward =
    Registration::typed<swiglu_packed_backward_operator, run_on_cpu<false, true, true>,
                        decltype(swiglu_packed)>(Derivative::by_composite<swiglu_packed>());
const auto geglu_packed_backward =
    Registration::typed<geglu_packed_backward_operator, run_on_cpu<true, true, true>,
                        decltype(geglu_packed)>(Derivative::by_composite<geglu_packed>());

const auto swiglu_forward =
    Registration::typed<swiglu_operator, run_on_cpu<false, false, false>,
                        Tensor(const Tensor& gate, const Tensor& up, Text gate_rounding)>(
        Derivative::by(swiglu_backward_operator()));
const auto geglu_forward =
    Registration::typed<geglu_operator, run_on_cpu<true, false, false>,
                        Tensor(const Tensor& gate, const Tensor& up, Text approximate,
                               Text gate_rounding)>(Derivative::by(geglu_backward_operator()));
const auto swiglu_packed_forward =
    Registration::typed<swiglu_packed_operator, run_on_cpu<false, true, false>,
                        Tensor(const Tensor& packed, Text packing, Text gate_rounding)>(
        Derivative::by(swiglu_packed_backward_operator()));
const auto geglu_packed_forward =
    Registration::typed<geglu_packed_operator, run_on_cpu<true, true, false>,
                        Tensor(const Tensor& packed, Text packing, Text approximate,
                               Text gate_rounding)>(
        Derivative::by(geglu_packed_backward_operator()));

}  // namespace
}  // namespace truefuse::gated
