#pragma once

// The arithmetic of CPU paths: see common/arithmetic.h. Under the same rules as vector.h.

#include <truefuse/operators/common/arithmetic.h>
#include <truefuse/operators/common_cpu/vector.h>

namespace truefuse::cpu {
namespace {

using common::Precision;

template <class T>
struct Arithmetic {
  using Scalar = T;
  using Value = Vector<T>;
  static constexpr bool kSaturates = false;

  static Value fma(Value a, Value b, Value c) { return cpu::fma(a, b, c); }
  static Value magnitude(Value v, Value limit) { return cpu::min(cpu::abs(v), limit); }
  static Value magnitude_nan(Value v, Value limit) { return cpu::min(limit, cpu::abs(v)); }
  static Value below_zero(Value v, Value a, Value b) {
    return v.native < typename Value::Native{} ? a.native : b.native;
  }
  static Value positive_part(Value v) { return cpu::max(Value(T(-0.0)), v); }
  static Value reciprocal(Value d) { return cpu::reciprocal(d); }
  static Value rough_reciprocal(Value d) { return cpu::rough_reciprocal(d); }
  static Value exp2_small(Value f) { return common::exp2_polynomial<Arithmetic>(f); }
  static Value shift_exponent(Value e, Value m) { return cpu::shift_exponent(e, m); }
  static Value exp2(Value y) {
    const Value magic(common::round_to_integer<T>());
    const Value m = y + magic;
    return shift_exponent(exp2_small(y - (m - magic)), m);
  }
};

/// What elements of type T are computed in, and to what precision.
template <class T>
struct Traits {
  using Compute = T;
  static constexpr Precision kPrecision = Precision::kFull;
};
template <>
struct Traits<F16> {
  using Compute = float;
  static constexpr Precision kPrecision = Precision::kF16;
};
template <>
struct Traits<Bf16> {
  using Compute = float;
  static constexpr Precision kPrecision = Precision::kBf16;
};

}  // namespace
}  // namespace truefuse::cpu
