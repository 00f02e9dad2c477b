#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/swish/functions.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {

at::Tensor swish(const at::Tensor& x) {
  return binding::handle_of<swish_operator, at::Tensor(const at::Tensor&)>().call(x);
}

}  // namespace truefuse
