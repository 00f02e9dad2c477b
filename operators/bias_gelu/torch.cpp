#include <truefuse/binding/registration.h>
#include <truefuse/operators/bias_gelu/operator.h>

namespace truefuse {

void bias_gelu_cpu(const Call& call);  // cpu.cpp, once per instruction set

namespace {

using Signature = at::Tensor(const at::Tensor& x, const at::Tensor& bias,
                             c10::string_view approximate);
const auto registration =
    binding::Registration::typed<bias_gelu_operator, bias_gelu_cpu, Signature>();

}  // namespace
}  // namespace truefuse
