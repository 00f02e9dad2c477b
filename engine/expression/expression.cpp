#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <truefuse/core/error.h>
#include <truefuse/expression/expression.h>

namespace truefuse {
namespace {

constexpr int kMaxDepth = 64;

}  // namespace

/// Descends through the grammar of Expression, one function for each level.
class ExpressionParser {
 public:
  using Kind = Expression::Kind;
  using Node = std::uint32_t;

  ExpressionParser(Scanner& scanner, const Names& names) : scanner_(scanner), names_(names) {}

  Expression parse() {
    result_.root_ = expression();
    return std::move(result_);
  }

 private:
  struct Deeper {
    explicit Deeper(ExpressionParser& parser) : depth(parser.depth_) {
      if (++depth > kMaxDepth) {
        parser.scanner_.fail(parser.scanner_.position(), "the expression is nested too deeply");
      }
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  /// `call`, whose errors get the place.
  template <class Call>
  auto at(std::size_t place, const Call& call) {
    try {
      return call();
    } catch (const Error& error) {
      scanner_.fail(place, error.what());
    }
  }

  Node expression() {
    const Deeper deeper(*this);
    const Node condition = either();
    if (!scanner_.accept("?")) return condition;
    const Node yes = expression();
    scanner_.expect(":");
    const Node no = expression();
    return result_.add(Kind::choose, 0, condition, yes, no);
  }

  Node either() {
    Node left = both();
    while (scanner_.accept("||")) left = result_.add(Kind::either, 0, left, both());
    return left;
  }

  Node both() {
    Node left = equal();
    while (scanner_.accept("&&")) left = result_.add(Kind::both, 0, left, equal());
    return left;
  }

  Node equal() {
    last_reference_.reset();
    const std::size_t begin = scanner_.position();
    const Node left = order();
    // Only a left side that is one name can be compared with a word.
    const std::optional<Reference> reference = std::exchange(last_reference_, std::nullopt);
    const bool is_equal = scanner_.accept("==");
    if (!is_equal && !scanner_.accept("!=")) return left;
    const Kind kind = is_equal ? Kind::equal : Kind::not_equal;
    if (!scanner_.next_is("\"")) return result_.add(kind, 0, left, order());
    if (!reference) scanner_.fail(begin, "only a name can be compared with a word in quotes");
    const std::size_t place = scanner_.position();
    const std::string word = scanner_.quoted();
    const std::int64_t number = at(place, [&] { return names_.number_of_word(*reference, word); });
    return result_.add(kind, 0, left, result_.add(Kind::number, number));
  }

  Node order() {
    const Node left = sum();
    // a > b is b < a.
    for (const auto& [token, kind, swap] :
         {std::tuple{"<=", Kind::less_equal, false}, std::tuple{">=", Kind::less_equal, true},
          std::tuple{"<", Kind::less, false}, std::tuple{">", Kind::less, true}}) {
      if (!scanner_.accept(token)) continue;
      last_reference_.reset();
      const Node right = sum();
      return swap ? result_.add(kind, 0, right, left) : result_.add(kind, 0, left, right);
    }
    return left;
  }

  Node sum() {
    Node left = product();
    while (true) {
      if (scanner_.accept("+")) {
        left = result_.add(Kind::add, 0, left, product());
      } else if (scanner_.accept("-")) {
        left = result_.add(Kind::subtract, 0, left, product());
      } else {
        return left;
      }
      last_reference_.reset();
    }
  }

  Node product() {
    Node left = unary();
    while (true) {
      if (scanner_.accept("*")) {
        left = result_.add(Kind::multiply, 0, left, unary());
      } else if (scanner_.accept("/")) {
        left = result_.add(Kind::divide, 0, left, unary());
      } else if (scanner_.accept("%")) {
        left = result_.add(Kind::remainder, 0, left, unary());
      } else {
        return left;
      }
      last_reference_.reset();
    }
  }

  Node unary() {
    const Deeper deeper(*this);
    last_reference_.reset();
    if (scanner_.accept("-")) return forget(result_.add(Kind::negate, 0, unary()));
    if (!scanner_.next_is("!=") && scanner_.accept("!")) {
      return forget(result_.add(Kind::invert, 0, unary()));
    }
    if (scanner_.accept("(")) {
      const Node inside = expression();
      scanner_.expect(")");
      return forget(inside);
    }
    constexpr std::string_view kWhat = "a number, a name, a function or '('";
    if (scanner_.peek_word().empty()) {
      const std::size_t place = scanner_.position();
      const std::int64_t number = scanner_.integer(kWhat);
      if (scanner_.next_is(".")) scanner_.fail(place, "an expression has whole numbers only");
      return result_.add(Kind::number, number);
    }
    return named(kWhat);
  }

  Node named(std::string_view what) {
    const std::size_t place = scanner_.position();
    Reference reference;
    reference.name = scanner_.name(what);
    if (scanner_.next_is("(")) return call(place, reference.name);
    if (scanner_.accept(".")) {
      reference.property = scanner_.name("a property");
      if (scanner_.accept("(")) {
        const bool is_negative = scanner_.accept("-");
        const std::int64_t index = scanner_.integer("a whole number");
        reference.index = is_negative ? -index : index;
        scanner_.expect(")");
      }
    }
    const std::size_t slot = at(place, [&] { return names_.slot(reference); });
    const std::pair entry{reference.text(), slot};
    auto& known = result_.references_;
    if (std::find(known.begin(), known.end(), entry) == known.end()) known.push_back(entry);
    last_reference_ = reference;
    return result_.add(Kind::slot, static_cast<std::int64_t>(slot));
  }

  Node call(std::size_t place, const std::string& function) {
    constexpr std::array<std::pair<std::string_view, Kind>, 4> kFunctions{
        {{"min", Kind::minimum},
         {"max", Kind::maximum},
         {"ceil_div", Kind::ceil_div},
         {"round_up", Kind::round_up}}};
    const auto found = std::find_if(kFunctions.begin(), kFunctions.end(),
                                    [&](const auto& known) { return known.first == function; });
    if (found == kFunctions.end()) {
      scanner_.fail(place, "there is no function '" + function +
                               "'; there are min, max, ceil_div and round_up");
    }
    scanner_.expect("(");
    const Node a = expression();
    scanner_.expect(",");
    const Node b = expression();
    scanner_.expect(")");
    return forget(result_.add(found->second, 0, a, b));
  }

  Node forget(Node node) {
    last_reference_.reset();
    return node;
  }

  Scanner& scanner_;
  const Names& names_;
  Expression result_;
  std::optional<Reference> last_reference_;  // If what was read last is one name and nothing else.
  int depth_ = 0;
};

std::string Reference::text() const {
  std::string result = name;
  if (!property.empty()) result += "." + property;
  if (index) result += "(" + std::to_string(*index) + ")";
  return result;
}

Expression Expression::parse(Scanner& scanner, const Names& names) {
  return ExpressionParser(scanner, names).parse();
}

std::uint32_t Expression::add(Kind kind, std::int64_t value, std::uint32_t a, std::uint32_t b,
                              std::uint32_t c) {
  nodes_.push_back({kind, value, {a, b, c}});
  return static_cast<std::uint32_t>(nodes_.size() - 1);
}

std::int64_t Expression::evaluate(std::span<const std::int64_t> slots) const {
  try {
    return value_of(root_, slots);
  } catch (const Error& error) {
    std::string values;
    for (const auto& [name, slot] : references_) {
      values += (values.empty() ? "; " : ", ") + name + " is " + std::to_string(slots[slot]);
    }
    throw Error(error.what() + values);
  }
}

std::int64_t Expression::value_of(std::uint32_t index, std::span<const std::int64_t> slots) const {
  const Node& node = nodes_[index];
  const auto operand = [&](int i) { return value_of(node.operands[i], slots); };
  switch (node.kind) {
    case Kind::number:
      return node.value;
    case Kind::slot:
      return slots[static_cast<std::size_t>(node.value)];
    case Kind::negate:
      return binary(Kind::subtract, 0, operand(0));
    case Kind::invert:
      return operand(0) == 0 ? 1 : 0;
    case Kind::both:
      return operand(0) != 0 && operand(1) != 0 ? 1 : 0;
    case Kind::either:
      return operand(0) != 0 || operand(1) != 0 ? 1 : 0;
    case Kind::choose:
      return operand(0) != 0 ? operand(1) : operand(2);
    default:
      const std::int64_t left = operand(0);
      return binary(node.kind, left, operand(1));
  }
}

std::int64_t Expression::binary(Kind kind, std::int64_t a, std::int64_t b) const {
  std::int64_t result = 0;
  bool overflows = false;
  switch (kind) {
    case Kind::multiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Kind::add:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Kind::subtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Kind::divide:
    case Kind::remainder:
      if (b == 0) throw Error("a division by 0");
      // The smallest number by -1 does not fit, and its remainder traps.
      overflows = kind == Kind::divide && b == -1 && __builtin_sub_overflow(0, a, &result);
      if (!overflows)
        result = b == -1 ? (kind == Kind::divide ? -a : 0) : (kind == Kind::divide ? a / b : a % b);
      break;
    case Kind::ceil_div:
    case Kind::round_up:
      if (a < 0 || b <= 0) {
        throw Error(std::string(kind == Kind::ceil_div ? "ceil_div" : "round_up") + "(" +
                    std::to_string(a) + ", " + std::to_string(b) +
                    ") needs a number that is not negative and one above 0");
      }
      result = a / b + (a % b != 0 ? 1 : 0);
      if (kind == Kind::round_up) overflows = __builtin_mul_overflow(result, b, &result);
      break;
    case Kind::less:
      return a < b ? 1 : 0;
    case Kind::less_equal:
      return a <= b ? 1 : 0;
    case Kind::equal:
      return a == b ? 1 : 0;
    case Kind::not_equal:
      return a != b ? 1 : 0;
    case Kind::minimum:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
  if (overflows) throw Error("a number that does not fit in 64 bits");
  return result;
}

}  // namespace truefuse
