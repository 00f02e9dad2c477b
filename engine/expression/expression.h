#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <truefuse/core/scanner.h>

namespace truefuse {

/// A name in an expression: `hidden`, `x.bytes`, `x.stride(0)`.
struct Reference {
  std::string name;
  std::string property;               ///< Empty for a plain name.
  std::optional<std::int64_t> index;  ///< What the property is asked of, in brackets.

  std::string text() const;
};

/// What the names in an expression mean. Each function throws Error with a sentence for a name or a
/// word that does not exist; the parser adds the place.
struct Names {
  /// The slot in which the name's value stands whenever the expression is evaluated.
  std::function<std::size_t(const Reference&)> slot;
  /// The number of a word that the name's value may be: `approximate == "tanh"`.
  std::function<std::int64_t(const Reference&, const std::string& word)> number_of_word;
};

/// A whole number computed from others, for launch geometry and compile-time constants:
///
///   expression = either ["?" expression ":" expression]
///   either     = both {"||" both}                  both  = equal {"&&" equal}
///   equal      = order [("==" | "!=") (order | STRING)]
///   order      = sum [("<=" | ">=" | "<" | ">") sum]
///   sum        = product {("+" | "-") product}     product = unary {("*" | "/" | "%") unary}
///   unary      = ("-" | "!") unary | "(" expression ")" | NUMBER | call | reference
///   call       = ("min" | "max" | "ceil_div" | "round_up") "(" expression "," expression ")"
///   reference  = NAME ["." NAME ["(" ["-"] NUMBER ")"]]
///
/// Everything is a 64-bit integer; a comparison is 1 or 0, and so are &&, || and !, which like ?:
/// evaluate only what they need. `/` rounds towards zero as in C. ceil_div(a, b) and
/// round_up(a, b) are the quotient rounded up and that times b, for a >= 0 and b > 0.
class Expression {
 public:
  /// Reads one expression; what follows it stays in the scanner. Throws Error with the place.
  static Expression parse(Scanner& scanner, const Names& names);

  /// Throws Error, with the names and their values, for a division by 0 and what does not fit in
  /// 64 bits.
  std::int64_t evaluate(std::span<const std::int64_t> slots) const;

 private:
  friend class ExpressionParser;

  enum class Kind : std::uint8_t {
    number,
    slot,
    negate,
    invert,
    multiply,
    divide,
    remainder,
    add,
    subtract,
    less,
    less_equal,
    equal,
    not_equal,
    both,
    either,
    choose,
    minimum,
    maximum,
    ceil_div,
    round_up,
  };
  struct Node {
    Kind kind;
    std::int64_t value;         // Of a number; the slot.
    std::uint32_t operands[3];  // Nodes.
  };

  std::int64_t value_of(std::uint32_t node, std::span<const std::int64_t> slots) const;
  std::int64_t binary(Kind kind, std::int64_t a, std::int64_t b) const;
  std::uint32_t add(Kind kind, std::int64_t value, std::uint32_t a = 0, std::uint32_t b = 0,
                    std::uint32_t c = 0);

  std::vector<Node> nodes_;
  std::uint32_t root_ = 0;
  std::vector<std::pair<std::string, std::size_t>> references_;  // For errors.
};

}  // namespace truefuse
