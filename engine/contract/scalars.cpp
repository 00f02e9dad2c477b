#include <cmath>
#include <cstddef>
#include <utility>

#include <truefuse/contract/scalars.h>
#include <truefuse/contract/text.h>

namespace truefuse {
namespace {

constexpr std::string_view kBound = "a number, inf or -inf";

/// -1 or 1 for an infinity at the scanner, which is taken; else 0.
int accept_infinity(Scanner& scanner) {
  if (scanner.accept_word("inf")) return 1;
  return scanner.accept("-inf") ? -1 : 0;
}

/// `[` or `(`: whether it opens an open bound.
bool parse_open(Scanner& scanner) {
  if (scanner.accept("(")) return true;
  scanner.expect("[");
  return false;
}

bool parse_close(Scanner& scanner) {
  if (scanner.accept(")")) return true;
  if (!scanner.accept("]")) scanner.fail_expected("']' or ')'");
  return false;
}

bool range_follows(const Scanner& scanner) { return scanner.next_is("[") || scanner.next_is("("); }

std::int64_t parse_signed(Scanner& scanner) {
  // One digit string with its sign, because -2^63 has no positive counterpart.
  const std::size_t begin = scanner.position();
  if (!scanner.accept("-")) return scanner.integer(kBound);
  if (scanner.position() != begin + 1) scanner.fail(begin, "a sign stands right before its number");
  if (scanner.accept("9223372036854775808")) return IntSpec::kLowest;
  return -scanner.integer(kBound);
}

}  // namespace

std::optional<EnumerationSpec> EnumerationSpec::parse(Scanner& scanner) {
  if (!scanner.next_is("\"")) return std::nullopt;
  EnumerationSpec spec;
  do {
    const std::size_t begin = scanner.position();
    std::string value = scanner.quoted();
    if (std::find(spec.values.begin(), spec.values.end(), value) != spec.values.end()) {
      scanner.fail(begin, "\"" + value + "\" is listed twice");
    }
    spec.values.push_back(std::move(value));
  } while (scanner.accept("|"));
  return spec;
}

std::string EnumerationSpec::wanted() const {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back('"' + value + '"');
  return either(quoted);
}

void EnumerationSpec::write_json(JsonWriter& json) const {
  json.key("kind").string("string").key("values").begin_array();
  for (const std::string& value : values) json.string(value);
  json.end_array();
}

std::optional<TextSpec> TextSpec::parse(Scanner& scanner) {
  if (!scanner.accept_word("text")) return std::nullopt;
  return TextSpec{};
}

void TextSpec::write_json(JsonWriter& json) const { json.key("kind").string("text"); }

std::optional<IntSpec> IntSpec::parse(Scanner& scanner) {
  if (!scanner.accept_word("int")) return std::nullopt;
  IntSpec spec;
  if (!range_follows(scanner)) return spec;
  const std::size_t begin = scanner.position();
  const bool low_open = parse_open(scanner);
  const int low_infinity = accept_infinity(scanner);
  if (low_infinity == 0) spec.low = parse_signed(scanner);
  scanner.expect(",");
  const int high_infinity = accept_infinity(scanner);
  if (high_infinity == 0) spec.high = parse_signed(scanner);
  const bool high_open = parse_close(scanner);
  if (low_infinity > 0 || high_infinity < 0) scanner.fail(begin, "the range is empty");
  if ((low_infinity != 0 && !low_open) || (high_infinity != 0 && !high_open)) {
    scanner.fail(begin, "no integer is infinite: put a round bracket beside inf");
  }
  const std::int64_t low_step = low_open && low_infinity == 0 ? 1 : 0;
  const std::int64_t high_step = high_open && high_infinity == 0 ? 1 : 0;
  if (__builtin_add_overflow(spec.low, low_step, &spec.low) ||
      __builtin_sub_overflow(spec.high, high_step, &spec.high) || spec.high < spec.low) {
    scanner.fail(begin, "the range is empty");
  }
  return spec;
}

std::string IntSpec::wanted() const {
  if (low == kLowest && high == kHighest) return "an integer";
  return "an integer in " + (low == kLowest ? "(-inf" : "[" + std::to_string(low)) + ", " +
         (high == kHighest ? "inf)" : std::to_string(high) + "]");
}

void IntSpec::write_json(JsonWriter& json) const {
  json.key("kind").string("int");
  json.key("low");
  low == kLowest ? json.null() : json.integer(low);
  json.key("high");
  high == kHighest ? json.null() : json.integer(high);
}

std::optional<FloatSpec> FloatSpec::parse(Scanner& scanner) {
  if (!scanner.accept_word("float")) return std::nullopt;
  if (!range_follows(scanner)) return FloatSpec{};
  const std::size_t begin = scanner.position();
  const auto bound = [&] {
    const int infinity = accept_infinity(scanner);
    return infinity == 0 ? scanner.number(kBound) : infinity * HUGE_VAL;
  };
  Range range;
  range.low_open = parse_open(scanner);
  range.low = bound();
  scanner.expect(",");
  range.high = bound();
  range.high_open = parse_close(scanner);
  if (!(range.low < range.high) &&
      !(range.low == range.high && !range.low_open && !range.high_open)) {
    scanner.fail(begin, "the range is empty");
  }
  return FloatSpec{range};
}

std::string FloatSpec::wanted() const {
  if (!range) return "a number";
  return std::string("a number in ") + (range->low_open ? '(' : '[') + number_text(range->low) +
         ", " + number_text(range->high) + (range->high_open ? ')' : ']');
}

void FloatSpec::write_json(JsonWriter& json) const {
  json.key("kind").string("float").key("range");
  if (!range) {
    json.null();
    return;
  }
  // An infinite bound becomes null; whether infinity itself is a value, the bracket says.
  json.begin_object();
  json.key("low").number(range->low).key("low_open").boolean(range->low_open);
  json.key("high").number(range->high).key("high_open").boolean(range->high_open);
  json.end_object();
}

std::optional<BoolSpec> BoolSpec::parse(Scanner& scanner) {
  if (scanner.peek_word() != "bool") return std::nullopt;
  // `bool [n]` and `bool|u8 [n]` are tensors.
  Scanner ahead = scanner;
  ahead.accept_word("bool");
  if (ahead.next_is("[") || ahead.next_is("|")) return std::nullopt;
  scanner = ahead;
  return BoolSpec{};
}

void BoolSpec::write_json(JsonWriter& json) const { json.key("kind").string("bool"); }

namespace {

template <class... Specs>
std::optional<ScalarSpec> parse_one_of(Scanner& scanner, std::variant<Specs...>*) {
  std::optional<ScalarSpec> found;
  const auto attempt = [&](auto spec) {
    if (spec) found = *std::move(spec);
    return found.has_value();
  };
  static_cast<void>((attempt(Specs::parse(scanner)) || ...));
  return found;
}

template <class... Specs>
std::vector<std::string> grammars_of(std::variant<Specs...>*) {
  return {std::string(Specs::kGrammar)...};
}

}  // namespace

std::optional<ScalarSpec> parse_scalar(Scanner& scanner) {
  return parse_one_of(scanner, static_cast<ScalarSpec*>(nullptr));
}

std::vector<std::string> scalar_grammars() {
  return grammars_of(static_cast<ScalarSpec*>(nullptr));
}

}  // namespace truefuse
