#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <truefuse/contract/dim.h>

namespace truefuse {

/// What a tensor's strides may be. A new word is an enumerator, a row of kLayouts and a case of
/// find_stride_fault; the grammar, the sentences and the JSON follow.
enum class Layout : std::uint8_t { contiguous, rows_strided, strided };

struct LayoutWord {
  Layout layout;
  std::string_view word;       ///< In the contract language.
  std::string_view complaint;  ///< What a tensor is that breaks it: "x is ...".
};

inline constexpr std::array<LayoutWord, 3> kLayouts{{
    {Layout::contiguous, "contiguous", "not contiguous"},
    {Layout::rows_strided, "rows-strided", "not contiguous in its last dimension"},
    {Layout::strided, "strided", ""},
}};

constexpr const LayoutWord& layout_word(Layout layout) {
  return kLayouts[static_cast<std::size_t>(layout)];
}

static_assert([] {
  for (std::size_t i = 0; i < kLayouts.size(); ++i) {
    if (static_cast<std::size_t>(kLayouts[i].layout) != i) return false;
  }
  return true;
}());

/// A dimension whose stride breaks a layout, and the stride that it must have.
template <class Dim>
struct StrideFault {
  std::size_t dimension = 0;
  Dim wanted{};
};

/// The innermost dimension that breaks the layout, if any. As in PyTorch, the stride of a dimension
/// of size 1 never matters, nor does any stride of a tensor without elements; but sizes are looked
/// at only once a stride differs, so that a good symbolic tensor is not asked about them.
template <class Dim>
std::optional<StrideFault<Dim>> find_stride_fault(Layout layout, std::span<const Dim> sizes,
                                                  std::span<const Dim> strides) {
  std::size_t checked = 0;  // Number of inner dimensions that must be dense.
  switch (layout) {
    case Layout::contiguous:
      checked = sizes.size();
      break;
    case Layout::rows_strided:
      checked = sizes.empty() ? 0 : 1;
      break;
    case Layout::strided:
      return std::nullopt;
  }
  Dim wanted(1);
  for (std::size_t k = 1; k <= checked; ++k) {
    const std::size_t i = sizes.size() - k;
    if (!(strides[i] == wanted) && Dim(1) < sizes[i]) {
      for (const Dim& size : sizes) {
        if (size == Dim(0)) return std::nullopt;
      }
      return StrideFault<Dim>{i, std::move(wanted)};
    }
    // No memory holds more elements than 64 bits can count: such a tensor is empty.
    if (k < checked && !DimTraits<Dim>::multiply(wanted, sizes[i], wanted)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace truefuse
