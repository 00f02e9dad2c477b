#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <truefuse/contract/check.h>

#include "calls.h"

namespace truefuse {
namespace {

using testing::Tensor;

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }
  bool chance(std::size_t percent) { return below(100) < percent; }

  /// The text of a contract with two to six arguments named a0, a1, ...
  std::string contract() {
    std::string text;
    bound_.clear();
    tensors_.clear();
    const std::size_t count = 2 + below(5);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = "a" + std::to_string(i);
      text += (i == 0 ? "" : "; ") + name + ": " + (i == 0 || chance(70) ? tensor(name) : scalar());
    }
    return text;
  }

 private:
  std::string tensor(const std::string& name) {
    std::set<std::string> met;
    std::string text = "like " + (tensors_.empty() ? name : tensors_[below(tensors_.size())]);
    if (tensors_.empty() || chance(60)) {
      std::vector<std::string> dtypes{"f32", "bf16", "i64", "u8", "bool", "f8e4m3"};
      std::shuffle(dtypes.begin(), dtypes.end(), random_);
      text = dtypes[0];
      for (std::size_t i = below(3); i > 0; --i) text += "|" + dtypes[i];
    }
    text += " [";
    bool is_first = true;
    if (chance(50)) {
      text += chance(70) ? "p.." : "q..";
      is_first = false;
    }
    for (std::size_t dims = below(4); dims > 0; --dims, is_first = false) {
      text += (is_first ? "" : ", ") + dim(met);
    }
    text += std::string("] ") + std::vector<const char*>{"contiguous", "rows-strided",
                                                         "batch-strided", "strided"}[below(4)];
    const bool optional = chance(20);
    if (optional) text += " optional";
    if (chance(30)) text += " mutated";
    if (chance(20)) text += " aligned(16)";
    if (!optional) {
      tensors_.push_back(name);
      bound_.insert(met.begin(), met.end());
    }
    return text;
  }

  std::string dim(std::set<std::string>& met) {
    const std::string symbol = std::string(1, static_cast<char>('k' + below(4)));
    if (chance(15)) return std::to_string(1 + below(4));
    if (chance(30) && !bound_.empty()) {
      const std::string known = *std::next(bound_.begin(), static_cast<long>(below(bound_.size())));
      return chance(50) ? known + "*" + known : "3*" + known + "*" + known;
    }
    met.insert(symbol);
    return chance(30) ? "2*" + symbol : symbol;
  }

  std::string scalar() {
    return std::vector<const char*>{"\"tanh\"|\"none\"", "int [-3, 8]",    "int (0, inf) optional",
                                    "float (0, 1]",      "float [0, inf)", "bool"}[below(6)];
  }

  std::mt19937 random_;
  std::set<std::string> bound_;
  std::vector<std::string> tensors_;
};

/// A call that a contract accepts, with storage for its tensors, and what is known about it.
struct Call {
  const Contract& contract;
  std::vector<std::int64_t> values;              ///< Of the size symbols.
  std::vector<std::vector<std::int64_t>> packs;  ///< Of the pack symbols.
  std::vector<Tensor> tensors;                   ///< One per argument; unused for scalars.
  std::vector<Argument> arguments;

  Call(const Contract& for_contract, Generator& random) : contract(for_contract) {
    for (std::size_t i = 0; i < contract.symbols().size(); ++i) {
      values.push_back(static_cast<std::int64_t>(1 + random.below(4)));
      packs.emplace_back();
      for (std::size_t k = random.below(3); k > 0; --k) {
        packs.back().push_back(static_cast<std::int64_t>(1 + random.below(3)));
      }
    }
    const std::size_t count = contract.arguments().size();
    tensors.resize(count);
    arguments.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const ArgumentSpec& argument = contract.arguments()[i];
      if (argument.optional && random.chance(40)) continue;
      if (const TensorSpec* spec = argument.tensor()) {
        make_tensor(i, *spec, random);
        arguments[i] = tensors[i];
      } else {
        arguments[i] = scalar(std::get<ScalarSpec>(argument.spec));
      }
    }
  }

  bool given(std::size_t i) const { return !std::holds_alternative<std::monostate>(arguments[i]); }

  std::int64_t size(const DimSpec& dim) const {
    std::int64_t product = dim.factor;
    for (const std::size_t symbol : dim.symbols) product *= values[symbol];
    return product;
  }

  void make_tensor(std::size_t i, const TensorSpec& spec, Generator& random) {
    std::vector<std::int64_t> sizes;
    if (spec.pack) sizes = packs[*spec.pack];
    for (const DimSpec& dim : spec.dims) sizes.push_back(size(dim));
    const DType dtype =
        spec.like ? tensors[*spec.like].dtype : spec.dtypes[random.below(spec.dtypes.size())];
    Tensor tensor = testing::dense(sizes, dtype);
    const std::int64_t gap = static_cast<std::int64_t>(1 + random.below(3));
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      const bool is_free = spec.layout == Layout::strided ||
                           (spec.layout == Layout::rows_strided && k + 1 < sizes.size()) ||
                           (spec.layout == Layout::batch_strided && k == 0);
      if (is_free) tensor.strides[k] *= gap;
      if (is_free && !spec.mutated && random.chance(20)) tensor.strides[k] = 0;
      if (sizes[k] == 1 && random.chance(50)) tensor.strides[k] = 77;
    }
    // Addresses far apart; nothing is behind them, and nothing is read.
    tensor.data = reinterpret_cast<void*>((i + 1) << 40);
    tensors[i] = tensor;
  }

  static Argument scalar(const ScalarSpec& spec) {
    if (const auto* list = std::get_if<EnumerationSpec>(&spec))
      return std::string_view(list->values[1]);
    if (std::holds_alternative<IntSpec>(spec)) return std::int64_t{8};
    if (std::holds_alternative<FloatSpec>(spec)) return 1.0;
    return true;
  }

  /// Whether a given tensor in front of argument `i`, or a dimension in front of `dim` in it, uses
  /// the symbol.
  bool bound_before(std::size_t symbol, std::size_t i, std::size_t dim) const {
    for (std::size_t k = 0; k <= i; ++k) {
      const TensorSpec* spec = contract.arguments()[k].tensor();
      if (spec == nullptr || !given(k)) continue;
      if (spec->pack == symbol && k < i) return true;
      for (std::size_t d = 0; d < (k < i ? spec->dims.size() : dim); ++d) {
        const auto& symbols = spec->dims[d].symbols;
        if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end()) return true;
      }
    }
    return false;
  }
};

/// Everything that makes argument `i` of the call wrong, and only it.
std::vector<std::pair<std::string, std::function<void()>>> faults(Call& call, std::size_t i) {
  std::vector<std::pair<std::string, std::function<void()>>> found;
  const ArgumentSpec& argument = call.contract.arguments()[i];
  const auto set = [&](std::string what, Argument value) {
    found.emplace_back(std::move(what), [&call, i, value] { call.arguments[i] = value; });
  };
  if (!argument.optional) set("missing", {});
  const TensorSpec* spec = argument.tensor();
  if (spec == nullptr) {
    const auto& scalar = std::get<ScalarSpec>(argument.spec);
    set("a tensor", testing::dense({}));
    if (!std::holds_alternative<BoolSpec>(scalar)) set("a bool", false);
    if (!std::holds_alternative<EnumerationSpec>(scalar)) set("text", std::string_view("tanh"));
    if (std::holds_alternative<EnumerationSpec>(scalar)) set("other text", std::string_view("tan"));
    if (std::holds_alternative<IntSpec>(scalar)) set("below", std::int64_t{-4});
    if (std::holds_alternative<FloatSpec>(scalar)) set("not a number", std::nan(""));
    if (std::holds_alternative<FloatSpec>(scalar)) set("below", -1e-9);
    return found;
  }
  set("a number", 1.0);
  if (!call.given(i)) return found;

  const auto change = [&](std::string what, std::function<void(Tensor&)> edit) {
    found.emplace_back(std::move(what), [&call, i, edit] {
      edit(call.tensors[i]);
      call.arguments[i] = call.tensors[i];
    });
  };
  const auto resize = [&](std::string what, std::function<void(std::vector<std::int64_t>&)> edit) {
    change(std::move(what), [edit](Tensor& tensor) {
      edit(tensor.sizes);
      tensor.strides = testing::dense(tensor.sizes).strides;
    });
  };
  const Tensor& tensor = call.tensors[i];
  const std::size_t leading = tensor.sizes.size() - spec->dims.size();
  change("dtype", [](Tensor& t) { t.dtype = DType::c64; });
  change("device kind", [](Tensor& t) { t.device.type = DeviceType::other; });
  bool is_first = true;
  for (std::size_t k = 0; k < i; ++k)
    is_first &= call.contract.arguments()[k].tensor() == nullptr || !call.given(k);
  if (!is_first) change("device", [](Tensor& t) { t.device = {DeviceType::cuda, 1}; });
  if (!spec->pack) resize("one more dimension", [](auto& sizes) { sizes.push_back(1); });
  if (!spec->dims.empty()) {
    const std::size_t dims = spec->dims.size();
    resize("fewer dimensions", [dims](auto& sizes) { sizes.resize(dims - 1, 1); });
  }
  if (spec->pack && call.bound_before(*spec->pack, i, 0)) {
    resize("pack of other rank", [](auto& sizes) { sizes.insert(sizes.begin(), 1); });
    if (leading != 0) resize("pack of other size", [](auto& sizes) { ++sizes[0]; });
  }
  for (std::size_t d = 0; d < spec->dims.size(); ++d) {
    const DimSpec& dim = spec->dims[d];
    const bool is_binder = dim.symbols.size() == 1 && !call.bound_before(dim.symbols[0], i, d);
    if (is_binder && dim.factor == 1) continue;
    resize("size of dimension " + std::to_string(d), [=](auto& sizes) { ++sizes[leading + d]; });
  }
  if (!tensor.sizes.empty() && tensor.sizes.back() > 1) {
    const bool is_free = spec->layout == Layout::strided ||
                         (spec->layout == Layout::batch_strided && tensor.sizes.size() == 1);
    if (!is_free) change("stride", [](Tensor& t) { t.strides.back() = 2; });
    if (spec->mutated) change("expanded", [](Tensor& t) { t.strides.back() = 0; });
  }
  if (!tensor.sizes.empty()) change("negative stride", [](Tensor& t) { t.strides[0] = -1; });
  if (spec->alignment > 1) {
    change("alignment", [](Tensor& t) { t.data = static_cast<char*>(t.data) + 8; });
  }
  return found;
}

/// The argument that a sentence names first.
std::string named_first(const std::string& sentence, const Contract& contract) {
  std::size_t first = std::string::npos;
  std::string name;
  for (const ArgumentSpec& argument : contract.arguments()) {
    const std::size_t position = sentence.find(argument.name);
    if (position < first) {
      first = position;
      name = argument.name;
    }
  }
  return name;
}

TEST(CheckProperty, GoodCallsPassAndEachFaultNamesItsArgument) {
  int refused = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    Generator random(seed);
    const std::string text = random.contract();
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + text);
    const Contract contract = Contract::parse(text);
    const Call good(contract, random);
    ASSERT_EQ(testing::refusal(contract, good.arguments), "");

    const std::size_t i = random.below(contract.arguments().size());
    Call counting = good;
    for (std::size_t k = 0; k < faults(counting, i).size(); ++k) {
      // A copied argument still views the tensors of `good`, which stay as they are.
      Call bad = good;
      const auto [what, apply] = faults(bad, i)[k];
      apply();
      const std::string sentence = testing::refusal(contract, bad.arguments);
      ASSERT_EQ(named_first(sentence, contract), contract.arguments()[i].name)
          << what << ": " << sentence;
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

TEST(CheckProperty, AnyTextParsesOrIsRefusedWithACaret) {
  const std::vector<std::string> pieces{"x",
                                        ":",
                                        "f32",
                                        "|",
                                        "bf16",
                                        "[",
                                        "]",
                                        "rows..",
                                        "n",
                                        "*",
                                        "2",
                                        ",",
                                        "strided",
                                        "contiguous",
                                        "rows-strided",
                                        "batch-strided",
                                        ";",
                                        "·",
                                        "->",
                                        "like",
                                        "optional",
                                        "mutated",
                                        "aligned(",
                                        "16",
                                        ")",
                                        "\"a\"",
                                        "\"",
                                        "int",
                                        "float",
                                        "bool",
                                        "(",
                                        "inf",
                                        "-",
                                        "0.5",
                                        "\n",
                                        "\t",
                                        "\xff",
                                        "9999999999999999999"};
  std::mt19937 random(7);
  for (int i = 0; i < 50000; ++i) {
    std::string text = i % 2 == 0 ? "" : std::string(testing::kBiasGelu);
    for (std::size_t edits = 1 + random() % 12; edits > 0; --edits) {
      const std::size_t at = random() % (text.size() + 1);
      if (random() % 3 == 0) text.erase(at, random() % 8);
      text.insert(std::min(at, text.size()), pieces[random() % pieces.size()]);
    }
    try {
      EXPECT_EQ(Contract::parse(text).text(), text);
    } catch (const Error& error) {
      const std::string sentence = error.what();
      EXPECT_EQ(sentence.rfind("contract: ", 0), 0u) << sentence;
      EXPECT_EQ(sentence.back(), '^') << sentence;
    }
  }
}

}  // namespace
}  // namespace truefuse
