// The CPU path: which kernel, on which elements. Compiled once, for every processor.

#include <array>

#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/swish/cpu_kernel.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {
namespace swish {
namespace {

const CpuKernels& kernels() { return TRUEFUSE_KERNELS_OF_LEVEL(kCpuKernels); }

}  // namespace
}  // namespace swish

void swish_cpu(const Call& call) {
  const TensorView& out = call.outputs[0];
  const std::array operands{common::Operand(out), common::Operand(call.tensor(0))};
  cpu::run_elementwise({out.dtype, out.sizes, operands}, swish::kernels().forward);
}

void swish_backward_cpu(const Call& call) {
  if (!call.flag(swish::kXWanted)) return;
  const TensorView& out = call.outputs[0];
  const std::array operands{common::Operand(out), common::Operand(call.tensor(0)),
                            common::Operand(call.tensor(1))};
  cpu::run_elementwise({out.dtype, out.sizes, operands}, swish::kernels().backward);
}

}  // namespace truefuse
