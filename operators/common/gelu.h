#pragma once

// gelu(v) of a number or of a vector of numbers: one text for the GPU, the simulator and the CPU
// path. Its arithmetic is a parameter: see arithmetic.h.
//
// Both forms are v F(v) with F(v) + F(-v) = 1, so only the lower tail q = F(-|v|), a number in
// [0, 1/2], has to be found:
//
//   gelu(v) = v - |v| q   for v >= 0,        gelu(v) = -|v| q   for v < 0.
//
//   Gelu::kTanh    q = 1 / (1 + exp(2 u)),  u = sqrt(2/pi) (|v| + 0.044715 |v|^3)
//   Gelu::kExact   q = Phi(-|v|), the lower tail of the standard normal distribution
//
// Nothing cancels. |v| is cut where the result has left even the subnormals, so nothing overflows.
// What is computed is |v| q 2^shift, a normal number all the way down, and the last fma scales it:
// the result goes through the subnormals even where a device's exp2 and reciprocal flush theirs.
// -0 gives -0, +inf gives +inf, -inf gives -0, NaN gives NaN.
//
// Largest errors in ulp of the result, all binades: double 2; float 2, or 3.5 where exp2 is an
// instruction that is good to 1 ulp; but in float for v < -1 (where the usual 1 + tanh and 1 + erf
// cancel) 4 |u| more in the tanh form and 0.6 v^2 more in the exact form. The half types are
// computed in float and rounded once: 0.505 in the tanh form, 0.515 (f16) and 0.54 (bf16) in the
// exact form. The bf16 tanh form may flush results below 1.2e-37.

#include "arithmetic.h"

namespace truefuse::common {

enum class Gelu { kTanh, kExact };

/// 2^shift exp(-2 u(a)), of which the half types need only a few digits; `square` is a^2.
template <class A, Precision kPrecision>
TF_DEVICE typename A::Value exp_of_minus_2u(typename A::Scalar shift, typename A::Value a,
                                            typename A::Value square) {
  using V = typename A::Value;
  if constexpr (kPrecision != Precision::kFull) {
    return A::exp2(A::fma(a, A::fma(square, V(-0.10294324f), V(-2.3022082f)), V(shift)));
  } else if constexpr (sizeof(typename A::Scalar) == 4) {
    // The roundings of c cost up to 4 |u| ulp in the tail, where the usual 1 + tanh(u) has no digit
    // left at all; to save it would take a quarter of the kernel's instructions.
    return exp2_of_negative<A>(shift, a, A::fma(square, V(0.10294324f), V(2.3022082f)));
  } else {
    // 2 u log2(e) = a (c1 + c3 a^2), each constant in two parts, and c1 with so few digits that c -
    // c1 is exact.
    const V c1(0x1.26aec21bce760p+1), c1_low(-2.9772962085427412e-15);
    const V c3(0x1.a5a7cf7572a98p-4), c3_low(-5.97817740072e-18);
    const V square_low = A::fma(a, a, -square);
    const V c = A::fma(square, c3, c1);
    const V c_low =
        A::fma(square, c3, c1 - c) + A::fma(square_low, c3, A::fma(square, c3_low, c1_low));
    return exp2_of_negative<A>(shift, a, c, a, c_low);
  }
}

/// 2^shift exp(-a^2/2). In float the rounding of a^2 costs up to 0.6 a^2 ulp, in the tail, where
/// the usual 1 + erf has no digit left at all.
template <class A>
TF_DEVICE typename A::Value half_gaussian(typename A::Scalar shift, typename A::Value a) {
  using V = typename A::Value;
  const V square = a * a;
  if constexpr (sizeof(typename A::Scalar) == 8) {
    const V half_log2e(0x1.71547652b82fep-1);
    const V lack(1.41092006031e-17);  // Of half_log2e, in relation to it.
    const V square_low = A::fma(a, a, -square);
    return exp2_of_negative<A>(shift, square, half_log2e, A::fma(square, lack, square_low),
                               half_log2e);
  } else {
    return exp2_of_negative<A>(shift, square, V(0x1.715476p-1f));
  }
}

/// Phi(-a) exp(a^2/2) = (1 + w) / d with the line d = 7/4 + slope a, which by itself is right to 13
/// %, and w = u P(u), u = (a - k) / (a + k). At k the line is right; P is a minimax polynomial, of
/// relative error 2^-27 (float) and 2^-57 (double) in the whole for all a up to the limits below.
template <class A>
struct NormalTail {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;

  V w, d, d_low;

  TF_DEVICE explicit NormalTail(V a) {
    const V half_k(kDouble ? S(0x1.0000000000001p+1) : S(0x1.fffb88p+0));
    const V slope(kDouble ? S(0x1.1af1e13c3adc5p+1) : S(0x1.1af1aep+1));
    const V intercept(S(1.75));
    const V u = A::fma(a, A::reciprocal(A::fma(a, V(S(0.5)), half_k)), V(S(-1)));
    w = u * correction(u);
    d = A::fma(a, slope, intercept);
    d_low = A::fma(a, slope, intercept - d);
  }

 private:
  TF_DEVICE static V correction(V u) {
    if constexpr (kDouble) {
      return polynomial<A>(u, -0.13529440047265986, -0.026331181536900162, 0.09624302649301418,
                           -0.08538697728551792, 0.04355852751723628, -0.011291526504461793,
                           -0.0009255497345383897, 0.001622274241907233, -0.0001877602843696194,
                           -0.00020739295969602483, 4.484001230319069e-05, 3.210473884297957e-05,
                           -7.203046398894896e-06, -6.081947315665739e-06, 7.944414986642374e-07,
                           1.2654471581753373e-06, 3.554506498525649e-08, -2.504561311609353e-07,
                           -5.786270435008975e-08, 3.780249710196892e-08, 1.9761211748904612e-08,
                           -1.7002001311856775e-09, -3.1502034690520164e-09,
                           -6.207281692680227e-10);
    } else {
      return polynomial<A>(u, -0.13529392f, -0.02633775f, 0.096246175f, -0.08538538f, 0.04356438f,
                           -0.01128486f, -0.0009672668f, 0.0016034552f, -0.000119972f,
                           -0.00016606845f);
    }
  }
};

/// shift + log2 of Phi(-a). It is so smooth that a short polynomial is good enough for a half type:
/// the error in ulp of the result is at most 0.006 for f16, a < 6, and 0.017 for bf16, a < 13.75.
template <class A, Precision kPrecision>
TF_DEVICE typename A::Value log2_of_normal_tail(float shift, typename A::Value a) {
  if constexpr (kPrecision == Precision::kF16) {
    return polynomial<A>(a, shift - 1.0000076f, -1.1510366f, -0.45917043f, -0.053051844f,
                         0.0079422863f, -0.0007484248f, 3.244508e-05f);
  } else {
    return polynomial<A>(a, shift - 1.0001793f, -1.1490859f, -0.46269888f, -0.050857488f,
                         0.0074371146f, -0.0007472127f, 4.7915972e-05f, -1.749857e-06f,
                         2.7544658e-08f);
  }
}

/// scaled(a) is a q / kScale for a = min(|v|, kLimit).
template <class A, Gelu kForm, Precision kPrecision>
struct Tail;

template <class A>
struct Tail<A, Gelu::kTanh, Precision::kFull> {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kLimit = kDouble ? S(21.6) : S(10.8);
  static constexpr S kShift = kDouble ? S(128) : S(32);
  static constexpr S kScale = kDouble ? S(0x1p-128) : S(0x1p-32);

  TF_DEVICE static V scaled(V a) {
    // q = e / (1 + e) with e = exp(-2 u).
    const V e = exp_of_minus_2u<A, Precision::kFull>(kShift, a, a * a);
    const V d = A::fma(e, V(kScale), V(S(1)));
    const V d_low = A::fma(e, V(kScale), V(S(1)) - d);
    const Ratio<A> ratio(a, d, d_low);
    return A::fma(e, ratio.high, e * ratio.low);
  }
};

template <class A>
struct Tail<A, Gelu::kExact, Precision::kFull> {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kLimit = kDouble ? S(38.7) : S(14.5);
  static constexpr S kShift = kDouble ? S(128) : S(32);
  static constexpr S kScale = kDouble ? S(0x1p-128) : S(0x1p-32);

  TF_DEVICE static V scaled(V a) {
    const V e = half_gaussian<A>(kShift, a);
    const NormalTail<A> tail(a);
    const Ratio<A> ratio(a, tail.d, tail.d_low);
    return A::fma(e, ratio.high, e * A::fma(ratio.rounded, tail.w, ratio.low));
  }
};

template <class A, Precision kPrecision>
struct Tail<A, Gelu::kTanh, kPrecision> {
  using V = typename A::Value;
  static constexpr bool kBf16 = kPrecision == Precision::kBf16;
  static constexpr float kLimit = kBf16 ? 10.4f : 5.5f;
  static constexpr float kShift = kBf16 ? 16.0f : 0.0f;
  static constexpr float kScale = kBf16 ? 0x1p-16f : 1.0f;

  TF_DEVICE static V scaled(V a) {
    const V e = exp_of_minus_2u<A, kPrecision>(kShift, a, a * a);
    return a * (e * A::reciprocal(A::fma(e, V(kScale), V(1.0f))));
  }
};

template <class A, Precision kPrecision>
struct Tail<A, Gelu::kExact, kPrecision> {
  using V = typename A::Value;
  static constexpr bool kBf16 = kPrecision == Precision::kBf16;
  static constexpr float kLimit = kBf16 ? 13.75f : 6.0f;
  static constexpr float kShift = kBf16 ? 16.0f : 0.0f;
  static constexpr float kScale = kBf16 ? 0x1p-16f : 1.0f;

  TF_DEVICE static V scaled(V a) {
    return a * A::exp2(log2_of_normal_tail<A, kPrecision>(kShift, a));
  }
};

/// The tanh form as v / (1 + 2^(v c)) for the half types, where exp2 and the reciprocal are
/// instructions that take any argument and saturate: the fewest instructions of all. Results below
/// 1.2e-37 (v < -10) become -0.
template <class A>
TF_DEVICE typename A::Value tanh_form_saturating(typename A::Value v) {
  using V = typename A::Value;
  const V cut = A::cut_below(v, V(-1e30f));  // -inf would meet 1 / (1 + inf) = 0.
  const V c = A::fma(cut * cut, V(-0.10294324f), V(-2.3022082f));
  return cut * A::reciprocal(V(1.0f) + A::exp2(cut * c));
}

template <class A, Gelu kForm, Precision kPrecision>
TF_DEVICE typename A::Value gelu(typename A::Value v) {
  using V = typename A::Value;
  if constexpr (kForm == Gelu::kTanh && kPrecision != Precision::kFull && A::kSaturates) {
    return tanh_form_saturating<A>(v);
  } else {
    using Form = Tail<A, kForm, kPrecision>;
    const V below = Form::scaled(A::magnitude(v, V(Form::kLimit)));
    return A::fma(-below, V(Form::kScale), A::positive_part(v));
  }
}

}  // namespace truefuse::common
