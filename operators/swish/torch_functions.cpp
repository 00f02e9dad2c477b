#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/swish/functions.h>

namespace truefuse {

at::Tensor swish(const at::Tensor& x) {
  static const auto op = binding::registered<at::Tensor(const at::Tensor&)>("truefuse::swish");
  return op.call(x);
}

}  // namespace truefuse
