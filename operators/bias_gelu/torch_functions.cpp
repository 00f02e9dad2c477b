#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/bias_gelu/functions.h>

namespace truefuse {

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view);
  static const auto op = binding::registered<Signature>("truefuse::bias_gelu");
  return op.call(x, bias, c10::string_view(approximate.data(), approximate.size()));
}

}  // namespace truefuse
