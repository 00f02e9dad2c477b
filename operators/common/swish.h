#pragma once

// swish(x) = x sigmoid(x) (also called SiLU) and its derivative, of a number or of a vector of
// numbers; see arithmetic.h.
//
// With a = |x|, e = exp(-a), s = sigmoid(a) = 1 / (1 + e) and q = sigmoid(-a) = e / (1 + e), which
// is at most 1/2 and is never found as 1 - s:
//
//   swish(x)  = x - a q  for x >= 0,   -a q     for x < 0
//   swish'(x) = sigmoid(x) (1 + x sigmoid(-x))
//             = s + a q s  for x >= 0,   q - a q s  for x < 0
//
// The only difference that cancels is the last one, at the derivative's zero near -1.278. a is cut
// where the results have left even the subnormals. e and what is made of it are carried times
// 2^kShift, as normal numbers, and scaled once at the end.
//
// swish: -0 gives -0, +inf gives +inf, -inf gives -0. swish': 0.5 at 0, 1 at +inf, -0 at -inf. NaN
// gives NaN.
//
// Largest errors in ulp: swish in float and double 2, over all binades; g swish' 3.1 in float,
// where parts of more values would cost a kernel its time, and 1.9 in double, of the larger one of
// the result and its summands. The half types are computed in float to 2^-17 and rounded once.

#include "arithmetic.h"

namespace truefuse::common {

/// Float and double, computed in themselves; also the half types where exp2 is no instruction.
template <class A, bool kFast>
struct Swish {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kLimit = kDouble ? S(755) : S(112);
  static constexpr S kShift = kDouble ? S(128) : S(48);
  static constexpr S kScale = kDouble ? S(0x1p-128) : S(0x1p-48);

  TF_DEVICE static V value(V x) {
    const V a = A::magnitude(x, V(kLimit));
    V unused;
    const V e = exponential(a, unused);
    const V d = A::fma(e, V(kScale), V(S(1)));
    const Ratio<A> ratio(a, d, A::fma(e, V(kScale), V(S(1)) - d));
    const V below = A::fma(e, ratio.high, e * ratio.low);
    return A::fma(-below, V(kScale), A::positive_part(x));
  }

  TF_DEVICE static V gradient(V g, V x, V& value) {
    const V a = A::magnitude_nan(x, V(kLimit));
    V e_low;
    const V e = exponential(a, e_low);
    const V d = A::fma(e, V(kScale), V(S(1)));
    const Ratio<A> s(V(S(1)), d, A::fma(e, V(kScale), V(S(1)) - d));
    const V q = e * s.high;  // As q_low, times 2^kShift.
    V q_low = A::fma(e, s.low, A::fma(e, s.high, -q));
    if constexpr (kDouble) q_low = A::fma(e_low, s.high, q_low);
    const V c = A::below_zero(x, -a, a * V(kScale));
    const V scale = A::below_zero(x, V(kScale), V(S(1)));
    value = A::below_zero(x, c * (q + q_low), x * s.rounded) * scale;
    // own (1 + c other), sigmoid(x) (1 + x sigmoid(-x)); both sigmoids in two parts.
    const V own = A::below_zero(x, q, s.high), own_low = A::below_zero(x, q_low, s.low);
    const V other = A::below_zero(x, s.high, q), other_low = A::below_zero(x, s.low, q_low);
    if constexpr (kDouble) {
      const V slope = A::fma(c, other, V(S(1)));
      const V slope_low = A::fma(c, other_low, A::fma(c, other, V(S(1)) - slope));
      const V small = A::fma(slope, own_low, slope_low * own);
      const V sum = A::fma(slope, own, small);
      const V sum_low = A::fma(slope, own, -sum) + small;
      // An infinite g times the low part would be NaN.
      const V most(S(0x1.fffffffffffffp+1023)), size = A::magnitude(g, most);
      return A::fma(g, sum * scale, A::below_zero(g, -size, size) * (sum_low * scale));
    } else {
      // g comes last: g slope can overflow where the product does not.
      const V slope = A::fma(c, other, A::fma(c, other_low, V(S(1))));
      return g * (A::fma(slope, own, slope * own_low) * scale);
    }
  }

 private:
  /// 2^(kShift - a log2(e)), rounded, and what the last rounding left out.
  TF_DEVICE static V exponential(V a, V& low) {
    const V log2e(kDouble ? S(0x1.71547652b82fep+0) : S(0x1.715476p+0));
    const V rest(kDouble ? S(2.0355273740931033e-17) : S(1.92596303e-8));
    // Not A::exp2_small: an instruction that is good to 2 ulp would be most of the error.
    const V magic = V(round_to_integer<S>() + kShift);
    const V m = A::fma(a, -log2e, magic);
    const V f = A::fma(a, -rest, A::fma(a, -log2e, magic - m));
    const Exp2InParts<A> exp2(f);
    low = exp2.low * A::shift_exponent(V(S(1)), m);
    return A::shift_exponent(exp2.high, m);
  }
};

/// The half types where exp2 and the reciprocal are instructions that saturate. The shift of 16
/// keeps all that bf16 can hold.
template <class A>
struct Swish<A, true> {
  using V = typename A::Value;
  static constexpr float kLimit = 256.0f;  // Where e is 0 long since.
  static constexpr float kScale = 0x1p-16f;

  TF_DEVICE static V value(V x) {
    const V a = A::magnitude(x, V(kLimit));
    const V e = exponential(a);
    return A::fma(-(a * (e * sigmoid(e))), V(kScale), A::positive_part(x));
  }

  TF_DEVICE static V gradient(V g, V x, V& value) {
    const V a = A::magnitude_nan(x, V(kLimit));
    const V e = exponential(a);
    const V s = sigmoid(e);
    const V q = e * s;  // As t, times 2^16.
    const V t = A::below_zero(x, -a, a) * q;
    value = A::below_zero(x, t * V(kScale), x * s);
    return g * (A::fma(t, s, A::below_zero(x, q, s * V(0x1p16f))) * V(kScale));
  }

 private:
  TF_DEVICE static V exponential(V a) { return A::exp2(A::fma(a, V(-1.442695f), V(16.0f))); }
  TF_DEVICE static V sigmoid(V e) { return A::reciprocal(A::fma(e, V(kScale), V(1.0f))); }
};

template <class A, Precision kPrecision>
using SwishOf = Swish<A, kPrecision != Precision::kFull && A::kSaturates>;

/// swish(x).
template <class A, Precision kPrecision>
TF_DEVICE typename A::Value swish(typename A::Value x) {
  return SwishOf<A, kPrecision>::value(x);
}

/// g swish'(x); `value` becomes swish(x), to 3.5 ulp. A swish'(x) that is subnormal (from x < -91.9
/// on, in double -714.9) is rounded as one before it meets g.
template <class A, Precision kPrecision>
TF_DEVICE typename A::Value swish_gradient(typename A::Value g, typename A::Value x,
                                           typename A::Value& value) {
  return SwishOf<A, kPrecision>::gradient(g, x, value);
}

}  // namespace truefuse::common
