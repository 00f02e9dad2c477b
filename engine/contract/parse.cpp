#include <algorithm>
#include <utility>

#include <truefuse/contract/contract.h>
#include <truefuse/contract/text.h>

namespace truefuse {
namespace {

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (std::uint8_t i = 0; static_cast<DType>(i) != DType::other; ++i) {
    names.emplace_back(short_name(static_cast<DType>(i)));
  }
  return names;
}

std::string layout_words() {
  std::vector<std::string> words;
  for (const LayoutWord& row : kLayouts) words.emplace_back(row.word);
  return "a layout (" + either(words) + ")";
}

bool contains(const std::vector<std::size_t>& items, std::size_t item) {
  return std::find(items.begin(), items.end(), item) != items.end();
}

}  // namespace

class ContractParser {
 public:
  explicit ContractParser(std::string_view text) : scanner_("contract", text) {
    contract_.text_ = text;
  }

  Contract parse() {
    do {
      parse_argument();
    } while (accept_separator());
    if (scanner_.accept("->")) {
      do {
        parse_output();
      } while (accept_separator());
    }
    if (!scanner_.at_end()) scanner_.fail_expected(expected_next_);
    return std::move(contract_);
  }

 private:
  bool accept_separator() { return scanner_.accept(";") || scanner_.accept("·"); }

  std::string parse_declared_name(std::string_view what) {
    const std::size_t begin = scanner_.position();
    std::string name = scanner_.name(what);
    const auto taken = [&](const auto& item) { return item.name == name; };
    if (std::any_of(contract_.arguments_.begin(), contract_.arguments_.end(), taken) ||
        std::any_of(contract_.outputs_.begin(), contract_.outputs_.end(), taken)) {
      scanner_.fail(begin, "the name " + name + " is taken");
    }
    scanner_.expect(":");
    return name;
  }

  void parse_argument() {
    ArgumentSpec argument;
    argument.name = parse_declared_name("an argument's name");
    if (auto scalar = parse_scalar(scanner_)) {
      const bool is_integer = std::holds_alternative<IntSpec>(*scalar);
      argument.spec = *std::move(scalar);
      if (is_integer && scanner_.accept("=")) argument.symbol = parse_size_name();
      argument.optional = scanner_.accept_word("optional");
      if (argument.symbol && !argument.optional) certain_.push_back(*argument.symbol);
      expected_next_ = "optional, ';', '->' or the end";
    } else {
      TensorSpec tensor = parse_tensor(scalar_grammars(), false);
      parse_flags(argument, tensor);
      expected_next_ = "optional, mutated, aligned(BYTES), ';', '->' or the end";
      if (!argument.optional) certain_.insert(certain_.end(), met_.begin(), met_.end());
      contract_.mutates_ |= tensor.mutated;
      argument.spec = std::move(tensor);
    }
    contract_.arguments_.push_back(std::move(argument));
  }

  std::size_t parse_size_name() {
    const std::size_t begin = scanner_.position();
    return find_or_add_symbol(scanner_.name("the name of a size"), false, begin);
  }

  void parse_output() {
    const std::size_t begin = scanner_.position();
    OutputSpec output;
    output.name = parse_declared_name("an output's name");
    if (std::none_of(contract_.arguments_.begin(), contract_.arguments_.end(), is_always_given)) {
      scanner_.fail(begin,
                    "an output needs a tensor argument that is always given, for its device");
    }
    output.tensor = parse_tensor({}, true);
    if (scanner_.accept_word("if")) output.wanted = parse_condition();
    expected_next_ = "if, ';' or the end";
    contract_.outputs_.push_back(std::move(output));
  }

  static bool is_always_given(const ArgumentSpec& argument) {
    return argument.tensor() != nullptr && !argument.optional;
  }

  /// `others`: what may stand here instead of a tensor, for the error.
  TensorSpec parse_tensor(std::vector<std::string> others, bool is_output) {
    TensorSpec tensor;
    met_.clear();
    const std::size_t begin = scanner_.position();
    if (scanner_.accept_word("like")) {
      tensor.like = parse_like();
    } else {
      others.insert(others.begin(), "like NAME");
      parse_dtypes(tensor, others);
      if (is_output && tensor.dtypes.size() > 1) scanner_.fail(begin, "an output has one dtype");
    }
    parse_dims(tensor, is_output);
    const std::size_t layout = scanner_.position();
    tensor.layout = parse_layout();
    check_layout(tensor, is_output, layout);
    return tensor;
  }

  void check_layout(const TensorSpec& tensor, bool is_output, std::size_t position) const {
    const Layout layout = tensor.layout;
    if (!is_output && layout == Layout::dense) {
      scanner_.fail(position, "an argument is contiguous, rows-strided, batch-strided or strided");
    }
    if (is_output && layout != Layout::contiguous && layout != Layout::dense) {
      scanner_.fail(position, "an output is contiguous or dense");
    }
    if (layout != Layout::dense) return;
    const TensorSpec* model = tensor.like ? contract_.arguments_[*tensor.like].tensor() : nullptr;
    if (model == nullptr || model->pack != tensor.pack || model->dims != tensor.dims) {
      scanner_.fail(position,
                    "a dense output is like an argument and has that argument's dimensions");
    }
  }

  std::size_t parse_like() {
    const std::size_t begin = scanner_.position();
    const std::string name = scanner_.name("the name of an earlier tensor");
    const auto& arguments = contract_.arguments_;
    const auto found =
        std::find_if(arguments.begin(), arguments.end(), [&](const ArgumentSpec& argument) {
          return argument.name == name && is_always_given(argument);
        });
    if (found == arguments.end()) {
      scanner_.fail(begin, name + " is no earlier tensor argument that is always given");
    }
    return static_cast<std::size_t>(found - arguments.begin());
  }

  std::size_t parse_condition() {
    const std::size_t begin = scanner_.position();
    const std::string name = scanner_.name("the name of a bool argument");
    const auto& arguments = contract_.arguments_;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const auto* scalar = std::get_if<ScalarSpec>(&arguments[i].spec);
      if (arguments[i].name != name || arguments[i].optional || scalar == nullptr) continue;
      if (std::holds_alternative<BoolSpec>(*scalar)) return i;
    }
    scanner_.fail(begin, name + " is no bool argument that is always given");
  }

  void parse_dtypes(TensorSpec& tensor, const std::vector<std::string>& others) {
    do {
      const std::size_t begin = scanner_.position();
      const std::optional<DType> dtype = parse_dtype(scanner_.peek_word());
      if (!dtype) {
        std::vector<std::string> expected = dtype_names();
        if (tensor.dtypes.empty()) expected.insert(expected.end(), others.begin(), others.end());
        scanner_.fail_expected(either(expected));
      }
      scanner_.accept_word(short_name(*dtype));
      if (std::find(tensor.dtypes.begin(), tensor.dtypes.end(), *dtype) != tensor.dtypes.end()) {
        scanner_.fail(begin, std::string(short_name(*dtype)) + " is listed twice");
      }
      tensor.dtypes.push_back(*dtype);
    } while (scanner_.accept("|"));
    if (!scanner_.next_is("[")) scanner_.fail_expected("'|' and another dtype, or '['");
  }

  void parse_dims(TensorSpec& tensor, bool is_output) {
    scanner_.expect("[");
    if (scanner_.accept("]")) return;
    do {
      const std::size_t begin = scanner_.position();
      DimSpec dim = parse_product();
      for (const std::size_t symbol : dim.symbols) {
        // A size gives one unknown; with two there is nothing to compare.
        const bool must_be_bound = is_output || dim.symbols.size() > 1;
        const bool is_certain = contains(certain_, symbol);
        if (must_be_bound && !is_certain && (is_output || !contains(met_, symbol))) {
          scanner_.fail(begin, contract_.symbols_[symbol].name +
                                   " is not bound by an earlier argument that is always given");
        }
        if (!is_certain) met_.push_back(symbol);
      }
      if (!scanner_.accept("..")) {
        tensor.dims.push_back(std::move(dim));
      } else if (!dim.is_plain()) {
        scanner_.fail(begin, "a pack is one name with two dots");
      } else if (tensor.pack || !tensor.dims.empty()) {
        scanner_.fail(begin, "a pack stands first");
      } else {
        tensor.pack = dim.symbols[0];
      }
    } while (scanner_.accept(","));
    if (!scanner_.accept("]")) scanner_.fail_expected("'*', ',' or ']'");
  }

  DimSpec parse_product() {
    DimSpec dim;
    do {
      const std::size_t begin = scanner_.position();
      if (!scanner_.peek_word().empty()) {
        const std::string name = scanner_.name("a name");
        dim.symbols.push_back(find_or_add_symbol(name, scanner_.next_is(".."), begin));
        continue;
      }
      const std::int64_t number = scanner_.integer("a name or a number");
      if (number == 0) scanner_.fail(begin, "a number among dimensions is at least 1");
      if (__builtin_mul_overflow(dim.factor, number, &dim.factor)) {
        scanner_.fail(begin, "the product does not fit in 64 bits");
      }
    } while (scanner_.accept("*"));
    return dim;
  }

  std::size_t find_or_add_symbol(const std::string& name, bool is_pack, std::size_t position) {
    auto& symbols = contract_.symbols_;
    for (std::size_t i = 0; i < symbols.size(); ++i) {
      if (symbols[i].name != name) continue;
      if (symbols[i].is_pack != is_pack) {
        scanner_.fail(position, is_pack ? name + " is one size elsewhere, not a pack"
                                        : name + " is a pack: write " + name + "..");
      }
      return i;
    }
    symbols.push_back({name, is_pack});
    return symbols.size() - 1;
  }

  Layout parse_layout() {
    for (const LayoutWord& row : kLayouts) {
      if (scanner_.accept_word(row.word)) return row.layout;
    }
    scanner_.fail_expected(layout_words());
  }

  void parse_flags(ArgumentSpec& argument, TensorSpec& tensor) {
    std::size_t begin = scanner_.position();
    const auto set = [&](bool& flag, std::string_view word) {
      if (std::exchange(flag, true)) scanner_.fail(begin, std::string(word) + " is said twice");
    };
    bool aligned = false;
    for (;; begin = scanner_.position()) {
      if (scanner_.accept_word("optional")) {
        set(argument.optional, "optional");
      } else if (scanner_.accept_word("mutated")) {
        set(tensor.mutated, "mutated");
      } else if (scanner_.accept_word("aligned")) {
        set(aligned, "aligned");
        tensor.alignment = parse_alignment();
      } else {
        return;
      }
    }
  }

  std::int64_t parse_alignment() {
    scanner_.expect("(");
    const std::size_t begin = scanner_.position();
    const std::int64_t bytes = scanner_.integer("a number of bytes");
    if (bytes == 0 || (bytes & (bytes - 1)) != 0) {
      scanner_.fail(begin, "an alignment is a power of two");
    }
    scanner_.expect(")");
    return bytes;
  }

  Scanner scanner_;
  Contract contract_;
  std::vector<std::size_t> certain_;  // Symbols bound in every call.
  std::vector<std::size_t> met_;      // Symbols that the tensor being read binds itself.
  std::string expected_next_;         // What may follow the item just read.
};

Contract Contract::parse(std::string_view text) { return ContractParser(text).parse(); }

}  // namespace truefuse
