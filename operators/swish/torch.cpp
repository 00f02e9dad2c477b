#include <truefuse/binding/registration.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {

void swish_cpu(const Call& call);  // cpu.cpp, once per instruction set
void swish_backward_cpu(const Call& call);

namespace {

using Forward = at::Tensor(const at::Tensor& x);
using Backward = at::Tensor(const at::Tensor& grad, const at::Tensor& x);
const auto forward = binding::Registration::typed<swish_operator, swish_cpu, Forward>();
const auto backward =
    binding::Registration::typed<swish_backward_operator, swish_backward_cpu, Backward>();

}  // namespace
}  // namespace truefuse
