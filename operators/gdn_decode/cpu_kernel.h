#pragma once

#include <cstdint>

#include <truefuse/operators/common_cpu/level.h>

namespace truefuse::gdn_decode {

// All `float*` of these kernels begin anywhere and have room for `count` rounded up to kPad; what
// lies beyond count is read and written freely, but its values matter to nobody.
inline constexpr std::int64_t kPad = 16;

/// alpha as 0 or 1 and its distance from that, the nearer one: one of 0.999 is then as exact as
/// what it takes away, which is what a thousand steps add up.
struct Decay {
  float whole, part;
};

/// The recurrent state of one value head in one slot, and what one token does to it.
struct HeadStep {
  const void* from;  ///< State before the token.
  void* to;          ///< State after it; may be `from`, and overlaps it only then.
  const float* q;    ///< [K], normalised and scaled. Zero beyond K, up to a multiple of kPad.
  const float* k;    ///< [K], normalised; likewise.
  const float* v;    ///< [V]
  float* out;        ///< [V]
  Decay decay;       ///< alpha
  float beta;
  std::int64_t K, V;
};

struct NormStep {
  const float* core;    ///< [V]
  const float* weight;  ///< [V]
  const float* gate;    ///< [V], z
  float* out;           ///< [V]
  float eps;
  bool gate_is_sigmoid;
  std::int64_t V;
};

/// The kernels of one instruction set. Arrays are indexed by element type: 0 f32, 1 f16, 2 bf16.
struct CpuKernels {
  /// to[i] = from[i * stride], exactly.
  void (*widen[3])(const void* from, std::int64_t stride, float* to, std::int64_t count);
  /// to[i] = from[i] to the nearest; writes exactly `count` elements.
  void (*narrow[3])(const float* from, void* to, std::int64_t count);
  /// Each value to the nearest of the type.
  void (*round[3])(float* values, std::int64_t count);

  /// y[c] = bias[c] + sum over w of weight[w * stride + c] x[w * stride + c]; bias may be null.
  void (*convolve)(const float* x, const float* weight, const float* bias, std::int64_t stride,
                   int taps, float* y, std::int64_t count);
  void (*silu)(float* values, std::int64_t count);
  /// values *= scale / sqrt(sum of squares + eps). Beyond count, values must be zero.
  void (*l2_normalise)(float* values, std::int64_t count, float eps, float scale);
  /// S = decay S; d = beta (v - S k); S = S + d k'; out = S q. [0]: S is [K, V]; [1]: S is [V, K].
  void (*delta_rule[3][2])(const HeadStep& step);
  /// out = core / sqrt(mean of squares + eps) weight act(gate). `rounding` is null, or rounds what
  /// is normalised, and `rounding_weighted` what is weighted.
  void (*gated_norm)(const NormStep& step, void (*rounding)(float*, std::int64_t),
                     void (*rounding_weighted)(float*, std::int64_t));
};

// Each is defined by cpu_kernel.cpp compiled for that level.
extern const CpuKernels kCpuKernels_base;
extern const CpuKernels kCpuKernels_avx2;
extern const CpuKernels kCpuKernels_avx512;

}  // namespace truefuse::gdn_decode
