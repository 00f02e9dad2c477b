#pragma once

#include "truefuse/device/platform.h"

// Integers of known width, the 16-bit storage types and their conversions.

namespace tf {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i8 = signed char;
using i16 = short;
using i32 = int;
using i64 = long long;

/// IEEE binary16 and bfloat16 as they lie in memory. Storage only: arithmetic is done in float.
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

/// The type that T computes in: float for the 16-bit types, T itself for float and double.
template <class T>
struct ComputeOf {
  using type = T;
};
template <>
struct ComputeOf<f16> {
  using type = float;
};
template <>
struct ComputeOf<bf16> {
  using type = float;
};
template <class T>
using Compute = typename ComputeOf<T>::type;

template <class T, class U>
struct IsSame {
  static constexpr bool value = false;
};
template <class T>
struct IsSame<T, T> {
  static constexpr bool value = true;
};

/// The same bits as another type of the same size.
template <class To, class From>
TF_DEVICE To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast: sizes differ");
  return __builtin_bit_cast(To, from);
}

namespace detail {

// Integer conversions, for targets that have no instruction of their own.

TF_DEVICE u16 bf16_bits_of(float value) {
  const u32 bits = bit_cast<u32>(value);
  if (value != value) return 0x7fff;  // Rounding could carry a NaN's payload into an infinity.
  return static_cast<u16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#if defined(TF_PLATFORM_SIM) || defined(TF_PLATFORM_HOST)
TF_DEVICE u16 f16_bits_of(float value) {
  const u32 bits = bit_cast<u32>(value);
  const u32 sign = (bits >> 16) & 0x8000u;
  const u32 magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fff;
  if (magnitude >= 0x477ff000u) return static_cast<u16>(sign | 0x7c00u);  // 65520 and above.
  if (magnitude < 0x38800000u) {
    // Below 2^-14 the spacing of binary16 is 2^-24, which is float's spacing just above 0.5.
    const float shifted = bit_cast<float>(magnitude) + 0.5f;
    return static_cast<u16>(sign | (bit_cast<u32>(shifted) - 0x3f000000u));
  }
  const u32 rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<u16>(sign | ((rounded - 0x38000000u) >> 13));
}

TF_DEVICE float f16_value_of(u16 half) {
  const u32 sign = static_cast<u32>(half & 0x8000u) << 16;
  const u32 magnitude = half & 0x7fffu;
  if (magnitude >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
  if (magnitude >= 0x400u) return bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float tiny = static_cast<float>(magnitude) * 0x1p-24f;
  return bit_cast<float>(sign | bit_cast<u32>(tiny));
}
#endif

}  // namespace detail

// to_float(x): exact. from_float<T>(x): to the nearest, ties to even; overflow gives an infinity,
// a NaN stays a NaN (its sign and payload may change), subnormals are kept. float and double, which
// compute in themselves, pass through unchanged.

TF_DEVICE float to_float(float value) { return value; }
TF_DEVICE double to_float(double value) { return value; }

TF_DEVICE float to_float(bf16 value) { return bit_cast<float>(static_cast<u32>(value.bits) << 16); }

TF_DEVICE float to_float(f16 value) {
#if defined(TF_PLATFORM_CUDA)
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#elif defined(TF_PLATFORM_HIP)
  return static_cast<float>(bit_cast<_Float16>(value.bits));
#else
  return detail::f16_value_of(value.bits);
#endif
}

namespace detail {

TF_DEVICE float convert(float value, float*) { return value; }
TF_DEVICE double convert(double value, double*) { return value; }

TF_DEVICE bf16 convert(float value, bf16*) {
#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bf16 result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#else
  return {bf16_bits_of(value)};
#endif
}

TF_DEVICE f16 convert(float value, f16*) {
#if defined(TF_PLATFORM_CUDA)
  f16 result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
  return result;
#elif defined(TF_PLATFORM_HIP)
  return {bit_cast<u16>(static_cast<_Float16>(value))};
#else
  return {f16_bits_of(value)};
#endif
}

// Two values at once; the first one becomes the lower half of the word.

template <class T>
TF_DEVICE u32 convert_pair(float low, float high) {
#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  u32 result;
  if constexpr (IsSame<T, bf16>::value) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
  }
  return result;
#else
  const u32 bits = convert(low, static_cast<T*>(nullptr)).bits;
  return bits | static_cast<u32>(convert(high, static_cast<T*>(nullptr)).bits) << 16;
#endif
}

}  // namespace detail

template <class T>
TF_DEVICE T from_float(Compute<T> value) {
  return detail::convert(value, static_cast<T*>(nullptr));
}

}  // namespace tf
