// operators/common/gelu_derivative.h with scalar arithmetics, against long double.

#include <truefuse/operators/common/gelu_derivative.h>

#include "math_testing.h"

namespace truefuse::common {
namespace {

using namespace testing;

struct Derivative {
  long double value;
  long double term;  ///< The largest of the terms that `value` is a sum of.
};

/// gelu'(v); Phi and the sigmoid are gelu(v) / v.
template <Gelu kForm>
Derivative derivative(long double v) {
  if (v == 0) return {0.5L, 0.5L};
  const long double a = std::fabs(v);
  if (a > 150) return {v > 0 ? 1.0L : 0.0L, 0.0L};
  const long double q = reference<kForm>(-a) / -a;
  long double product = 0;
  if constexpr (kForm == Gelu::kTanh) {
    const long double root = std::sqrt(2 / std::acos(-1.0L));
    product = q * (1 - q) * a * 2 * root * (1 + 3 * 0.044715L * a * a);
  } else {
    const long double square = a * a;
    const long double square_low = std::fma(a, a, -square);
    const long double gauss = std::exp(-square / 2) * (1 - square_low / 2);
    product = a * gauss / std::sqrt(2 * std::acos(-1.0L));
  }
  const long double tail = q - product;
  return v < 0 ? Derivative{tail, std::max(q, product)} : Derivative{1 - tail, 0};
}

/// What gelu_derivative.h states.
template <class T, Gelu kForm>
long double allowed_ulp(T v, Quality quality) {
  if (sizeof(T) == 8) return 4.5L;
  const long double base = quality == Quality::kDevice ? 5.5L : 3.5L;
  if (v > -1) return base;
  const long double a = std::min<long double>(std::fabs(v), 20);
  if (kForm == Gelu::kExact) return base + 0.6L * a * a;
  return base + 4 * 0.7978845608L * (a + 0.044715L * a * a * a);
}

template <class T, Gelu kForm, Quality kQuality>
void check_full(Format format, T lowest) {
  Errors errors(format);
  sweep<T>(lowest, [&](T v) {
    const T result = gelu_derivative<Arithmetic<T, kQuality>, kForm, Precision::kFull>(v);
    const Derivative truth = derivative<kForm>(v);
    errors.add(v, result, truth.value, allowed_ulp<T, kForm>(v, kQuality), truth.term);
  });
  errors.record("worst");
  EXPECT_GE(errors.binades(), sizeof(T) == 8 ? 1000U : 140U);  // Down to the subnormals.
}

TEST(GeluDerivative, Float) {
  check_full<float, Gelu::kTanh, Quality::kCpu>(kF32, -11);
  check_full<float, Gelu::kExact, Quality::kCpu>(kF32, -15);
}
TEST(GeluDerivative, FloatWithDeviceInstructions) {
  check_full<float, Gelu::kTanh, Quality::kDevice>(kF32, -11);
  check_full<float, Gelu::kExact, Quality::kDevice>(kF32, -15);
}
TEST(GeluDerivative, Double) {
  check_full<double, Gelu::kTanh, Quality::kExact>(kF64, -22);
  check_full<double, Gelu::kExact, Quality::kExact>(kF64, -39);
}

/// The half types' forms give floats; their error is counted in ulp of the half type.
template <Gelu kForm, Precision kPrecision, Quality kQuality>
void check_half(Format format, long double allowed) {
  using A = Arithmetic<float, kQuality>;
  Errors errors(format);
  const auto check = [&](float v) {
    const Derivative truth = derivative<kForm>(v);
    const float result = gelu_derivative<A, kForm, kPrecision>(v);
    errors.add(v, result, truth.value, allowed, truth.term);
  };
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const long double v = value_of_bits(bits, format);
    if (std::isfinite(v)) check(static_cast<float>(v));
  }
  // Sums of x and bias are floats of any kind.
  std::mt19937_64 random(7);
  std::uniform_real_distribution<float> wide(-16, 8);
  for (int i = 0; i < 300000; ++i) check(wide(random));
  errors.record("worst");
}

TEST(GeluDerivative, EveryF16) {
  check_half<Gelu::kTanh, Precision::kF16, Quality::kCpu>(kF16, 0.02L);
  check_half<Gelu::kTanh, Precision::kF16, Quality::kDevice>(kF16, 0.02L);
  check_half<Gelu::kExact, Precision::kF16, Quality::kCpu>(kF16, 0.02L);
  check_half<Gelu::kExact, Precision::kF16, Quality::kDevice>(kF16, 0.02L);
}
TEST(GeluDerivative, EveryBf16) {
  check_half<Gelu::kTanh, Precision::kBf16, Quality::kCpu>(kBf16, 0.05L);
  check_half<Gelu::kTanh, Precision::kBf16, Quality::kDevice>(kBf16, 0.05L);
  check_half<Gelu::kExact, Precision::kBf16, Quality::kCpu>(kBf16, 0.05L);
  check_half<Gelu::kExact, Precision::kBf16, Quality::kDevice>(kBf16, 0.05L);
}

template <class T, Quality kQuality, Gelu kForm, Precision kPrecision>
void check_special() {
  using A = Arithmetic<T, kQuality>;
  const auto f = [](T v) { return gelu_derivative<A, kForm, kPrecision>(v); };
  const T infinity = std::numeric_limits<T>::infinity();
  const T nan = std::numeric_limits<T>::quiet_NaN();
  EXPECT_TRUE(std::isnan(f(nan)));
  EXPECT_TRUE(std::isnan(f(std::bit_cast<T>(std::bit_cast<typename A::Bits>(nan) + 1))));
  EXPECT_TRUE(std::isnan(f(-nan)));
  EXPECT_NEAR(f(T(0)), 0.5, kPrecision == Precision::kBf16 ? 1e-4 : 1e-5);
  EXPECT_EQ(f(T(-0.0)), f(T(0)));
  // From 1.8e19 on v^2 overflows in float.
  for (const T v : {infinity, std::numeric_limits<T>::max(), T(2e19), T(1e15), T(100)}) {
    EXPECT_EQ(f(v), T(1)) << v;
    EXPECT_LE(std::fabs(f(-v)), kPrecision == Precision::kF16 ? 0x1p-46 : 0) << v;
  }
}

template <Quality kQuality, Gelu kForm>
void check_special_of_all_types() {
  check_special<double, kQuality, kForm, Precision::kFull>();
  check_special<float, kQuality, kForm, Precision::kFull>();
  check_special<float, kQuality, kForm, Precision::kF16>();
  check_special<float, kQuality, kForm, Precision::kBf16>();
}

TEST(GeluDerivative, SpecialValues) {
  check_special_of_all_types<Quality::kCpu, Gelu::kTanh>();
  check_special_of_all_types<Quality::kCpu, Gelu::kExact>();
  check_special_of_all_types<Quality::kDevice, Gelu::kTanh>();
  check_special_of_all_types<Quality::kDevice, Gelu::kExact>();
}

TEST(GeluDerivative, IsTheSlopeOfGelu) {
  for (const double v : {-6.0, -2.5, -0.75, -0.1, 0.3, 1.0, 4.0}) {
    const auto slope = [&]<Gelu kForm>() {
      const long double h = 1e-6L;
      return static_cast<double>((reference<kForm>(v + h) - reference<kForm>(v - h)) / (2 * h));
    };
    using A = Arithmetic<double, Quality::kExact>;
    EXPECT_NEAR((gelu_derivative<A, Gelu::kTanh, Precision::kFull>(v)),
                slope.operator()<Gelu::kTanh>(), 1e-10);
    EXPECT_NEAR((gelu_derivative<A, Gelu::kExact, Precision::kFull>(v)),
                slope.operator()<Gelu::kExact>(), 1e-10);
  }
}

}  // namespace
}  // namespace truefuse::common
