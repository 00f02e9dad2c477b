#include <algorithm>
#include <deque>
#include <optional>
#include <variant>

#include <truefuse/contract/check.h>
#include <truefuse/description/samples.h>

namespace truefuse::description {
namespace {

constexpr std::size_t kMaxCalls = 1 << 12;

/// Something that calls differ in, and the words for each choice in a label.
struct Factor {
  enum class Kind : std::uint8_t { dtype, word, boolean, given, example, alignment } kind;
  std::size_t argument = 0;
  std::vector<std::string> labels;
};

std::string text_of(const Example& example) {
  std::string text;
  for (const auto& [name, value] : example) {
    text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
  }
  return text;
}

/// The order of the words in a label.
std::vector<Factor> factors_of(const Contract& contract, const std::vector<Example>& examples) {
  using Kind = Factor::Kind;
  std::vector<Factor> factors;
  for (std::size_t i = 0; i < contract.arguments().size(); ++i) {
    const ArgumentSpec& argument = contract.arguments()[i];
    if (const TensorSpec* tensor = argument.tensor()) {
      if (argument.optional) {
        factors.push_back({Kind::given, i, {"with " + argument.name, "without " + argument.name}});
      }
      if (tensor->dtypes.size() > 1) {
        Factor factor{Kind::dtype, i, {}};
        for (const DType dtype : tensor->dtypes) factor.labels.emplace_back(short_name(dtype));
        factors.push_back(std::move(factor));
      }
      continue;
    }
    const auto& scalar = std::get<ScalarSpec>(argument.spec);
    if (const auto* words = std::get_if<EnumerationSpec>(&scalar)) {
      factors.push_back({Kind::word, i, words->values});
    } else if (std::holds_alternative<BoolSpec>(scalar)) {
      factors.push_back({Kind::boolean, i, {argument.name, "no " + argument.name}});
    }
  }
  Factor sizes{Kind::example, 0, {}};
  for (const Example& example : examples) sizes.labels.push_back(text_of(example));
  factors.push_back(std::move(sizes));
  factors.push_back({Kind::alignment, 0, {"aligned", "unaligned"}});
  return factors;
}

/// One call that the contract allows; its tensors have addresses and no memory.
class Sample {
 public:
  Sample(const std::string& op, const Contract& contract, const std::vector<Factor>& factors,
         const std::vector<std::size_t>& choices, const std::vector<Example>& examples)
      : contract_(contract), factors_(factors), choices_(choices), examples_(examples) {
    for (std::size_t i = 0; i < contract.arguments().size(); ++i) arguments_.push_back(argument(i));
    const std::span<const Argument> view(arguments_);
    const auto sizes = check<std::int64_t>(contract, op, view);
    for (std::size_t i = 0; i < contract.outputs().size(); ++i) {
      SmallVector<std::int64_t, 8> output;
      output_sizes<std::int64_t>(contract, sizes, view, i, output);
      const std::span<const std::int64_t> wanted = output;
      outputs_.push_back(
          tensor(output_dtype<std::int64_t>(contract, view, i), {wanted.begin(), wanted.end()}, 1));
    }
  }

  Call call() const { return {arguments_, outputs_}; }

 private:
  std::size_t chosen(Factor::Kind kind, std::size_t argument = 0) const {
    for (std::size_t f = 0; f < factors_.size(); ++f) {
      if (factors_[f].kind == kind && factors_[f].argument == argument) return choices_[f];
    }
    return 0;
  }

  std::int64_t number(const std::string& name) const {
    const Example& example = examples_[chosen(Factor::Kind::example)];
    const auto found = example.find(name);
    if (found == example.end()) throw Error("an example gives no " + name);
    return found->second;
  }

  Argument argument(std::size_t i) {
    const ArgumentSpec& spec = contract_.arguments()[i];
    if (const TensorSpec* tensor_spec = spec.tensor()) {
      if (spec.optional && chosen(Factor::Kind::given, i) == 1) return std::monostate{};
      std::vector<std::int64_t> sizes;
      if (tensor_spec->pack) sizes.push_back(number(contract_.symbols()[*tensor_spec->pack].name));
      for (const DimSpec& dim : tensor_spec->dims) {
        std::int64_t size = dim.factor;
        for (const std::size_t symbol : dim.symbols)
          size *= number(contract_.symbols()[symbol].name);
        sizes.push_back(size);
      }
      const DType dtype =
          tensor_spec->like
              ? std::get<TensorView>(arguments_[*tensor_spec->like]).dtype
              : tensor_spec
                    ->dtypes[tensor_spec->dtypes.size() > 1 ? chosen(Factor::Kind::dtype, i) : 0];
      return tensor(dtype, std::move(sizes), tensor_spec->alignment);
    }
    const auto& scalar = std::get<ScalarSpec>(spec.spec);
    if (const auto* words = std::get_if<EnumerationSpec>(&scalar)) {
      return std::string_view(words->values[chosen(Factor::Kind::word, i)]);
    }
    if (std::holds_alternative<BoolSpec>(scalar)) return chosen(Factor::Kind::boolean, i) == 0;
    if (const auto* range = std::get_if<IntSpec>(&scalar)) {
      if (spec.symbol) return number(contract_.symbols()[*spec.symbol].name);
      const Example& example = examples_[chosen(Factor::Kind::example)];
      const auto found = example.find(spec.name);
      if (found != example.end()) return found->second;
      return std::clamp<std::int64_t>(1, range->low, range->high);
    }
    if (const auto* real = std::get_if<FloatSpec>(&scalar)) {
      if (!real->range) return 1.0;
      for (const double value : {1.0, 0.0, real->range->low, real->range->high,
                                 (real->range->low + real->range->high) / 2}) {
        if (real->range->contains(value)) return value;
      }
    }
    return std::string_view();
  }

  TensorView tensor(DType dtype, std::vector<std::int64_t> sizes, std::int64_t alignment) {
    std::vector<std::int64_t> strides(sizes.size(), 1);
    for (std::size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[d];
    auto address = next_address_;
    next_address_ += std::uintptr_t{1} << 40;
    if (alignment == 1 && chosen(Factor::Kind::alignment) == 1) address += size_of(dtype);
    kept_.push_back(std::move(sizes));
    const std::span<const std::int64_t> view = kept_.back();
    kept_.push_back(std::move(strides));
    return {dtype, {DeviceType::cpu, -1}, view, kept_.back(), reinterpret_cast<void*>(address)};
  }

  const Contract& contract_;
  const std::vector<Factor>& factors_;
  const std::vector<std::size_t>& choices_;
  const std::vector<Example>& examples_;
  std::uintptr_t next_address_ = std::uintptr_t{1} << 40;
  std::deque<std::vector<std::int64_t>> kept_;  // Sizes and strides, which views refer to.
  std::vector<Argument> arguments_;
  std::vector<TensorView> outputs_;
};

/// What one call asks for.
struct Asked {
  std::string kernel;
  Variant variant;
  int threads = 0;

  friend bool operator==(const Asked& a, const Asked& b) {
    return a.kernel == b.kernel && a.variant == b.variant;
  }
};

std::vector<Asked> asked_by(const std::string& op, const Geometry& geometry, const Call& call,
                            const std::string& where) {
  DeviceFacts facts;
  facts.multiprocessors = 100;
  facts.max_shared_bytes_opt_in = 227 << 10;  // As much as any device has: none is refused here.
  Plan plan;
  try {
    geometry.plan(call, facts, plan);
  } catch (const Error& error) {
    throw Error(std::string(error.what()) + " (tried with " + where + ", to find the variants of " +
                op + ")");
  }
  std::vector<Asked> asked;
  for (const Launch& launch : plan.view()) {
    asked.push_back({launch.kernel, launch.variant,
                     static_cast<int>(launch.block.x * launch.block.y * launch.block.z)});
  }
  return asked;
}

}  // namespace

std::vector<Operator::NamedVariant> variants_of(const std::string& op, const Contract& contract,
                                                const Geometry& geometry,
                                                const std::vector<Example>& examples) {
  const std::vector<Factor> factors = factors_of(contract, examples);
  std::size_t count = 1;
  std::vector<std::size_t> steps;  // Between calls that differ in one choice of a factor.
  for (const Factor& factor : factors) {
    steps.push_back(count);
    count *= factor.labels.size();
    if (count > kMaxCalls)
      throw Error(op + ": too many combinations of dtypes, words and examples");
  }
  const auto choices_of = [&](std::size_t call) {
    std::vector<std::size_t> choices;
    for (std::size_t f = 0; f < factors.size(); ++f) {
      choices.push_back(call / steps[f] % factors[f].labels.size());
    }
    return choices;
  };

  std::vector<std::vector<Asked>> asked;
  for (std::size_t c = 0; c < count; ++c) {
    const std::vector<std::size_t> choices = choices_of(c);
    const Sample sample(op, contract, factors, choices, examples);
    asked.push_back(asked_by(op, geometry, sample.call(),
                             factors[factors.size() - 2].labels[choices[factors.size() - 2]]));
  }
  std::vector<bool> matters(factors.size());
  for (std::size_t c = 0; c < count; ++c) {
    const std::vector<std::size_t> choices = choices_of(c);
    for (std::size_t f = 0; f < factors.size(); ++f) {
      if (asked[c] != asked[c - choices[f] * steps[f]]) matters[f] = true;
    }
  }

  std::vector<Operator::NamedVariant> variants;
  std::vector<Asked> known;
  for (std::size_t c = 0; c < count; ++c) {
    const std::vector<std::size_t> choices = choices_of(c);
    for (const Asked& one : asked[c]) {
      if (std::find(known.begin(), known.end(), one) != known.end()) continue;
      known.push_back(one);
      Operator::NamedVariant named;
      for (std::size_t f = 0; f < factors.size(); ++f) {
        if (matters[f])
          named.label += (named.label.empty() ? "" : " ") + factors[f].labels[choices[f]];
      }
      if (geometry.launches().size() > 1)
        named.label += (named.label.empty() ? "" : " ") + one.kernel;
      if (named.label.empty()) named.label = "one";
      for (const LaunchText& launch : geometry.launches()) {
        if (launch.kernel == one.kernel) named.kernel = launch.kernel.c_str();
      }
      named.variant = one.variant;
      // The first example, aligned: what a user of the operator meets.
      named.shown = choices[factors.size() - 2] == 0 && choices.back() == 0;
      named.block_threads = one.threads;
      variants.push_back(std::move(named));
    }
  }
  return variants;
}

}  // namespace truefuse::description
