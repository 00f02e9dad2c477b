#pragma once

#include "truefuse/device/types.h"

// Scalar math for float and double. Errors are the largest known, in units in the last place from
// the exact value, as CUDA / AMD. CUDA's for float are measured over all 2^32 inputs on an H200
// (CUDA 13.0), for double taken from the programming guide. AMD's are measured by LLVM libc's
// conformance runs or, marked <=, the OpenCL bound that the device library keeps. Subnormals are
// kept except by the *_fast functions. The vendors differ in the last places: never compare them
// bit by bit.

#if defined(TF_PLATFORM_CUDA) || defined(TF_PLATFORM_HIP)
#define TF_LIBM(function) ::function
#else
#define TF_LIBM(function) __builtin_##function
#endif

namespace tf {

/// a * b + c with one rounding; exact everywhere.
TF_DEVICE float fma(float a, float b, float c) { return TF_LIBM(fmaf)(a, b, c); }
TF_DEVICE double fma(double a, double b, double c) { return TF_LIBM(fma)(a, b, c); }

TF_DEVICE float abs(float x) { return TF_LIBM(fabsf)(x); }
TF_DEVICE double abs(double x) { return TF_LIBM(fabs)(x); }

/// If one operand is a NaN the result is the other one; a NaN only from two NaNs. Which zero comes
/// out of (-0, +0) is not defined.
TF_DEVICE float min(float a, float b) { return TF_LIBM(fminf)(a, b); }
TF_DEVICE double min(double a, double b) { return TF_LIBM(fmin)(a, b); }
TF_DEVICE float max(float a, float b) { return TF_LIBM(fmaxf)(a, b); }
TF_DEVICE double max(double a, double b) { return TF_LIBM(fmax)(a, b); }

/// The larger operand; a NaN in `a` stays (from sm_80 on it is one instruction, and one in `b`
/// stays too).
TF_DEVICE float max_nan(float a, float b) {
#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
  return a < b ? b : a;
#endif
}
TF_DEVICE double max_nan(double a, double b) { return a < b ? b : a; }

TF_DEVICE i32 min(i32 a, i32 b) { return a < b ? a : b; }
TF_DEVICE i32 max(i32 a, i32 b) { return a < b ? b : a; }
TF_DEVICE u32 min(u32 a, u32 b) { return a < b ? a : b; }
TF_DEVICE u32 max(u32 a, u32 b) { return a < b ? b : a; }
TF_DEVICE i64 min(i64 a, i64 b) { return a < b ? a : b; }
TF_DEVICE i64 max(i64 a, i64 b) { return a < b ? b : a; }
TF_DEVICE u64 min(u64 a, u64 b) { return a < b ? a : b; }
TF_DEVICE u64 max(u64 a, u64 b) { return a < b ? b : a; }

/// e^x. float 1.94 / <=3, double 1 / <=3.
TF_DEVICE float exp(float x) { return TF_LIBM(expf)(x); }
TF_DEVICE double exp(double x) { return TF_LIBM(exp)(x); }

/// e^x - 1, as exact near 0. float 1 (from the programming guide) / <=3, double 1 / <=3.
TF_DEVICE float expm1(float x) { return TF_LIBM(expm1f)(x); }
TF_DEVICE double expm1(double x) { return TF_LIBM(expm1)(x); }

/// Natural logarithm. float 0.87 / 2, double 1 / <=3.
TF_DEVICE float log(float x) { return TF_LIBM(logf)(x); }
TF_DEVICE double log(double x) { return TF_LIBM(log)(x); }

/// Hyperbolic tangent. float 1.82 / 1, double 2 / <=5.
TF_DEVICE float tanh(float x) { return TF_LIBM(tanhf)(x); }
TF_DEVICE double tanh(double x) { return TF_LIBM(tanh)(x); }

/// Complementary error function. float 4.49 / <=16, double 5 / <=16.
TF_DEVICE float erfc(float x) { return TF_LIBM(erfcf)(x); }
TF_DEVICE double erfc(double x) { return TF_LIBM(erfc)(x); }

/// Square root. float 0.5 / 1 (HIP before ROCm 6 uses the plain instruction), double 0.5 / 0.5.
TF_DEVICE float sqrt(float x) { return TF_LIBM(sqrtf)(x); }
TF_DEVICE double sqrt(double x) { return TF_LIBM(sqrt)(x); }

/// 1 / sqrt(x). float 1.52 / <=2, double 1 / <=2.
#if defined(TF_PLATFORM_CUDA) || defined(TF_PLATFORM_HIP)
TF_DEVICE float rsqrt(float x) { return ::rsqrtf(x); }
TF_DEVICE double rsqrt(double x) { return ::rsqrt(x); }
#else
TF_DEVICE float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
TF_DEVICE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
#endif

namespace detail {
#if defined(TF_PLATFORM_HIP) && !__has_builtin(__builtin_amdgcn_exp2f)
// The plain instruction, through the device library that every HIP compiler links.
extern "C" __device__ __attribute__((const)) float __ocml_native_exp2_f32(float);
#endif

#if defined(TF_PLATFORM_SIM) || defined(TF_PLATFORM_HOST)
TF_DEVICE float flush_subnormal(float x) {
  return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
#endif
}  // namespace detail

/// 2^x by the hardware instruction: 2.06 / 1 ulp for results that are normal numbers. Results below
/// 2^-126 become 0; +inf, -inf and NaN give +inf, 0 and NaN.
TF_DEVICE float exp2_fast(float x) {
#if defined(TF_PLATFORM_CUDA)
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(TF_PLATFORM_HIP)
#if __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return detail::__ocml_native_exp2_f32(x);
#endif
#else
  return detail::flush_subnormal(__builtin_exp2f(x));
#endif
}

/// 1 / x by the hardware instruction: 0.98 / 1 ulp. A subnormal x counts as a zero of its sign and
/// a subnormal result (|x| > 2^126) becomes one; 0, inf and NaN give inf, 0 and NaN, signs kept.
TF_DEVICE float reciprocal_fast(float x) {
#if defined(TF_PLATFORM_CUDA)
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
#elif defined(TF_PLATFORM_HIP)
  return __builtin_amdgcn_rcpf(x);
#else
  return detail::flush_subnormal(1.0f / detail::flush_subnormal(x));
#endif
}

/// T is float or double.
template <class T = float>
TF_DEVICE T infinity() {
  if constexpr (sizeof(T) == 8) {
    return bit_cast<T>(static_cast<u64>(0x7ff0000000000000ull));
  } else {
    return bit_cast<T>(static_cast<u32>(0x7f800000u));
  }
}

template <class T = float>
TF_DEVICE T nan() {
  if constexpr (sizeof(T) == 8) {
    return bit_cast<T>(static_cast<u64>(0x7ff8000000000000ull));
  } else {
    return bit_cast<T>(static_cast<u32>(0x7fc00000u));
  }
}

}  // namespace tf

#undef TF_LIBM
