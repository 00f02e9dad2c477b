#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

#include <truefuse/expression/expression.h>

#include "../error_of.h"

namespace truefuse {
namespace {

using testing::error_of;

const std::vector<std::pair<std::string, std::int64_t>> kKnown{
    {"rows", 4},
    {"hidden", 30},
    {"zero", 0},
    {"x.stride(0)", -7},
    {"mode", 1},
    {"huge", std::numeric_limits<std::int64_t>::max()},
    {"least", std::numeric_limits<std::int64_t>::min()}};

Names names() {
  return {[](const Reference& reference) -> std::size_t {
            for (std::size_t i = 0; i < kKnown.size(); ++i) {
              if (kKnown[i].first == reference.text()) return i;
            }
            throw Error("there is no " + reference.text());
          },
          [](const Reference& reference, const std::string& word) -> std::int64_t {
            if (reference.name != "mode") throw Error(reference.name + " is no word");
            if (word == "tanh") return 0;
            if (word == "none") return 1;
            throw Error("mode is never \"" + word + "\"");
          }};
}

std::int64_t evaluate(const std::string& text) {
  Scanner scanner("expression", text);
  const Expression expression = Expression::parse(scanner, names());
  EXPECT_TRUE(scanner.at_end()) << text;
  std::vector<std::int64_t> slots;
  for (const auto& [name, value] : kKnown) slots.push_back(value);
  return expression.evaluate(slots);
}

TEST(Expression, computes_as_c_does) {
  const std::map<std::string, std::int64_t> cases{
      {"7", 7},
      {"-rows + 1", -3},
      {"2 + 3 * rows", 14},
      {"(2 + 3) * rows", 20},
      {"hidden - rows - 1", 25},
      {"hidden / rows * rows", 28},
      {"hidden % rows", 2},
      {"x.stride(0) / 2", -3},
      {"x.stride(0) % 2", -1},
      {"rows < hidden", 1},
      {"rows > hidden", 0},
      {"rows <= 4 && rows >= 4", 1},
      {"!zero && !(rows == 5)", 1},
      {"zero || rows != 4", 0},
      {"1 || 0 && 0", 1},
      {"zero ? 1 : rows ? 2 : 3", 2},
      {"min(rows, hidden) + max(rows, hidden)", 34},
      {"ceil_div(hidden, rows)", 8},
      {"round_up(hidden, 32)", 32},
      {"round_up(0, 32)", 0},
      {"mode == \"none\"", 1},
      {"mode != \"none\" ? 5 : 6", 6},
      {"least % -1", 0},
  };
  for (const auto& [text, value] : cases) EXPECT_EQ(evaluate(text), value) << text;
}

TEST(Expression, evaluates_only_what_it_needs) {
  EXPECT_EQ(evaluate("zero == 0 ? rows : rows / zero"), 4);
  EXPECT_EQ(evaluate("zero != 0 && rows / zero"), 0);
  EXPECT_EQ(evaluate("1 || rows / zero"), 1);
}

TEST(Expression, agrees_with_the_compiler_on_random_arithmetic) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto number = [&] { return static_cast<std::int64_t>(random() % 41); };
    const std::int64_t a = number(), b = number() + 1, c = number(), d = number() + 1;
    const std::string text = std::to_string(a) + "*" + std::to_string(c) + "-" + std::to_string(c) +
                             "/" + std::to_string(d) + "%" + std::to_string(b) + "<" +
                             std::to_string(b) + "?" + std::to_string(a) + ":-" + std::to_string(d);
    EXPECT_EQ(evaluate(text), a * c - c / d % b < b ? a : -d) << text;
  }
}

TEST(Expression, errors_point_at_the_place) {
  const std::map<std::string, std::string> cases{
      {"rows + colums", "expression: there is no colums.\n  rows + colums\n         ^"},
      {"rows +",
       "expression: expected a number, a name, a function or '(', found the end.\n"
       "  rows +\n        ^"},
      {"mini(rows, 2)",
       "expression: there is no function 'mini'; there are min, max, ceil_div and "
       "round_up.\n  mini(rows, 2)\n  ^"},
      {"min(rows)", "expression: expected ',', found ')'.\n  min(rows)\n          ^"},
      {"mode == \"erf\"", "expression: mode is never \"erf\".\n  mode == \"erf\"\n          ^"},
      {"rows == \"tanh\"", "expression: rows is no word.\n  rows == \"tanh\"\n          ^"},
      {"mode + 0 == \"tanh\"",
       "expression: only a name can be compared with a word in quotes.\n"
       "  mode + 0 == \"tanh\"\n  ^"},
      {"(mode) == \"tanh\"",
       "expression: only a name can be compared with a word in quotes.\n"
       "  (mode) == \"tanh\"\n  ^"},
      {"99999999999999999999",
       "expression: the number does not fit in 64 bits.\n"
       "  99999999999999999999\n  ^"},
  };
  for (const auto& [text, sentence] : cases) {
    EXPECT_EQ(error_of([&] { evaluate(text); }), sentence);
  }
  EXPECT_NE(error_of([] { evaluate(std::string(500, '(')); }).find("nested too deeply"),
            std::string::npos);
}

TEST(Expression, errors_while_computing_show_the_values) {
  EXPECT_EQ(error_of([] { evaluate("rows / (hidden - hidden)"); }),
            "a division by 0; rows is 4, hidden is 30");
  EXPECT_EQ(
      error_of([] { evaluate("ceil_div(rows, zero)"); }),
      "ceil_div(4, 0) needs a number that is not negative and one above 0; rows is 4, zero is 0");
  for (const std::string text :
       {"huge + 1", "huge * 2", "-least", "least / -1", "least - 1", "round_up(huge, 2)"}) {
    EXPECT_NE(error_of([&] { evaluate(text); }).find("does not fit in 64 bits"), std::string::npos)
        << text;
  }
}

TEST(Expression, leaves_what_follows) {
  Scanner scanner("expression", "rows * 2 block = 3");
  Expression::parse(scanner, names());
  EXPECT_TRUE(scanner.accept_word("block"));
}

}  // namespace
}  // namespace truefuse
