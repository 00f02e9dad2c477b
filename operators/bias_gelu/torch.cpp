#include <tuple>

#include <ATen/TensorOperators.h>

#include <truefuse/binding/registration.h>
#include <truefuse/operators/bias_gelu/backward.h>
#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/common_torch/activation.h>

namespace truefuse {

void bias_gelu_cpu(const Call& call);           // cpu.cpp
void bias_gelu_backward_cpu(const Call& call);  // cpu_backward.cpp

namespace {

/// What the backward operator computes, for PyTorch to differentiate.
std::tuple<at::Tensor, at::Tensor> backward_composite(const at::Tensor& grad_out,
                                                      const at::Tensor& x, const at::Tensor& bias,
                                                      c10::string_view approximate,
                                                      bool /*x_wanted*/, bool /*bias_wanted*/) {
  const at::ScalarType type = x.scalar_type();
  const at::ScalarType compute = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor v = x.to(compute) + bias.to(compute);
  const at::Tensor gradient =
      grad_out.to(compute) * differentiable::gelu(approximate).derivative(v);
  at::Tensor sum = gradient;
  while (sum.dim() > 1) sum = sum.sum(0);
  return {gradient.to(type), sum.to(type)};
}

using binding::Derivative;
using binding::Registration;

using Forward = at::Tensor(const at::Tensor& x, const at::Tensor& bias,
                           c10::string_view approximate);
const auto forward = Registration::typed<bias_gelu_operator, bias_gelu_cpu, Forward>(
    Derivative::by(bias_gelu_backward_operator()));

using Backward = std::tuple<at::Tensor, at::Tensor>(const at::Tensor& grad_out, const at::Tensor& x,
                                                    const at::Tensor& bias,
                                                    c10::string_view approximate, bool x_wanted,
                                                    bool bias_wanted);
const auto backward =
    Registration::typed<bias_gelu_backward_operator, bias_gelu_backward_cpu, Backward>(
        Derivative::by_composite<backward_composite>());

}  // namespace
}  // namespace truefuse
