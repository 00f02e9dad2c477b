#pragma once

#include <truefuse/operators/common_cpu/elementwise.h>

namespace truefuse::gated {

/// The kernels of one instruction set, by gated::Activation and whether the activated gate is
/// rounded: (out; gate, up) and (grad_gate, grad_up; grad_out, gate, up).
struct CpuKernels {
  cpu::ElementwiseKernels forward[3][2], backward[3][2];
};

// Each is defined by cpu_kernel.cpp compiled for that level.
extern const CpuKernels kCpuKernels_base;
extern const CpuKernels kCpuKernels_avx2;
extern const CpuKernels kCpuKernels_avx512;

}  // namespace truefuse::gated
