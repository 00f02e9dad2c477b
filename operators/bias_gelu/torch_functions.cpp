#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/bias_gelu/functions.h>
#include <truefuse/operators/bias_gelu/operator.h>

namespace truefuse {

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, std::string_view approximate) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, c10::string_view);
  return binding::handle_of<bias_gelu_operator, Signature>().call(
      x, bias, {approximate.data(), approximate.size()});
}

}  // namespace truefuse
