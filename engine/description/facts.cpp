#include <algorithm>
#include <array>
#include <variant>

#include <truefuse/description/facts.h>

namespace truefuse::description {
namespace {

using Kind = Fact::Kind;

const TensorView* view_of(const Call& call, std::size_t tensor) {
  if (tensor >= call.arguments.size()) return &call.outputs[tensor - call.arguments.size()];
  return std::get_if<TensorView>(&call.arguments[tensor]);
}

std::int64_t alignment_of(const void* data) {
  constexpr std::uintptr_t kMost = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(data) | kMost;
  return static_cast<std::int64_t>(address & (~address + 1));
}

/// Of the addresses of all rows together: of tensors whose last dimension has stride 1.
std::int64_t row_alignment_of(const TensorView& view) {
  auto bits = reinterpret_cast<std::uintptr_t>(view.data);
  for (std::size_t d = 0; d + 1 < view.sizes.size(); ++d) {
    if (view.sizes[d] != 1)
      bits |= static_cast<std::uintptr_t>(view.strides[d]) * size_of(view.dtype);
  }
  return alignment_of(reinterpret_cast<const void*>(bits));
}

std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

std::int64_t of_tensor(const Fact& fact, const TensorView* view) {
  if (fact.kind == Kind::given) return view == nullptr ? 0 : 1;
  const bool is_alignment = fact.kind == Kind::alignment || fact.kind == Kind::row_alignment;
  if (view == nullptr) return is_alignment ? 256 : 0;
  const std::size_t rank = view->sizes.size();
  switch (fact.kind) {
    case Kind::dtype:
      return static_cast<std::int64_t>(view->dtype);
    case Kind::bytes:
      return static_cast<std::int64_t>(size_of(view->dtype));
    case Kind::elements:
      return product(view->sizes);
    case Kind::alignment:
      return alignment_of(view->data);
    case Kind::row_alignment:
      return row_alignment_of(*view);
    case Kind::pack:
      return product(view->sizes.first(rank - static_cast<std::size_t>(fact.index)));
    default: {
      // Counted from the end if negative, and if it is a size that the contract bound.
      const std::int64_t place =
          fact.index < 0 ? fact.index + static_cast<std::int64_t>(rank) : fact.index;
      if (place < 0 || place >= static_cast<std::int64_t>(rank)) {
        throw Error("dimension " + std::to_string(fact.index) + " of a tensor with " +
                    std::to_string(rank));
      }
      const auto i = static_cast<std::size_t>(place);
      return fact.kind == Kind::stride ? view->strides[i] : view->sizes[i] / fact.divisor;
    }
  }
}

}  // namespace

std::optional<std::size_t> Facts::tensor_named(const std::string& name) const {
  const auto& arguments = contract_.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name == name && arguments[i].tensor() != nullptr) return i;
  }
  for (std::size_t i = 0; i < contract_.outputs().size(); ++i) {
    if (contract_.outputs()[i].name == name) return arguments.size() + i;
  }
  return std::nullopt;
}

const TensorSpec& Facts::spec(std::size_t tensor) const {
  const auto& arguments = contract_.arguments();
  return tensor < arguments.size() ? *arguments[tensor].tensor()
                                   : contract_.outputs()[tensor - arguments.size()].tensor;
}

std::string Facts::known(const std::vector<std::string>& others) const {
  std::string names;
  const auto add = [&](const std::string& name) { names += (names.empty() ? "" : ", ") + name; };
  for (const Symbol& symbol : contract_.symbols()) add(symbol.name);
  for (const ArgumentSpec& argument : contract_.arguments()) add(argument.name);
  for (const OutputSpec& output : contract_.outputs()) add(output.name);
  for (const std::string& other : others) add(other);
  return names;
}

std::size_t Facts::find(const Reference& reference, const std::vector<std::string>& others) {
  const Fact fact = fact_of(reference, others);
  const auto found = std::find(facts_.begin(), facts_.end(), fact);
  if (found != facts_.end()) return static_cast<std::size_t>(found - facts_.begin());
  facts_.push_back(fact);
  return facts_.size() - 1;
}

Fact Facts::fact_of(const Reference& reference, const std::vector<std::string>& others) const {
  if (reference.name == "device") {
    constexpr std::array<std::pair<std::string_view, Kind>, 4> kFacts{
        {{"multiprocessors", Kind::multiprocessors},
         {"wave", Kind::wave},
         {"max_shared_bytes", Kind::max_shared_bytes},
         {"max_shared_bytes_opt_in", Kind::max_shared_bytes_opt_in}}};
    for (const auto& [name, kind] : kFacts) {
      if (reference.property == name && !reference.index) return {kind};
    }
    throw Error(
        "of a device there are multiprocessors, wave, max_shared_bytes and "
        "max_shared_bytes_opt_in");
  }
  if (const auto tensor = tensor_named(reference.name)) return property(*tensor, reference);
  if (!reference.property.empty()) {
    throw Error("there is no tensor " + reference.name + "; there are " + known(others));
  }
  if (const std::optional<Fact> size = size_named(reference.name)) return *size;
  for (std::size_t i = 0; i < contract_.arguments().size(); ++i) {
    const ArgumentSpec& argument = contract_.arguments()[i];
    if (argument.name != reference.name) continue;
    const auto& scalar = std::get<ScalarSpec>(argument.spec);
    if (std::holds_alternative<IntSpec>(scalar)) return {Kind::integer, i};
    if (std::holds_alternative<BoolSpec>(scalar)) return {Kind::boolean, i};
    if (std::holds_alternative<EnumerationSpec>(scalar)) return {Kind::word, i};
    throw Error(reference.name + " is no whole number, so no expression can hold it");
  }
  throw Error("there is no " + reference.name + "; there are " + known(others));
}

std::optional<Fact> Facts::size_named(const std::string& name) const {
  const auto& symbols = contract_.symbols();
  const auto symbol =
      static_cast<std::size_t>(std::find_if(symbols.begin(), symbols.end(),
                                            [&](const Symbol& s) { return s.name == name; }) -
                               symbols.begin());
  if (symbol == symbols.size()) return std::nullopt;
  for (std::size_t i = 0; i < contract_.arguments().size(); ++i) {
    const ArgumentSpec& argument = contract_.arguments()[i];
    if (argument.optional) continue;
    if (argument.symbol == symbol) return Fact{Kind::integer, i};
    const TensorSpec* tensor = argument.tensor();
    if (tensor == nullptr) continue;
    const auto dims = static_cast<std::int64_t>(tensor->dims.size());
    if (tensor->pack == symbol) return Fact{Kind::pack, i, dims};
    for (std::int64_t d = 0; d < dims; ++d) {
      const DimSpec& dim = tensor->dims[static_cast<std::size_t>(d)];
      if (dim.symbols.size() == 1 && dim.symbols[0] == symbol) {
        return Fact{Kind::size, i, d - dims, dim.factor};
      }
    }
  }
  throw Error("the size " + name +
              " is bound by optional arguments alone, so it is not known in every call; use "
              "x.size(i) of a tensor beside x.given");
}

Fact Facts::property(std::size_t tensor, const Reference& reference) const {
  if (reference.property.empty()) {
    throw Error(
        reference.name + " is a tensor; of one there are " + reference.name +
        ".dtype, .bytes, .elements, .given, .alignment, .row_alignment, .stride(i) and .size(i)");
  }
  constexpr std::array<std::pair<std::string_view, Kind>, 8> kFacts{
      {{"dtype", Kind::dtype},
       {"bytes", Kind::bytes},
       {"elements", Kind::elements},
       {"given", Kind::given},
       {"alignment", Kind::alignment},
       {"row_alignment", Kind::row_alignment},
       {"stride", Kind::stride},
       {"size", Kind::size}}};
  for (const auto& [name, kind] : kFacts) {
    if (reference.property != name) continue;
    const bool is_indexed = kind == Kind::stride || kind == Kind::size;
    if (is_indexed != reference.index.has_value()) {
      throw Error(std::string(name) +
                  (is_indexed ? " needs a dimension: " : " takes no dimension: ") + reference.name +
                  "." + std::string(name) + (is_indexed ? "(0)" : ""));
    }
    return {kind, tensor, reference.index.value_or(0)};
  }
  throw Error(
      "a tensor has no " + reference.property + "; there are " + reference.name +
      ".dtype, .bytes, .elements, .given, .alignment, .row_alignment, .stride(i) and .size(i)");
}

std::int64_t Facts::number_of_word(const Reference& reference, const std::string& word) const {
  const auto tensor = tensor_named(reference.name);
  if (tensor && reference.property == "dtype") {
    const std::optional<DType> dtype = parse_dtype(word);
    const TensorSpec* spec = &this->spec(*tensor);
    while (spec->like) spec = contract_.arguments()[*spec->like].tensor();
    if (dtype &&
        std::find(spec->dtypes.begin(), spec->dtypes.end(), *dtype) != spec->dtypes.end()) {
      return static_cast<std::int64_t>(*dtype);
    }
    throw Error("the contract gives " + reference.name + " no dtype \"" + word + "\"");
  }
  for (const ArgumentSpec& argument : contract_.arguments()) {
    if (argument.name != reference.name || argument.tensor() != nullptr) continue;
    const auto* words = std::get_if<EnumerationSpec>(&std::get<ScalarSpec>(argument.spec));
    if (words == nullptr) break;
    const auto found = std::find(words->values.begin(), words->values.end(), word);
    if (found != words->values.end()) return found - words->values.begin();
    throw Error("the contract gives " + reference.name + " no value \"" + word + "\"");
  }
  throw Error(reference.text() + " is neither a dtype nor a word, so it is never \"" + word + "\"");
}

void Facts::evaluate(const Call& call, const DeviceFacts& device, std::int64_t* values) const {
  for (const Fact& fact : facts_) {
    std::int64_t& value = *values++;
    switch (fact.kind) {
      case Kind::multiprocessors:
        value = device.multiprocessors_or_one();
        break;
      case Kind::wave:
        value = device.wave;
        break;
      case Kind::max_shared_bytes:
        value = device.max_shared_bytes;
        break;
      case Kind::max_shared_bytes_opt_in:
        value = device.max_shared_bytes_opt_in;
        break;
      case Kind::integer:
      case Kind::boolean:
      case Kind::word: {
        // An optional scalar that is not given counts as 0.
        const Argument& argument = call.arguments[fact.tensor];
        value = 0;
        if (const auto* integer = std::get_if<std::int64_t>(&argument)) value = *integer;
        if (const auto* boolean = std::get_if<bool>(&argument)) value = *boolean ? 1 : 0;
        if (const auto* text = std::get_if<std::string_view>(&argument)) {
          const auto& words = std::get<EnumerationSpec>(
                                  std::get<ScalarSpec>(contract_.arguments()[fact.tensor].spec))
                                  .values;
          value = std::find(words.begin(), words.end(), *text) - words.begin();
        }
        break;
      }
      default:
        value = of_tensor(fact, view_of(call, fact.tensor));
    }
  }
}

}  // namespace truefuse::description
