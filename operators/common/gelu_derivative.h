#pragma once

// gelu'(v): one text for the GPU, the simulator and the CPU path, with an arithmetic as parameter
// (arithmetic.h).
//
// gelu'(v) + gelu'(-v) = 1 in both forms, so only t = gelu'(-|v|) has to be found:
//
//   gelu'(v) = 1 - t   for v >= 0,        gelu'(v) = t   for v < 0.
//
//   Gelu::kTanh    t = q (1 - p |v| w),  q = 1 / (1 + exp(2 u)),  p = 1 - q,
//                  u = sqrt(2/pi) (|v| + 0.044715 |v|^3),  w = d(2 u) / d|v|
//   Gelu::kExact   t = Phi(-|v|) - |v| phi(v): distribution and density of the standard normal
//
// |v| is cut where t has left even the subnormals of float or double, so nothing overflows, at no
// v: the limits at infinity are 0 and 1. As in gelu.h, t is found times 2^shift, a normal number.
// NaN gives NaN. t has a zero at |v| = 0.75, where its two terms cancel; there an error is one of
// theirs.
//
// Largest errors, in ulp of the larger one of the result and its terms, see
// gelu_derivative_test.cpp: double 4.5, float 3.5, and 5.5 where exp2 and the reciprocal are
// instructions that are good to 1 ulp; but in float for v < -1 (where the usual forms have few
// digits left, and soon none) 4 |u| more in the tanh form and 0.6 v^2 more in the exact form. For
// the half types it is computed in float and not rounded: 0.02 ulp of f16, 0.05 of bf16.

#include "gelu.h"

namespace truefuse::common {

/// scaled(a) is t / kScale for a = min(|v|, kLimit).
template <class A, Gelu kForm, Precision kPrecision>
struct DerivativeTail;

template <class A, Precision kPrecision>
struct DerivativeTail<A, Gelu::kTanh, kPrecision> {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kLimit = kDouble ? S(21.6) : S(10.95);
  static constexpr S kShift = kDouble ? S(128) : S(40);
  static constexpr S kScale = kDouble ? S(0x1p-128) : S(0x1p-40);

  TF_DEVICE static V scaled(V a) {
    const V square = a * a;
    const V w = A::fma(square, V(S(0.21406444881780076)), V(S(1.5957691216057308)));
    const V e = exp_of_minus_2u<A, kPrecision>(kShift, a, square);
    const V d = A::fma(e, V(kScale), V(S(1)));
    if constexpr (kPrecision != Precision::kFull) {
      const V p = A::reciprocal(d);
      return e * p * A::fma(-p, a * w, V(S(1)));
    } else {
      const Ratio<A> p(V(S(1)), d, A::fma(e, V(kScale), V(S(1)) - d));
      const V q = A::fma(e, p.high, e * p.low);
      return q * A::fma(-p.rounded, a * w, V(S(1)));
    }
  }
};

template <class A>
struct DerivativeTail<A, Gelu::kExact, Precision::kFull> {
  using V = typename A::Value;
  using S = typename A::Scalar;
  static constexpr bool kDouble = sizeof(S) == 8;
  static constexpr S kLimit = kDouble ? S(38.7) : S(14.6);
  static constexpr S kShift = kDouble ? S(128) : S(40);
  static constexpr S kScale = kDouble ? S(0x1p-128) : S(0x1p-40);

  TF_DEVICE static V scaled(V a) {
    const NormalTail<A> tail(a);
    const Ratio<A> line(V(S(1)), tail.d, tail.d_low);
    const V rest = A::fma(a, V(S(-0.3989422804014327)), A::fma(line.rounded, tail.w, line.low));
    return half_gaussian<A>(kShift, a) * (line.high + rest);
  }
};

template <class A, Precision kPrecision>
struct DerivativeTail<A, Gelu::kExact, kPrecision> {
  using V = typename A::Value;
  static constexpr bool kBf16 = kPrecision == Precision::kBf16;
  static constexpr float kLimit = kBf16 ? 14.6f : 8.2f;
  static constexpr float kShift = kBf16 ? 40.0f : 0.0f;
  static constexpr float kScale = kBf16 ? 0x1p-40f : 1.0f;

  TF_DEVICE static V scaled(V a) {
    // phi(a) = 2^(-a^2 log2(e) / 2 - log2(2 pi) / 2)
    const V phi = A::exp2(A::fma(a * a, V(-0.72134752f), V(kShift - 1.3257481f)));
    const V q = A::exp2(log2_of_normal_tail<A, kPrecision>(kShift, a));
    return A::fma(-a, phi, q);
  }
};

template <class A, Gelu kForm, Precision kPrecision>
TF_DEVICE typename A::Value gelu_derivative(typename A::Value v) {
  using V = typename A::Value;
  using S = typename A::Scalar;
  using Form = DerivativeTail<A, kForm, kPrecision>;
  const V t = Form::scaled(A::magnitude_nan(v, V(Form::kLimit)));
  return A::below_zero(v, t * V(Form::kScale), A::fma(-t, V(Form::kScale), V(S(1))));
}

}  // namespace truefuse::common
