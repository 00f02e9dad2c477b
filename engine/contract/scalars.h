#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <truefuse/core/json.h>
#include <truefuse/core/scanner.h>

namespace truefuse {

// Each kind of scalar is one struct with
//   parse       the spec at the scanner, or nothing (and nothing taken) if the text is of another
//   kind; accepts     whether an argument (any BasicArgument) is a value of it; wanted      what
//   the argument must be, to follow "it must be"; write_json  "kind" and whatever else makes valid
//   and invalid values; kSchema     its type in a PyTorch schema.
// A new kind is such a struct, listed in ScalarSpec.

/// `"tanh"|"none"`: one of the listed strings.
struct EnumerationSpec {
  static constexpr std::string_view kGrammar = "\"text\"|...";
  static constexpr std::string_view kSchema = "str";

  std::vector<std::string> values;

  static std::optional<EnumerationSpec> parse(Scanner& scanner);
  template <class Argument>
  bool accepts(const Argument& argument) const {
    const auto* text = std::get_if<std::string_view>(&argument);
    return text != nullptr && std::find(values.begin(), values.end(), *text) != values.end();
  }
  std::string wanted() const;
  void write_json(JsonWriter& json) const;
};

/// `text`: any string; what it means is the operator's concern.
struct TextSpec {
  static constexpr std::string_view kGrammar = "text";
  static constexpr std::string_view kSchema = "str";

  static std::optional<TextSpec> parse(Scanner& scanner);
  template <class Argument>
  bool accepts(const Argument& argument) const {
    return std::holds_alternative<std::string_view>(argument);
  }
  std::string wanted() const { return "a string"; }
  void write_json(JsonWriter& json) const;
};

/// `int`, `int [0, 8]`. Both bounds belong to the range.
struct IntSpec {
  static constexpr std::string_view kGrammar = "int";
  static constexpr std::string_view kSchema = "int";
  static constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

  std::int64_t low = kLowest;
  std::int64_t high = kHighest;

  static std::optional<IntSpec> parse(Scanner& scanner);
  template <class Argument>
  bool accepts(const Argument& argument) const {
    const auto* value = std::get_if<std::int64_t>(&argument);
    return value != nullptr && low <= *value && *value <= high;
  }
  std::string wanted() const;
  void write_json(JsonWriter& json) const;
};

/// `float`, `float [0, inf)`. Without a range every value is accepted; NaN lies in no range. An
/// integer is accepted for a float.
struct FloatSpec {
  static constexpr std::string_view kGrammar = "float";
  static constexpr std::string_view kSchema = "float";

  struct Range {
    double low = 0, high = 0;
    bool low_open = false, high_open = false;

    bool contains(double value) const {
      return (low_open ? low < value : low <= value) && (high_open ? value < high : value <= high);
    }
  };
  std::optional<Range> range;

  static std::optional<FloatSpec> parse(Scanner& scanner);
  template <class Argument>
  bool accepts(const Argument& argument) const {
    double value = 0;
    if (const auto* real = std::get_if<double>(&argument)) {
      value = *real;
    } else if (const auto* integer = std::get_if<std::int64_t>(&argument)) {
      value = static_cast<double>(*integer);
    } else {
      return false;
    }
    return !range || range->contains(value);
  }
  std::string wanted() const;
  void write_json(JsonWriter& json) const;
};

/// `bool`.
struct BoolSpec {
  static constexpr std::string_view kGrammar = "bool";
  static constexpr std::string_view kSchema = "bool";

  static std::optional<BoolSpec> parse(Scanner& scanner);
  template <class Argument>
  bool accepts(const Argument& argument) const {
    return std::holds_alternative<bool>(argument);
  }
  std::string wanted() const { return "True or False"; }
  void write_json(JsonWriter& json) const;
};

using ScalarSpec = std::variant<EnumerationSpec, TextSpec, IntSpec, FloatSpec, BoolSpec>;

/// Its type in a PyTorch schema.
inline std::string_view schema_type(const ScalarSpec& scalar) {
  return std::visit([](const auto& spec) { return spec.kSchema; }, scalar);
}

/// The scalar spec at the scanner, or nothing if the text is no scalar.
std::optional<ScalarSpec> parse_scalar(Scanner& scanner);

/// The beginnings of all scalar specs, for "expected ...".
std::vector<std::string> scalar_grammars();

}  // namespace truefuse
