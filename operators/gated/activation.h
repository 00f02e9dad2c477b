#pragma once

// The activation of the gate and its derivative, over the formulas in operators/common. For the
// half types a result is not rounded yet: it is multiplied first. So a formula that stops where its
// own result would round to 0 does not do; the one for bf16, which has the exponents of float,
// does.

#include "truefuse/operators/common/gelu_derivative.h"
#include "truefuse/operators/common/swish.h"

namespace truefuse::gated {

enum class Activation { kSwish, kGeluTanh, kGeluExact };

template <class A, Activation kActivation, common::Precision kPrecision>
struct Gate {
  using V = typename A::Value;
  static constexpr common::Precision kInner =
      kPrecision != common::Precision::kFull && A::kSaturates ? common::Precision::kBf16
                                                              : common::Precision::kFull;
  static constexpr common::Gelu kForm =
      kActivation == Activation::kGeluTanh ? common::Gelu::kTanh : common::Gelu::kExact;

  TF_DEVICE static V value(V gate) {
    if constexpr (kActivation == Activation::kSwish) {
      return common::swish<A, kInner>(gate);
    } else {
      const V result = common::gelu<A, kForm, kInner>(gate);
      if constexpr (kActivation == Activation::kGeluExact && kInner == common::Precision::kBf16) {
        // Beyond here that formula stays at what rounds to 0.
        return A::below_zero(gate + V(13.7f), V(-0.0f), result);
      } else {
        return result;
      }
    }
  }

  /// g times the derivative; `activated` becomes value(gate).
  TF_DEVICE static V gradient(V g, V gate, V& activated) {
    if constexpr (kActivation == Activation::kSwish) {
      return common::swish_gradient<A, kInner>(g, gate, activated);
    } else {
      activated = value(gate);
      return g * common::gelu_derivative<A, kForm, kInner>(gate);
    }
  }
};

}  // namespace truefuse::gated
