#pragma once

#include <truefuse/operators/common_cpu/elementwise.h>

namespace truefuse::swish {

/// The kernels of one instruction set: (out; x) and (grad_x; grad_out, x).
struct CpuKernels {
  cpu::ElementwiseKernels forward, backward;
};

// Each is defined by cpu_kernel.cpp compiled for that level.
extern const CpuKernels kCpuKernels_base;
extern const CpuKernels kCpuKernels_avx2;
extern const CpuKernels kCpuKernels_avx512;

}  // namespace truefuse::swish
