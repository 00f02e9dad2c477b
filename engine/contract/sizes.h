#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <variant>

#include <truefuse/contract/contract.h>
#include <truefuse/contract/dim.h>
#include <truefuse/contract/small_vector.h>
#include <truefuse/core/tensor.h>

namespace truefuse {

/// What the symbols of a contract are in one call, by their index in Contract::symbols().
template <class Dim>
class Sizes {
 public:
  explicit Sizes(std::size_t symbols) : entries_(symbols) {}

  /// False for a symbol that only optional arguments use, none of which was given.
  bool bound(std::size_t symbol) const { return entries_[symbol].argument != 0; }

  /// The size. Meaningless for a pack: its sizes are the leading ones of argument(symbol).
  const Dim& operator[](std::size_t symbol) const { return entries_[symbol].value; }

  /// The argument that bound the symbol.
  std::size_t argument(std::size_t symbol) const { return entries_[symbol].argument - 1; }

  void bind(std::size_t symbol, Dim value, std::size_t argument) {
    entries_[symbol].value = std::move(value);
    entries_[symbol].argument = static_cast<std::uint32_t>(argument + 1);
  }
  void bind_pack(std::size_t symbol, std::size_t argument) {
    entries_[symbol].argument = static_cast<std::uint32_t>(argument + 1);
  }

 private:
  struct Entry {
    Dim value{};
    std::uint32_t argument = 0;  // Plus one; 0: not bound.
  };
  SmallVector<Entry, 16> entries_;
};

/// The sizes that a bound pack stands for. They live in `arguments`.
template <class Dim>
std::span<const Dim> pack_sizes(const Contract& contract, const Sizes<Dim>& sizes,
                                std::span<const BasicArgument<Dim>> arguments, std::size_t symbol) {
  const std::size_t binder = sizes.argument(symbol);
  const auto& view = std::get<BasicTensorView<Dim>>(arguments[binder]);
  return view.sizes.first(view.sizes.size() - contract.arguments()[binder].tensor()->dims.size());
}

template <class Dim>
bool all_bound(const DimSpec& dim, const Sizes<Dim>& sizes) {
  for (const std::size_t symbol : dim.symbols) {
    if (!sizes.bound(symbol)) return false;
  }
  return true;
}

/// The size of a dimension whose symbols are all bound; false if it does not fit in a Dim.
template <class Dim>
bool evaluate(const DimSpec& dim, const Sizes<Dim>& sizes, Dim& size) {
  if (dim.is_plain()) {
    size = sizes[dim.symbols[0]];
    return true;
  }
  size = Dim(dim.factor);
  for (const std::size_t symbol : dim.symbols) {
    if (!DimTraits<Dim>::multiply(size, sizes[symbol], size)) return false;
  }
  return true;
}

}  // namespace truefuse
