// operators/common/swish.h with scalar arithmetics, against long double.

#include <truefuse/operators/common/swish.h>

#include "math_testing.h"

namespace truefuse::common::testing {
namespace {

struct Truth {
  long double value, slope, largest_summand;  ///< The summands of the slope.
};

Truth truth_of(long double x) {
  if (std::isnan(x)) return {x, x, x};
  const long double e = std::exp(-std::fabs(x));
  const long double s = 1 / (1 + e), q = e / (1 + e);
  if (std::isinf(x)) return x > 0 ? Truth{x, 1, 1} : Truth{-0.0L, -0.0L, 0};
  const long double up = x < 0 ? q : s;  // sigmoid(x)
  const long double product = x * s * q;
  return {x * up, up + product, std::max(std::fabs(up), std::fabs(product))};
}

template <class T, Quality kQuality>
void check_full(Format format, T lowest, std::size_t at_least_binades) {
  using A = Arithmetic<T, kQuality>;
  constexpr long double kUlps = sizeof(T) == 8 ? 2.0L : 3.1L;
  Errors value_errors(format), slope_errors(format), shared_errors(format);
  sweep<T>(lowest, [&](T x) {
    const Truth truth = truth_of(x);
    const T result = swish<A, Precision::kFull>(x);
    value_errors.add(x, result, truth.value, 2);
    EXPECT_EQ(std::signbit(result), std::signbit(x)) << x;
    T shared{};
    int exponent = 0;
    const T g = 2 * std::frexp(std::fabs(x) * T(0.37) + std::numeric_limits<T>::min(), &exponent);
    const T slope = swish_gradient<A, Precision::kFull>(g, x, shared);
    // A subnormal slope is rounded as one before it meets g.
    const long double step = std::ldexp(1.0L, format.min_exponent - format.digits + 1);
    const long double early = std::fabs(truth.slope) < std::numeric_limits<T>::min() ? g * step : 0;
    const long double unit =
        ulp_of(g * std::max(std::fabs(truth.slope), truth.largest_summand), format);
    slope_errors.add(x, slope, g * truth.slope,
                     (kUlps * unit + early) / ulp_of(g * truth.slope, format));
    shared_errors.add(x, shared, truth.value, 3.5L);
  });
  value_errors.record("value");
  shared_errors.record("value beside the gradient");
  EXPECT_GE(value_errors.binades(), at_least_binades);  // Subnormals of both signs were reached.
}

TEST(SwishMath, Float) { check_full<float, Quality::kCpu>(kF32, -106, 350); }
TEST(SwishMath, FloatWithDeviceInstructions) {
  check_full<float, Quality::kDevice>(kF32, -106, 350);
}
TEST(SwishMath, Double) { check_full<double, Quality::kExact>(kF64, -750, 3000); }

/// Every value of a half type; the slope is right to the rounding of its larger summand.
template <Precision kPrecision, Quality kQuality>
void check_half(Format format) {
  using A = Arithmetic<float, kQuality>;
  Errors value_errors(format), slope_errors(format);
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const long double x = value_of_bits(bits, format);
    if (!std::isfinite(x)) continue;
    const Truth truth = truth_of(x);
    const float value = swish<A, kPrecision>(static_cast<float>(x));
    value_errors.add(x, round_to(value, format), truth.value, 0.505L);
    float shared{};
    const float slope = swish_gradient<A, kPrecision>(1.0f, static_cast<float>(x), shared);
    const long double ulps = ulp_of(truth.largest_summand, format) / ulp_of(truth.slope, format);
    slope_errors.add(x, round_to(slope, format), truth.slope, 0.5L + 0.005L * ulps);
    value_errors.add(x, round_to(shared, format), truth.value, 0.505L);
  }
  value_errors.record("value");
}

TEST(SwishMath, EveryF16) {
  check_half<Precision::kF16, Quality::kCpu>(kF16);
  check_half<Precision::kF16, Quality::kDevice>(kF16);
}
TEST(SwishMath, EveryBf16) {
  check_half<Precision::kBf16, Quality::kCpu>(kBf16);
  check_half<Precision::kBf16, Quality::kDevice>(kBf16);
}

template <class T, Quality kQuality, Precision kPrecision>
void check_special(Format format) {
  using A = Arithmetic<T, kQuality>;
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  const T huge = std::numeric_limits<T>::max();
  T value{};
  const auto slope = [&](T x) {
    const T result = swish_gradient<A, kPrecision>(1, x, value);
    return std::isnan(result) ? result : static_cast<T>(round_to(result, format));
  };
  EXPECT_TRUE(std::isnan(slope(nan)) && std::isnan(value));
  EXPECT_TRUE(std::isnan((swish<A, kPrecision>(nan))));
  for (const T zero : {T(0), T(-0.0)}) {
    EXPECT_EQ(slope(zero), T(0.5));
    EXPECT_EQ(std::signbit(value), std::signbit(zero));
  }
  for (const T x : {infinity, huge, T(0x1p24), T(1e13)}) {
    EXPECT_EQ(slope(x), T(1)) << x;
    EXPECT_EQ(value, x);
    EXPECT_EQ((swish<A, kPrecision>(x)), x);
  }
  // An incoming gradient that is infinite, or that only the slope's first factor would take beyond.
  EXPECT_EQ((swish_gradient<A, kPrecision>(infinity, T(0.5), value)), infinity);
  EXPECT_EQ((swish_gradient<A, kPrecision>(infinity, T(-8), value)), -infinity);
  EXPECT_TRUE(std::isfinite(swish_gradient<A, kPrecision>(huge / 2, T(-10), value)));
  for (const T x : {-infinity, -huge, T(-1e4)}) {
    EXPECT_EQ(slope(x), T(0)) << x;
    EXPECT_TRUE(value == 0 && std::signbit(value)) << x;
    const T alone = swish<A, kPrecision>(x);
    EXPECT_TRUE(alone == 0 && std::signbit(alone)) << x;
  }
}

TEST(SwishMath, SpecialValues) {
  check_special<double, Quality::kExact, Precision::kFull>(kF64);
  check_special<float, Quality::kCpu, Precision::kFull>(kF32);
  check_special<float, Quality::kDevice, Precision::kFull>(kF32);
  check_special<float, Quality::kDevice, Precision::kF16>(kF16);
  check_special<float, Quality::kDevice, Precision::kBf16>(kBf16);
}

}  // namespace
}  // namespace truefuse::common::testing
