#pragma once

// What formulas share that are written once for the GPU, the simulator and the CPU paths. It
// includes nothing and takes its arithmetic as a parameter: DeviceArithmetic for kernels
// (device_arithmetic.h), cpu::Arithmetic for CPU paths (common_cpu/arithmetic.h).
//
// An arithmetic A names its types Value (constructible from a Scalar) and Scalar (float or double),
// and has the static functions
//   fma(a, b, c)            with one rounding
//   magnitude(v, limit)     the smaller one of |v| and limit; for a NaN either
//   magnitude_nan(v, limit) the same, but a NaN stays
//   below_zero(v, a, b)     v < 0 ? a : b
//   positive_part(v)        v < 0 ? -0 : v, so that a NaN stays
//   reciprocal(d)           1 / d to a few ulp, for d in [1, 128]
//   rough_reciprocal(d)     1 / d to 2^-13 or, in double, to 2^-26
//   exp2_small(f)           2^f for |f| <= 0.51
//   shift_exponent(e, m)    e 2^n, a normal number, where m = round_to_integer + n
//   exp2(y)                 2^y for y in [-126, 40] to a few ulp; for the half types only
// and the constant kSaturates: whether exp2 and reciprocal take any argument and give 0 or infinity
// where the result leaves the range; then also
//   cut_below(v, limit)     v < limit ? limit : v, so that a NaN stays
// Except in fma, no product is an operand of a sum: contraction changes no result.

#if !defined(TF_DEVICE)
#define TF_DEVICE inline __attribute__((always_inline))
#endif

namespace truefuse::common {

/// What the result is rounded to; kFull is float and double, computed in themselves.
enum class Precision { kFull, kF16, kBf16 };

/// c0 + c1 x + c2 x^2 + ...
template <class A>
TF_DEVICE typename A::Value polynomial(typename A::Value, typename A::Scalar c0) {
  return typename A::Value(c0);
}
template <class A, class... Scalars>
TF_DEVICE typename A::Value polynomial(typename A::Value x, typename A::Scalar c0,
                                       typename A::Scalar c1, Scalars... c) {
  return A::fma(polynomial<A>(x, c1, c...), x, typename A::Value(c0));
}

/// Adding it to a moderate number leaves that number's nearest integer in the low bits of the sum.
template <class Scalar>
TF_DEVICE constexpr Scalar round_to_integer() {
  return sizeof(Scalar) == 8 ? Scalar(0x1.8p52) : Scalar(0x1.8p23);
}

/// (2^f - 1) / f = kFirst + f P(f) for |f| <= 0.51. Largest error, of 2^f, 2^-28 in float and 2^-63
/// in double.
template <class A>
struct Exp2Slope {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kFirst = kDouble ? S(0.6931471805599453) : S(0.69314724f);

  TF_DEVICE static V rest(V f) {
    if constexpr (kDouble) {
      return polynomial<A>(f, 0.24022650695910072, 0.05550410866482177, 0.009618129107628487,
                           0.0013333558146374144, 0.00015403530393354731, 1.5252733871114833e-05,
                           1.3215486823336039e-06, 1.0178045263895291e-07, 7.054891451672409e-09,
                           4.4575378232073635e-10, 2.573783728096662e-11);
    } else {
      return polynomial<A>(f, 0.24022652f, 0.055503104f, 0.009617693f, 0.0013406675f,
                           0.00015594762f);
    }
  }
};

/// 2^f for |f| <= 0.51: an A::exp2_small for arithmetics without an instruction.
template <class A>
TF_DEVICE typename A::Value exp2_polynomial(typename A::Value f) {
  using V = typename A::Value;
  using Slope = Exp2Slope<A>;
  return A::fma(f, A::fma(Slope::rest(f), f, V(Slope::kFirst)), V(typename A::Scalar(1)));
}

/// The same as high + low.
template <class A>
struct Exp2InParts {
  using V = typename A::Value;
  using Slope = Exp2Slope<A>;
  V high, low;

  TF_DEVICE explicit Exp2InParts(V f) {
    const V one(typename A::Scalar(1)), first(Slope::kFirst);
    const V rest = Slope::rest(f);
    const V slope = A::fma(rest, f, first);
    const V slope_low = A::fma(rest, f, first - slope);
    high = A::fma(f, slope, one);
    low = A::fma(f, slope_low, A::fma(f, slope, one - high));
  }
};

/// f - y d
template <class A>
TF_DEVICE typename A::Value minus_product(typename A::Value f, typename A::Value y,
                                          typename A::Value d) {
  return A::fma(y, -d, f);
}

/// 2^(shift - x c), or 2^(shift - x c - y d) where y d is small beside x c. The integer part goes
/// into the exponent and the rest is found by fma, so that no digit of a large x c is missed.
template <class A, class... Correction>
TF_DEVICE typename A::Value exp2_of_negative(typename A::Scalar shift, typename A::Value x,
                                             typename A::Value c, Correction... y_and_d) {
  using V = typename A::Value;
  const V magic = V(round_to_integer<typename A::Scalar>() + shift);
  const V m = A::fma(x, -c, magic);
  V f = A::fma(x, -c, magic - m);
  if constexpr (sizeof...(Correction) == 2) f = minus_product<A>(f, y_and_d...);
  return A::shift_exponent(A::exp2_small(f), m);
}

/// a / (d + d_low) as high + low; the error of the rough reciprocal counts by its square. `rounded`
/// is their sum.
template <class A>
struct Ratio {
  using V = typename A::Value;
  V high, low, rounded;

  TF_DEVICE Ratio(V a, V d, V d_low) {
    const V reciprocal = A::rough_reciprocal(d);
    high = a * reciprocal;
    const V rest = A::fma(-high, d_low, A::fma(-high, d, a));
    low = rest * reciprocal;
    rounded = A::fma(rest, reciprocal, high);
  }
};

}  // namespace truefuse::common
