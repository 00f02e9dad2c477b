#pragma once

#include <cstdint>

#include <truefuse/operators/common_cpu/level.h>

namespace truefuse::bias_gelu {

/// out[r, c] = gelu(x[r, c] + bias[c]) for `rows` rows of `columns` columns. Elements of all three
/// are of one type; `x_stride` elements lie from row to row of x, `columns` in `out`, which
/// overlaps neither x nor bias. Any alignment.
using CpuKernel = void (*)(const void* x, std::int64_t x_stride, const void* bias, void* out,
                           std::int64_t rows, std::int64_t columns);

/// The kernels of one instruction set, by element type, tanh form first.
struct CpuKernels {
  CpuKernel f64[2], f32[2], f16[2], bf16[2];
};

// Each is defined by cpu_kernel.cpp compiled for that level.
extern const CpuKernels kCpuKernels_base;
extern const CpuKernels kCpuKernels_avx2;
extern const CpuKernels kCpuKernels_avx512;

}  // namespace truefuse::bias_gelu
