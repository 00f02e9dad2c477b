#include <cmath>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include <truefuse/device/types.h>

namespace {

/// A 16-bit float format by its definition: sign, `kExponentBits` bits of biased exponent, the rest
/// fraction.
template <int kExponentBits>
struct Format {
  static constexpr int kFractionBits = 15 - kExponentBits;
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kMaxExponent = (1 << kExponentBits) - 1;

  static double value(std::uint16_t bits) {
    const int exponent = bits >> kFractionBits & kMaxExponent;
    const int fraction = bits & ((1 << kFractionBits) - 1);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == kMaxExponent) {
      return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::nan("");
    }
    const double significand = exponent == 0 ? fraction : (1 << kFractionBits) + fraction;
    return sign * std::ldexp(significand, (exponent == 0 ? 1 : exponent) - kBias - kFractionBits);
  }

  static constexpr std::uint16_t kInfinity = kMaxExponent << kFractionBits;
};

template <class T>
struct FormatOf;
template <>
struct FormatOf<tf::f16> : Format<5> {};
template <>
struct FormatOf<tf::bf16> : Format<8> {};

template <class T>
class HalfTypes : public testing::Test {};
using Types = testing::Types<tf::f16, tf::bf16>;
TYPED_TEST_SUITE(HalfTypes, Types);

TYPED_TEST(HalfTypes, EveryValueWidensExactly) {
  for (int bits = 0; bits <= 0xffff; ++bits) {
    const std::uint16_t half = static_cast<std::uint16_t>(bits);
    const double expected = FormatOf<TypeParam>::value(half);
    const float got = tf::to_float(TypeParam{half});
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
    } else {
      ASSERT_EQ(got, expected) << bits;
      ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    }
  }
}

std::uint16_t narrowed(auto type, float value) {
  return tf::from_float<decltype(type)>(value).bits;
}

TYPED_TEST(HalfTypes, NarrowingRoundsToNearestEven) {
  using F = FormatOf<TypeParam>;
  for (int magnitude = 0; magnitude < F::kInfinity; ++magnitude) {
    const std::uint16_t lower = static_cast<std::uint16_t>(magnitude);
    const std::uint16_t upper = static_cast<std::uint16_t>(magnitude + 1);
    const double low = F::value(lower);
    // The value that would follow the largest is where infinity begins to be nearer.
    const double high = upper == F::kInfinity ? 2 * low - F::value(lower - 1) : F::value(upper);
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(middle, (low + high) / 2) << "a float holds every middle";
    const std::uint16_t even = lower % 2 == 0 ? lower : upper;
    for (const std::uint16_t sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      const TypeParam type{};
      ASSERT_EQ(narrowed(type, s * static_cast<float>(low)), lower | sign);
      ASSERT_EQ(narrowed(type, s * middle), even | sign) << magnitude;
      ASSERT_EQ(narrowed(type, s * std::nextafterf(middle, 0.0f)), lower | sign) << magnitude;
      ASSERT_EQ(narrowed(type, s * std::nextafterf(middle, INFINITY)), upper | sign) << magnitude;
    }
  }
}

TYPED_TEST(HalfTypes, SpecialValuesStaySpecial) {
  using F = FormatOf<TypeParam>;
  const TypeParam type{};
  EXPECT_EQ(narrowed(type, INFINITY), F::kInfinity);
  EXPECT_EQ(narrowed(type, -INFINITY), F::kInfinity | 0x8000);
  EXPECT_EQ(narrowed(type, std::numeric_limits<float>::max()), F::kInfinity);
  EXPECT_EQ(narrowed(type, std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(narrowed(type, -0.0f), 0x8000);
  std::mt19937 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint32_t payload = i < 23 ? 1u << i : random() & 0x7fffff;
    const std::uint32_t bits = 0x7f800000 | payload | (random() & 0x80000000);
    const float value = tf::bit_cast<float>(bits);
    if (!std::isnan(value)) continue;
    ASSERT_TRUE(std::isnan(tf::to_float(tf::from_float<TypeParam>(value)))) << std::hex << bits;
  }
}

TEST(Types, FloatAndDoubleComputeInThemselves) {
  EXPECT_EQ(tf::from_float<float>(0.1f), 0.1f);
  EXPECT_EQ(tf::from_float<double>(0.1), 0.1);
  EXPECT_EQ(tf::to_float(0.1), 0.1);
  static_assert(std::is_same_v<tf::Compute<double>, double>);
  static_assert(std::is_same_v<tf::Compute<float>, float>);
  static_assert(std::is_same_v<tf::Compute<tf::bf16>, float>);
  static_assert(sizeof(tf::f16) == 2 && sizeof(tf::u64) == 8 && sizeof(tf::u16) == 2);
}

}  // namespace
