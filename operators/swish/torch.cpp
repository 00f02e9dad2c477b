#include <ATen/TensorOperators.h>

#include <truefuse/binding/registration.h>
#include <truefuse/operators/common_torch/activation.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {

void swish_cpu(const Call& call);  // cpu.cpp, once per instruction set
void swish_backward_cpu(const Call& call);

namespace {

using binding::Derivative;
using binding::Registration;

/// What can be differentiated again.
at::Tensor composite(const at::Tensor& grad_out, const at::Tensor& x, bool /*x_wanted*/) {
  const differentiable::Wide wide(x);
  return wide.down(wide.up(grad_out) * differentiable::swish().derivative(wide.up(x)));
}

const auto backward = Registration::typed<swish_backward_operator, swish_backward_cpu,
                                          at::Tensor(const at::Tensor&, const at::Tensor&, bool)>(
    Derivative::by_composite<composite>());
const auto forward = Registration::typed<swish_operator, swish_cpu, at::Tensor(const at::Tensor&)>(
    Derivative::by(swish_backward_operator()));

}  // namespace
}  // namespace truefuse
