// The CPU path: which kernel, on which elements. Compiled once, for every processor.

#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/gated/cpu.h>
#include <truefuse/operators/gated/cpu_kernel.h>

namespace truefuse::gated {
namespace {

const CpuKernels& kernels() { return TRUEFUSE_KERNELS_OF_LEVEL(kCpuKernels); }

}  // namespace

template <bool kGeglu, bool kPacked, bool kBackward>
void run_on_cpu(const Call& call) {
  const GatedCall gated(call, {kGeglu, kPacked, kBackward});
  if (!gated.wanted) return;
  const auto& table = kBackward ? kernels().backward : kernels().forward;
  cpu::run_elementwise({gated.dtype(), gated.sizes, gated.view()},
                       table[static_cast<int>(gated.activation)][gated.round_gate]);
}

template void run_on_cpu<false, false, false>(const Call&);
template void run_on_cpu<false, false, true>(const Call&);
template void run_on_cpu<false, true, false>(const Call&);
template void run_on_cpu<false, true, true>(const Call&);
template void run_on_cpu<true, false, false>(const Call&);
template void run_on_cpu<true, false, true>(const Call&);
template void run_on_cpu<true, true, false>(const Call&);
template void run_on_cpu<true, true, true>(const Call&);

}  // namespace truefuse::gated
