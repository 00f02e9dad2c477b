// operators/common/gelu.h with scalar arithmetics, against long double.

#include "math_testing.h"

namespace truefuse::common {
namespace {

using namespace testing;

/// What gelu.h states.
template <class T, Gelu kForm>
long double allowed_ulp(T v, Quality quality) {
  const long double instruction = quality == Quality::kDevice && sizeof(T) == 4 ? 1.5L : 0;
  if (sizeof(T) == 8 || v > -1) return 2 + instruction;
  const long double a = std::min<long double>(std::fabs(v), 20);
  if (kForm == Gelu::kExact) return 2 + instruction + 0.6L * a * a;
  return 2 + instruction + 4 * 0.7978845608L * (a + 0.044715L * a * a * a);
}

template <class T, Gelu kForm, Quality kQuality>
void check_full(Format format, T lowest, std::size_t at_least_binades) {
  Errors errors(format);
  sweep<T>(lowest, [&](T v) {
    const T result = gelu<Arithmetic<T, kQuality>, kForm, Precision::kFull>(v);
    errors.add(v, result, reference<kForm>(v), allowed_ulp<T, kForm>(v, kQuality));
    EXPECT_EQ(std::signbit(result), std::signbit(v)) << v;
  });
  errors.record("worst");
  EXPECT_GE(errors.binades(), at_least_binades);  // The sweep reached the subnormals of both signs.
}

TEST(GeluMath, FloatTanh) { check_full<float, Gelu::kTanh, Quality::kCpu>(kF32, -11, 350); }
TEST(GeluMath, FloatExact) { check_full<float, Gelu::kExact, Quality::kCpu>(kF32, -15, 350); }
TEST(GeluMath, FloatTanhWithDeviceInstructions) {
  check_full<float, Gelu::kTanh, Quality::kDevice>(kF32, -11, 350);
}
TEST(GeluMath, FloatExactWithDeviceInstructions) {
  check_full<float, Gelu::kExact, Quality::kDevice>(kF32, -15, 350);
}
TEST(GeluMath, DoubleTanh) { check_full<double, Gelu::kTanh, Quality::kExact>(kF64, -22, 3000); }
TEST(GeluMath, DoubleExact) { check_full<double, Gelu::kExact, Quality::kExact>(kF64, -39, 3000); }

template <Gelu kForm, Precision kPrecision, Quality kQuality>
void check_half(Format format, long double allowed) {
  using A = Arithmetic<float, kQuality>;
  // In bf16 the shortest tanh form gives -0 where the result is below 1.2e-37.
  const bool flushes = A::kSaturates && kForm == Gelu::kTanh && kPrecision == Precision::kBf16;
  Errors errors(format);
  const auto check = [&](float v) {
    const float computed = gelu<A, kForm, kPrecision>(v);
    const long double truth = reference<kForm>(v);
    if (flushes && v < 0 && truth > -1.2e-37L && v < -9) {
      EXPECT_TRUE(computed <= 0 && computed >= -1.2e-37f) << v;
      return;
    }
    errors.add(v, round_to(computed, format), truth, allowed);
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

TEST(GeluMath, EveryF16Tanh) {
  check_half<Gelu::kTanh, Precision::kF16, Quality::kCpu>(kF16, 0.505L);
  check_half<Gelu::kTanh, Precision::kF16, Quality::kDevice>(kF16, 0.505L);
}
TEST(GeluMath, EveryF16Exact) {
  check_half<Gelu::kExact, Precision::kF16, Quality::kCpu>(kF16, 0.515L);
  check_half<Gelu::kExact, Precision::kF16, Quality::kDevice>(kF16, 0.515L);
}
TEST(GeluMath, EveryBf16Tanh) {
  check_half<Gelu::kTanh, Precision::kBf16, Quality::kCpu>(kBf16, 0.505L);
  check_half<Gelu::kTanh, Precision::kBf16, Quality::kDevice>(kBf16, 0.505L);
}
TEST(GeluMath, EveryBf16Exact) {
  check_half<Gelu::kExact, Precision::kBf16, Quality::kCpu>(kBf16, 0.54L);
  check_half<Gelu::kExact, Precision::kBf16, Quality::kDevice>(kBf16, 0.54L);
}

// ---- special values
// -------------------------------------------------------------------------------

template <class T, Quality kQuality, Gelu kForm, Precision kPrecision>
void check_special(Format format) {
  SCOPED_TRACE(::testing::Message() << "form " << static_cast<int>(kForm) << ", precision "
                                    << static_cast<int>(kPrecision) << ", quality "
                                    << static_cast<int>(kQuality) << ", bytes " << sizeof(T));
  using A = Arithmetic<T, kQuality>;
  const auto f = [&](T v) {
    const T result = gelu<A, kForm, kPrecision>(v);
    return std::isfinite(result) ? static_cast<T>(round_to(result, format)) : result;
  };
  const T infinity = std::numeric_limits<T>::infinity();
  const T huge = std::numeric_limits<T>::max() / 2;
  EXPECT_TRUE(std::isnan(f(std::numeric_limits<T>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(f(-std::numeric_limits<T>::quiet_NaN())));
  EXPECT_EQ(f(infinity), infinity);
  EXPECT_EQ((gelu<A, kForm, kPrecision>(std::numeric_limits<T>::max())),
            std::numeric_limits<T>::max());
  EXPECT_EQ(f(huge), static_cast<T>(round_to(huge, format)));  // v^3 and v^2 overflow.
  for (const T v : {T(0), T(-0.0), -infinity, -huge, T(-1e15), T(-100)}) {
    EXPECT_EQ(f(v), T(0)) << v;
    EXPECT_EQ(std::signbit(f(v)), std::signbit(v)) << v;
  }
}

template <Quality kQuality, Gelu kForm>
void check_special_of_all_types() {
  check_special<double, kQuality, kForm, Precision::kFull>(kF64);
  check_special<float, kQuality, kForm, Precision::kFull>(kF32);
  check_special<float, kQuality, kForm, Precision::kF16>({11, -14});
  check_special<float, kQuality, kForm, Precision::kBf16>(kBf16);
}

TEST(GeluMath, SpecialValues) {
  check_special_of_all_types<Quality::kCpu, Gelu::kTanh>();
  check_special_of_all_types<Quality::kCpu, Gelu::kExact>();
  check_special_of_all_types<Quality::kDevice, Gelu::kTanh>();
  check_special_of_all_types<Quality::kDevice, Gelu::kExact>();
}

TEST(GeluMath, TheTwoFormsDiffer) {
  const double exact =
      gelu<Arithmetic<double, Quality::kExact>, Gelu::kExact, Precision::kFull>(2.7);
  const double tanh = gelu<Arithmetic<double, Quality::kExact>, Gelu::kTanh, Precision::kFull>(2.7);
  EXPECT_NEAR(tanh - exact, 4.73e-4, 1e-5);
}

}  // namespace
}  // namespace truefuse::common
