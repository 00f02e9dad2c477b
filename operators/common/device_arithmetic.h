#pragma once

#include "truefuse/device.h"

#include "arithmetic.h"

namespace truefuse::common {

/// The arithmetic of a kernel: what "truefuse/device.h" offers.
template <class T>
struct DeviceArithmetic {
  using Value = T;
  using Scalar = T;
  static constexpr bool kSaturates = sizeof(T) == 4;

  TF_DEVICE static T fma(T a, T b, T c) { return tf::fma(a, b, c); }
  TF_DEVICE static T magnitude(T v, T limit) { return tf::min(tf::abs(v), limit); }
  TF_DEVICE static T magnitude_nan(T v, T limit) { return tf::abs(v) > limit ? limit : tf::abs(v); }
  TF_DEVICE static T below_zero(T v, T a, T b) { return v < T(0) ? a : b; }
  TF_DEVICE static T positive_part(T v) { return tf::max_nan(v, T(-0.0)); }
  TF_DEVICE static T cut_below(T v, T limit) { return tf::max_nan(v, limit); }
  TF_DEVICE static T rough_reciprocal(T d) { return reciprocal(d); }
  TF_DEVICE static T exp2(T y) { return tf::exp2_fast(y); }

  TF_DEVICE static T reciprocal(T d) {
    if constexpr (sizeof(T) == 8) {
      return 1.0 / d;
    } else {
      return tf::reciprocal_fast(d);
    }
  }

  TF_DEVICE static T exp2_small(T f) {
    if constexpr (sizeof(T) == 8) {
      return exp2_polynomial<DeviceArithmetic>(f);
    } else {
      return tf::exp2_fast(f);
    }
  }

  TF_DEVICE static T shift_exponent(T e, T m) {
    if constexpr (sizeof(T) == 8) {
      return tf::bit_cast<T>(tf::bit_cast<tf::u64>(e) + (tf::bit_cast<tf::u64>(m) << 52));
    } else {
      return tf::bit_cast<T>(tf::bit_cast<tf::u32>(e) + (tf::bit_cast<tf::u32>(m) << 23));
    }
  }
};

template <class T>
constexpr Precision kPrecisionOf = tf::IsSame<T, tf::f16>::value    ? Precision::kF16
                                   : tf::IsSame<T, tf::bf16>::value ? Precision::kBf16
                                                                    : Precision::kFull;

}  // namespace truefuse::common
