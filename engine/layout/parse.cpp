#include <algorithm>
#include <utility>

#include <truefuse/core/scanner.h>
#include <truefuse/layout/layout.h>
#include <truefuse/layout/tree.h>

namespace truefuse::layout {

using tree::Atom;
using tree::Factor;
using tree::Piece;
using tree::Product;

namespace {

// Nobody writes longer ones; they keep time and recursion bounded for any text.
constexpr std::size_t kLongestText = 4096;
constexpr std::size_t kMostFactors = 64;  // Around one segment.
constexpr int kDeepestBrackets = 64;

void refuse_long(std::string_view text) {
  if (text.size() <= kLongestText) return;
  fail_at("layout", text.substr(0, 60), 60,
          "the text has " + std::to_string(text.size()) + " characters; at most " +
              std::to_string(kLongestText) + " are read");
}

}  // namespace

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_("layout", text) { layout_.text_ = text; }

  Layout parse() {
    auto root = std::make_shared<Piece>();
    root->children = parse_pieces({}, 0);
    if (!scanner_.at_end()) scanner_.fail_expected("a size, '|' or the end");
    layout_.root_ = std::move(root);
    return std::move(layout_);
  }

 private:
  /// A split whose inner part has not been met yet.
  struct Open {
    std::string axis;
    Atom rest;
  };

  /// What stands around a piece.
  struct Path {
    std::vector<Factor> factors;
    std::vector<Open> open;
    int numbers = 0;  // Axes without a name.
  };

  std::vector<Piece> parse_pieces(const Path& around, int depth) {
    std::vector<Piece> pieces;
    do {
      pieces.push_back(parse_piece(around, depth));
    } while (scanner_.accept("|"));
    return pieces;
  }

  Piece parse_piece(Path path, int depth) {
    Piece piece;
    const std::size_t begin = scanner_.position();
    const std::size_t around = path.factors.size();
    std::size_t inside = begin;
    bool is_named = false;
    if (!scanner_.peek_word().empty()) {
      const std::string word = scanner_.name("a name");
      is_named = scanner_.accept("=");
      if (is_named) {
        piece.segment = word;
        inside = scanner_.position();
        if (word == kPadding) path.open.clear();  // It has no axis whose rest it could be.
      } else {
        parse_named_factor(path, word, begin);
      }
    }
    while (!ends_piece() && !scanner_.next_is("(")) parse_factor(path);
    if (scanner_.next_is("(")) {
      if (is_named) scanner_.fail_expected("a size: " + piece.segment + "= names one segment");
      parse_group(piece, path, depth);
    } else if (scanner_.position() == inside) {
      scanner_.fail_expected(is_named ? "a size" : "a segment, a size or '('");
    } else {
      if (!is_named) piece.segment = "x";
      finish_segment(piece.segment, path, begin);
    }
    const auto first = path.factors.begin() + static_cast<std::ptrdiff_t>(around);
    piece.factors.assign(first, path.factors.end());
    return piece;
  }

  bool ends_piece() const {
    return scanner_.at_end() || scanner_.next_is("|") || scanner_.next_is(")");
  }

  void parse_group(Piece& piece, const Path& path, int depth) {
    if (depth == kDeepestBrackets) {
      scanner_.fail(scanner_.position(),
                    "brackets are nested more than " + std::to_string(kDeepestBrackets) + " deep");
    }
    scanner_.expect("(");
    piece.children = parse_pieces(path, depth + 1);
    if (!scanner_.accept(")")) scanner_.fail_expected("a size, '|' or ')'");
    if (!ends_piece()) scanner_.fail_expected("'|', ')' or the end; sizes stand before brackets");
  }

  void parse_factor(Path& path) {
    const std::size_t begin = scanner_.position();
    if (!scanner_.peek_word().empty()) {
      parse_named_factor(path, scanner_.name("a name"), begin);
      return;
    }
    const Atom number = parse_number("a size or '('");
    if (scanner_.next_is("/") || scanner_.next_is("%")) {
      scanner_.fail_expected("a size; only an axis with a name is split");
    }
    if (number.number == 1 && !scanner_.next_is("@")) {
      accept_times();  // One of something is no axis.
    } else {
      finish_factor(path, plain_factor(path, number));
    }
  }

  void parse_named_factor(Path& path, const std::string& name, std::size_t begin) {
    if (name == kPadding) scanner_.fail(begin, "_ is padding, no axis; write _=SIZE");
    Factor factor;
    if (scanner_.accept(":")) {
      factor = {name, parse_product(), {}, {}, {}, begin};
      add_axis(path, factor);
    } else if (scanner_.next_is("/") || scanner_.next_is("%")) {
      factor = parse_part(path, name, begin);
    } else {
      factor = plain_factor(path, Atom{name, 1, begin});
    }
    finish_factor(path, std::move(factor));
  }

  /// Takes the factor's stride, if one is there, and puts it on the path.
  void finish_factor(Path& path, Factor factor) {
    if (path.factors.size() == kMostFactors) {
      scanner_.fail(factor.position, "more than " + std::to_string(kMostFactors) +
                                         " sizes stand around one segment");
    }
    if (scanner_.accept("@")) factor.stride = parse_product();
    path.factors.push_back(std::move(factor));
    accept_times();
  }

  /// "H*G" is "H G".
  void accept_times() {
    if (scanner_.accept("*") && (ends_piece() || scanner_.next_is("("))) {
      scanner_.fail_expected("a size");
    }
  }

  /// A name or a number alone: an axis, or the rest of one that is split.
  Factor plain_factor(Path& path, const Atom& atom) {
    const auto waits = [&](const Open& open) { return open.rest.is_same(atom); };
    const auto found = std::find_if(path.open.begin(), path.open.end(), waits);
    if (found != path.open.end()) {
      const auto other = std::find_if(found + 1, path.open.end(), waits);
      if (other != path.open.end()) {
        scanner_.fail(atom.position, "this may be the rest of " + found->axis + " or of " +
                                         other->axis + "; write it as " + found->axis +
                                         "%... and " + other->axis + "%...");
      }
      Factor factor{found->axis,  size_named(found->axis, atom.position), {}, atom, {},
                    atom.position};
      path.open.erase(found);
      return factor;
    }
    Factor factor{atom.name, {{{atom, false}}}, {}, {}, {}, atom.position};
    if (atom.name.empty()) {
      factor.axis = "i" + std::to_string(path.numbers++);
    } else {
      add_name(atom.name);
    }
    add_axis(path, factor);
    return factor;
  }

  /// NAME/n, NAME/n%n or NAME%n; the name has been taken.
  Factor parse_part(Path& path, const std::string& name, std::size_t begin) {
    add_name(name);
    Factor factor{name, size_named(name, begin), {}, {}, {}, begin};
    if (scanner_.accept("/")) factor.divisor = parse_atom("the size of the inner part");
    if (scanner_.accept("%")) factor.modulus = parse_atom("the size of this part");
    bool is_first = true;
    for (const Factor& before : path.factors) {
      if (before.axis != name) continue;
      is_first = false;
      if (!before.is_part()) scanner_.fail(begin, name + " is an axis already, as a whole");
    }
    const auto found = std::find_if(path.open.begin(), path.open.end(),
                                    [&](const Open& open) { return open.axis == name; });
    if (!factor.divisor) {
      if (found != path.open.end()) path.open.erase(found);
    } else if (is_first) {
      path.open.push_back({name, *factor.divisor});
    } else if (found != path.open.end() && factor.divisor->number <= found->rest.number) {
      found->rest = *factor.divisor;  // This part lies inside the one before it.
    }
    return factor;
  }

  void add_axis(const Path& path, const Factor& factor) {
    for (const Factor& before : path.factors) {
      if (before.axis != factor.axis) continue;
      scanner_.fail(factor.position, factor.axis + " is an axis of this segment already");
    }
  }

  static Product size_named(const std::string& name, std::size_t position) {
    return {{{Atom{name, 1, position}, false}}};
  }

  void add_name(const std::string& name) {
    auto& names = layout_.names_;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }

  Atom parse_number(std::string_view what) {
    const std::size_t begin = scanner_.position();
    const std::int64_t number = scanner_.integer(what);
    if (number == 0) scanner_.fail(begin, "a size is at least 1");
    return {"", number, begin};
  }

  Atom parse_atom(std::string_view what) {
    const std::size_t begin = scanner_.position();
    if (scanner_.peek_word().empty()) return parse_number(std::string(what) + ", a name or number");
    const std::string name = scanner_.name(what);
    if (name == kPadding) scanner_.fail(begin, "_ is padding, no size");
    add_name(name);
    return {name, 1, begin};
  }

  Product parse_product() {
    Product product;
    bool divides = false;
    do {
      product.steps.push_back({parse_atom("a size"), divides});
      divides = scanner_.next_is("/");
    } while (scanner_.accept("*") || scanner_.accept("/"));
    return product;
  }

  void finish_segment(const std::string& name, const Path& path, std::size_t begin) {
    if (name == kPadding) return;
    if (std::find(segments_.begin(), segments_.end(), name) != segments_.end()) {
      scanner_.fail(begin, "there is a segment " + name + " already");
    }
    segments_.push_back(name);
    // An outer part without an inner one, or the other way round, is half an axis.
    for (const Factor& factor : path.factors) {
      if (!factor.is_part()) continue;
      const auto has = [&](auto&& wanted) {
        return std::any_of(path.factors.begin(), path.factors.end(), [&](const Factor& other) {
          return other.axis == factor.axis && wanted(other);
        });
      };
      if (!has([](const Factor& other) { return !other.modulus; })) {
        scanner_.fail(factor.position, "this is a part of " + factor.axis +
                                           "; its outermost part, " + factor.axis +
                                           "/n, is missing");
      }
      if (!has([](const Factor& other) { return !other.divisor; })) {
        scanner_.fail(factor.position, "this is a part of " + factor.axis +
                                           "; its innermost part, " + factor.axis +
                                           "%n, is missing (a quotient as a size is written "
                                           "NAME:" +
                                           factor.axis + "/n)");
      }
    }
  }

  Scanner scanner_;
  Layout layout_;
  std::vector<std::string> segments_;
};

Layout Layout::parse(std::string_view text) {
  refuse_long(text);
  return Parser(text).parse();
}

Sizes parse_sizes(std::string_view text) {
  refuse_long(text);
  Scanner scanner("sizes", text);
  Sizes sizes;
  while (!scanner.at_end()) {
    const std::size_t begin = scanner.position();
    const std::string name = scanner.name("a size such as H=16");
    scanner.expect("=");
    const std::size_t value = scanner.position();
    const std::int64_t size = scanner.integer("a whole number");
    if (size == 0) scanner.fail(value, "a size is at least 1");
    if (!sizes.emplace(name, size).second) scanner.fail(begin, name + " is given twice");
    scanner.accept(",");
  }
  return sizes;
}

}  // namespace truefuse::layout
