#pragma once

// swish and gelu in ATen calls: what PyTorch differentiates where a gradient is differentiated
// again. With the limits of mathematics, as the kernels have them: a gradient must not depend on
// whether somebody wants a second one.

#include <cmath>
#include <numbers>

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/special_erfc.h>
#include <ATen/ops/where.h>

namespace truefuse::differentiable {

/// To fp32, if it is a half type, and back.
class Wide {
 public:
  explicit Wide(const at::Tensor& like)
      : type_(like.scalar_type()), half_(type_ == at::kHalf || type_ == at::kBFloat16) {}

  at::Tensor up(const at::Tensor& x) const { return half_ ? x.to(at::kFloat) : x; }
  at::Tensor down(const at::Tensor& x) const { return half_ ? x.to(type_) : x; }

 private:
  at::ScalarType type_;
  bool half_;
};

/// x F(x), of which `Form` has F(x) and its derivative F'(x). Beyond Form::kCut, F is 0 or 1 in
/// every dtype; cut there, nothing overflows and nothing is inf times 0.
template <class Form>
struct Activation {
  Form form;

  at::Tensor value(const at::Tensor& x) const {
    const at::Tensor small = cut(x);
    return at::where(x.gt(Form::kCut), x, small * form.share(small));
  }
  at::Tensor derivative(const at::Tensor& x) const { return form.slope(cut(x)); }

 private:
  /// Not clamp(), whose gradient at NaN is 0.
  static at::Tensor cut(const at::Tensor& x) {
    const double end = Form::kCut;
    return x.masked_fill(x.gt(end), end).masked_fill(x.lt(-end), -end);
  }
};

struct SwishForm {
  static constexpr double kCut = 1000;

  at::Tensor share(const at::Tensor& x) const { return at::sigmoid(x); }
  at::Tensor slope(const at::Tensor& x) const { return at::sigmoid(x) * (x * at::sigmoid(-x) + 1); }
};

struct GeluForm {
  static constexpr double kCut = 40;
  bool exact;

  at::Tensor share(const at::Tensor& x) const {
    if (exact) return at::special_erfc(x * (-1 / std::numbers::sqrt2)) * 0.5;
    return at::sigmoid(two_u(x, x * x));
  }
  at::Tensor slope(const at::Tensor& x) const {
    const at::Tensor square = x * x;
    if (exact) {
      const at::Tensor density =
          at::exp(square * -0.5) * (0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2);
      return share(x) + x * density;
    }
    const at::Tensor u = two_u(x, square);
    return at::sigmoid(u) *
           (x * at::sigmoid(-u) * (square * (3 * kTwoRoot * kCubic) + kTwoRoot) + 1);
  }

 private:
  static constexpr double kCubic = 0.044715;
  static constexpr double kTwoRoot = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

  static at::Tensor two_u(const at::Tensor& x, const at::Tensor& square) {
    return x * (square * (kTwoRoot * kCubic) + kTwoRoot);
  }
};

inline Activation<SwishForm> swish() { return {}; }
/// `approximate` as in the operators.
inline Activation<GeluForm> gelu(c10::string_view approximate) { return {{approximate == "none"}}; }

}  // namespace truefuse::differentiable
