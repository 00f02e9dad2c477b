#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace truefuse {

/// What the check does with a size beyond `==` and `<`. This form fits any symbolic integer that is
/// default-constructible, constructible from std::int64_t, printable with `<<` and has `*` and `/`
/// (c10::SymInt is one). Comparing symbolic integers makes guards: the check compares two of them
/// only where the contract cannot be decided otherwise.
template <class Dim>
struct DimTraits {
  /// Sizes are plain numbers: pointers and memory can be looked at, comparing costs nothing.
  static constexpr bool kConcrete = false;

  static std::string text(const Dim& value) {
    std::ostringstream stream;
    stream << value;
    return stream.str();
  }
  /// False if the product cannot be represented.
  static bool multiply(const Dim& a, const Dim& b, Dim& product) {
    product = a * b;
    return true;
  }
  /// False if `value` is not a multiple of `factor`, which is at least 1.
  static bool divide(const Dim& value, std::int64_t factor, Dim& quotient) {
    quotient = value / Dim(factor);
    return quotient * Dim(factor) == value;
  }
};

template <>
struct DimTraits<std::int64_t> {
  static constexpr bool kConcrete = true;

  static std::string text(std::int64_t value) { return std::to_string(value); }
  static bool multiply(std::int64_t a, std::int64_t b, std::int64_t& product) {
    return !__builtin_mul_overflow(a, b, &product);
  }
  static bool divide(std::int64_t value, std::int64_t factor, std::int64_t& quotient) {
    quotient = value / factor;
    return value % factor == 0;
  }
};

}  // namespace truefuse
