#pragma once

#include <cstdint>

#include <truefuse/operators/common_cpu/level.h>

namespace truefuse::bias_gelu::backward {

/// For `columns` neighbouring elements of one row: grad_x = grad_out gelu'(x + bias), unrounded
/// added to `sums`. Elements are of one type, sums of the type that it is computed in. grad_x and
/// sums may be null, then they are left out; they overlap nothing else. Any alignment.
using CpuKernel = void (*)(const void* grad_out, const void* x, const void* bias, void* grad_x,
                           void* sums, std::int64_t columns);

/// The kernels of one instruction set, by element type, tanh form first.
struct CpuKernels {
  CpuKernel f64[2], f32[2], f16[2], bf16[2];
  /// Rounds `columns` numbers to a half type, to the nearest, ties to even.
  void (*round_f16)(const float* from, void* to, std::int64_t columns);
  void (*round_bf16)(const float* from, void* to, std::int64_t columns);
};

// Each is defined by cpu_backward_kernel.cpp compiled for that level.
extern const CpuKernels kBackwardKernels_base;
extern const CpuKernels kBackwardKernels_avx2;
extern const CpuKernels kBackwardKernels_avx512;

}  // namespace truefuse::bias_gelu::backward
