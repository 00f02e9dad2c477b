#pragma once

// For tests of formulas that are written once for every platform (operators/common): scalar
// arithmetics, references in long double, and errors in ulp by binade.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <type_traits>
#include <utility>

#include <truefuse/operators/common/gelu.h>

namespace truefuse::common::testing {

enum class Quality { kExact, kDevice, kCpu };

/// kDevice: exp2 and reciprocals are off by one ulp, up and down in turn with the argument's last
/// bit, and flush subnormal results, as GPU instructions may. kCpu: the polynomial exp2, and a
/// rough reciprocal that is good to 2^-14 only.
template <class T, Quality kQuality>
struct Arithmetic {
  using Value = T;
  using Scalar = T;
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  static constexpr bool kSaturates = kQuality == Quality::kDevice && sizeof(T) == 4;

  static T fma(T a, T b, T c) { return std::fma(a, b, c); }
  static T magnitude(T v, T limit) { return std::fmin(std::fabs(v), limit); }
  static T magnitude_nan(T v, T limit) { return std::fabs(v) > limit ? limit : std::fabs(v); }
  static T below_zero(T v, T a, T b) { return v < 0 ? a : b; }
  static T positive_part(T v) { return v < 0 ? T(-0.0) : v; }
  static T cut_below(T v, T limit) { return v < limit ? limit : v; }
  static T reciprocal(T d) { return spoil(1 / d, d); }
  static T rough_reciprocal(T d) {
    if constexpr (kQuality != Quality::kCpu || sizeof(T) == 8) return reciprocal(d);
    return (1 / d) * (odd(d) ? T(1 + 0x1p-14) : T(1 - 0x1p-14));
  }
  static T exp2(T y) { return spoil(std::exp2(y), y); }
  static T exp2_small(T f) {
    if constexpr (kQuality == Quality::kCpu || sizeof(T) == 8)
      return common::exp2_polynomial<Arithmetic>(f);
    return exp2(f);
  }
  static T shift_exponent(T e, T m) {
    return std::bit_cast<T>(std::bit_cast<Bits>(e) +
                            (std::bit_cast<Bits>(m) << (sizeof(T) == 8 ? 52 : 23)));
  }

 private:
  static bool odd(T x) { return std::bit_cast<Bits>(x) & 1; }
  static T spoil(T result, T argument) {
    if constexpr (kQuality != Quality::kDevice || sizeof(T) == 8) return result;
    if (std::fabs(result) < std::numeric_limits<T>::min()) return std::copysign(T(0), result);
    if (!std::isfinite(result) || result == 1) return result;
    return std::nextafter(result, odd(argument) ? T(0) : std::numeric_limits<T>::infinity());
  }
};

/// gelu(v). Long double is rounded where the function is steep: arguments are carried in two parts.
template <Gelu kForm>
long double reference(long double v) {
  if (std::isnan(v) || v > 200) return v;
  if (v < -50 && kForm == Gelu::kTanh) return -0.0L;
  if (v < -150) return -0.0L;
  if constexpr (kForm == Gelu::kExact) {
    const long double half_root = 0.707106781186547524400844362104849039L;
    const long double half_root_low = 1.8950325588932570797e-20L;
    const long double z = -v * half_root;
    const long double z_low = std::fma(-v, half_root, -z) - v * half_root_low;
    const long double slope = -2 / std::sqrt(std::acos(-1.0L)) * std::exp(-z * z);
    return v / 2 * (std::erfc(z) + slope * z_low);
  } else {
    const long double root = std::sqrt(2 / std::acos(-1.0L));
    const long double root_low = std::fma(-root, root, 2 / std::acos(-1.0L)) / (2 * root);
    const long double square = v * v;
    const long double square_low = std::fma(v, v, -square);
    const long double s = std::fma(0.044715L, square, 1.0L);
    const long double s_low = std::fma(0.044715L, square, 1 - s) + 0.044715L * square_low;
    const long double t = v * s;
    const long double t_low = std::fma(v, s, -t) + v * s_low;
    const long double x = -2 * root * t;
    const long double x_low = std::fma(-2 * root, t, -x) - 2 * root * t_low - 2 * root_low * t;
    const long double e = std::exp(x);
    return v / (1 + e + e * x_low);
  }
}

struct Format {
  int digits;        // Of the significand.
  int min_exponent;  // Of the smallest normal number.
};
inline constexpr Format kF64{53, -1022}, kF32{24, -126}, kF16{11, -14}, kBf16{8, -126};

inline long double ulp_of(long double value, Format format) {
  const int exponent = value == 0 ? format.min_exponent : std::ilogb(value);
  return std::ldexp(1.0L, std::max(exponent, format.min_exponent) - format.digits + 1);
}

inline long double round_to(long double value, Format format) {
  const long double ulp = ulp_of(value, format);
  return std::nearbyint(value / ulp) * ulp;
}

/// The worst errors, in ulp, by sign and binade of the true result.
class Errors {
 public:
  explicit Errors(Format format) : format_(format) {}

  /// The error counts in ulp of the truth, or of a larger number that it is a difference of.
  void add(long double v, long double result, long double truth, long double allowed,
           long double term = 0) {
    const long double error =
        std::fabs(result - truth) / ulp_of(std::max(std::fabs(truth), term), format_);
    const int binade = truth == 0 ? -99999 : std::max(std::ilogb(truth), format_.min_exponent - 1);
    Worst& worst = worst_[{std::signbit(truth), binade}];
    if (error > worst.error) worst = {error, v};
    if (!(error <= allowed) && failures_++ < 5) {
      ADD_FAILURE() << "at v = " << static_cast<double>(v) << ": " << static_cast<double>(error)
                    << " ulp, allowed " << static_cast<double>(allowed) << "; result "
                    << static_cast<double>(result) << ", truth " << static_cast<double>(truth);
    }
  }

  std::size_t binades() const { return worst_.size(); }

  /// The largest error goes into the test's report.
  void record(const std::string& name) const {
    Worst all;
    for (const auto& [binade, worst] : worst_) {
      if (worst.error > all.error) all = worst;
    }
    ::testing::Test::RecordProperty(name, std::to_string(static_cast<double>(all.error)) +
                                              " ulp at " +
                                              std::to_string(static_cast<double>(all.v)));
  }

 private:
  struct Worst {
    long double error = 0, v = 0;
  };
  Format format_;
  std::map<std::pair<bool, int>, Worst> worst_;
  int failures_ = 0;
};

/// Calls use(v) for values dense where the function bends, and spread over all magnitudes.
template <class T, class Use>
void sweep(T lowest, const Use& use) {
  std::mt19937_64 random(20260716);
  std::uniform_real_distribution<double> unit;
  for (int i = 0; i < 200000; ++i) {
    use(static_cast<T>(lowest + unit(random) * (8 - lowest)));
    use(static_cast<T>(2 * unit(random) - 1));
  }
  for (int exponent = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits;
       exponent < std::numeric_limits<T>::max_exponent; ++exponent) {
    for (int i = 0; i < 40; ++i) {
      const T magnitude = std::ldexp(static_cast<T>(1 + unit(random)), exponent);
      if (!std::isfinite(magnitude)) continue;
      use(magnitude);
      use(-magnitude);
    }
  }
}

inline long double value_of_bits(std::uint32_t bits, Format format) {
  const int fraction_bits = format.digits - 1;
  const int exponent = static_cast<int>((bits & 0x7fff) >> fraction_bits);
  const auto fraction = static_cast<long double>(bits & ((1u << fraction_bits) - 1));
  const int largest = (1 << (15 - fraction_bits)) - 1;
  long double magnitude = std::numeric_limits<long double>::infinity();
  if (exponent == 0) {
    magnitude = std::ldexp(fraction, format.min_exponent - fraction_bits);
  } else if (exponent < largest) {
    magnitude = std::ldexp(fraction + std::ldexp(1.0L, fraction_bits),
                           exponent - 1 + format.min_exponent - fraction_bits);
  } else if (fraction != 0) {
    magnitude = std::numeric_limits<long double>::quiet_NaN();
  }
  return bits & 0x8000 ? -magnitude : magnitude;
}

}  // namespace truefuse::common::testing
