#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include <truefuse/device/math.h>

// What the simulator and a CPU path compute. GPUs are tested on GPUs.

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Distance in units in the last place of a normal float.
double ulp(float got, double exact) {
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::fabs(got - exact) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

TEST(Math, AccuracyIsAsStated) {
  for (float x = -30.0f; x < 30.0f; x += 0.00973f) {
    ASSERT_LE(ulp(tf::exp(x), std::exp(double{x})), 2) << x;
    ASSERT_LE(ulp(tf::tanh(x), std::tanh(double{x})), 2) << x;
    ASSERT_LE(ulp(tf::exp2_fast(x), std::exp2(double{x})), 2) << x;
    if (x < 9.0f) {
      ASSERT_LE(ulp(tf::erfc(x), std::erfc(double{x})), 4) << x;
    }
    if (x != 0) {
      ASSERT_LE(ulp(tf::reciprocal_fast(x), 1.0 / x), 1) << x;
    }
    if (x > 0) {
      ASSERT_LE(ulp(tf::log(x), std::log(double{x})), 2) << x;
      ASSERT_LE(ulp(tf::sqrt(x), std::sqrt(double{x})), 0.5) << x;
      ASSERT_LE(ulp(tf::rsqrt(x), 1.0 / std::sqrt(double{x})), 2) << x;
    }
  }
  EXPECT_NEAR(tf::erfc(2.0), std::erfc(2.0), 1e-17);
  EXPECT_NEAR(tf::rsqrt(2.0), std::sqrt(0.5), 1e-15);
  EXPECT_EQ(tf::exp(1.0), std::exp(1.0));
  EXPECT_EQ(tf::log(3.0), std::log(3.0));
  EXPECT_EQ(tf::tanh(0.3), std::tanh(0.3));
}

TEST(Math, FastFunctionsFlushSubnormals) {
  EXPECT_EQ(tf::exp2_fast(-126.0f), 0x1p-126f);
  EXPECT_EQ(tf::exp2_fast(-127.0f), 0.0f);
  EXPECT_EQ(tf::exp2_fast(128.0f), kInfinity);
  EXPECT_EQ(tf::exp2_fast(-kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(tf::exp2_fast(tf::nan())));

  EXPECT_EQ(tf::reciprocal_fast(0x1p126f), 0x1p-126f);
  EXPECT_EQ(tf::reciprocal_fast(-0x1p127f), 0.0f);
  EXPECT_TRUE(std::signbit(tf::reciprocal_fast(-0x1p127f)));
  EXPECT_EQ(tf::reciprocal_fast(0x1p-127f), kInfinity);
  EXPECT_EQ(tf::reciprocal_fast(-0.0f), -kInfinity);
  EXPECT_EQ(tf::reciprocal_fast(kInfinity), 0.0f);
  EXPECT_TRUE(std::isnan(tf::reciprocal_fast(tf::nan())));
}

TEST(Math, MinimumAndMaximumPassOverANan) {
  EXPECT_EQ(tf::min(tf::nan(), 1.0f), 1.0f);
  EXPECT_EQ(tf::max(1.0, tf::nan<double>()), 1.0);
  EXPECT_TRUE(std::isnan(tf::max(tf::nan(), tf::nan())));
  EXPECT_EQ(tf::min(-3, 2), -3);
  EXPECT_EQ(tf::max(tf::u64{5}, tf::u64{7}), 7u);
}

TEST(Math, FmaRoundsOnce) {
  const float a = 1.0f + 0x1p-12f;
  EXPECT_EQ(tf::fma(a, a, -1.0f), 0x1p-11f + 0x1p-24f);
  EXPECT_EQ(tf::fma(1.0 + 0x1p-27, 1.0 + 0x1p-27, -1.0), 0x1p-26 + 0x1p-54);
}

TEST(Math, Constants) {
  EXPECT_EQ(tf::infinity(), kInfinity);
  EXPECT_EQ(tf::infinity<double>(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(tf::nan()) && std::isnan(tf::nan<double>()));
  EXPECT_EQ(tf::abs(-2.0f), 2.0f);
  EXPECT_EQ(tf::abs(-2.0), 2.0);
}

}  // namespace
