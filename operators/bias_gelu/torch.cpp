#include <cmath>
#include <numbers>
#include <tuple>

#include <ATen/TensorOperators.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/special_erfc.h>

#include <truefuse/binding/registration.h>
#include <truefuse/operators/bias_gelu/backward.h>
#include <truefuse/operators/bias_gelu/operator.h>

namespace truefuse {

void bias_gelu_cpu(const Call& call);           // cpu.cpp
void bias_gelu_backward_cpu(const Call& call);  // cpu_backward.cpp

namespace {

/// gelu'(v) in ATen calls. Beyond the cut it is 0 or 1 in every dtype, as are its limits.
at::Tensor derivative(const at::Tensor& v, bool exact) {
  const at::Tensor cut = v.clamp(-40, 40);
  if (exact) {
    const at::Tensor density =
        at::exp(cut * cut * -0.5) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
    return at::special_erfc(cut * (-1 / std::numbers::sqrt2)) * 0.5 + cut * density;
  }
  const double two_root = 2 * std::sqrt(2 / std::numbers::pi);
  const at::Tensor square = cut * cut;
  const at::Tensor two_u = cut * (square * (two_root * 0.044715) + two_root);
  const at::Tensor slope = square * (3 * two_root * 0.044715) + two_root;
  return at::sigmoid(two_u) * (cut * at::sigmoid(-two_u) * slope + 1);
}

/// What the backward operator computes, for PyTorch to differentiate.
std::tuple<at::Tensor, at::Tensor> backward_composite(const at::Tensor& grad_out,
                                                      const at::Tensor& x, const at::Tensor& bias,
                                                      c10::string_view approximate,
                                                      bool /*x_wanted*/, bool /*bias_wanted*/) {
  const at::ScalarType type = x.scalar_type();
  const at::ScalarType compute = type == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor v = x.to(compute) + bias.to(compute);
  const at::Tensor gradient = grad_out.to(compute) * derivative(v, approximate == "none");
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
