#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <truefuse/contract/dim.h>
#include <truefuse/contract/small_vector.h>

namespace truefuse {

/// What a tensor's strides may be; `dense` is for outputs only. A new word is an enumerator, a row
/// of kLayouts and a case of find_stride_fault; the grammar, the sentences and the JSON follow.
enum class Layout : std::uint8_t { contiguous, rows_strided, batch_strided, strided, dense };

struct LayoutWord {
  Layout layout;
  std::string_view word;       ///< In the contract language.
  std::string_view complaint;  ///< What a tensor is that breaks it: "x is ...".
};

inline constexpr std::array<LayoutWord, 5> kLayouts{{
    {Layout::contiguous, "contiguous", "not contiguous"},
    {Layout::rows_strided, "rows-strided", "not contiguous in its last dimension"},
    {Layout::batch_strided, "batch-strided", "not contiguous behind its first dimension"},
    {Layout::strided, "strided", ""},
    {Layout::dense, "dense", ""},
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
    case Layout::batch_strided:
      checked = sizes.empty() ? 0 : sizes.size() - 1;
      break;
    case Layout::strided:
    case Layout::dense:
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

/// The strides of a `dense` output for a tensor of these sizes and strides: without gaps, the
/// dimensions in the order of the strides. Where that is how the tensor lies, they are its own.
/// Contiguous where a dimension is expanded (its stride gives no order) or nothing is stored.
/// Symbolic strides are compared with each other only if the tensor is not contiguous.
template <class Dim>
void dense_strides(std::span<const Dim> sizes, std::span<const Dim> strides,
                   SmallVector<Dim, 8>& out) {
  const std::size_t rank = sizes.size();
  SmallVector<std::size_t, 8> order;  // Of the dimensions that strides matter for, innermost first.
  bool ordered = find_stride_fault(Layout::contiguous, sizes, strides).has_value();
  for (std::size_t i = rank; ordered && i-- > 0;) {
    if (!(Dim(1) < sizes[i])) continue;
    if (strides[i] == Dim(0)) ordered = false;
    order.push_back(i);
    for (std::size_t k = order.size() - 1; k > 0 && strides[order[k]] < strides[order[k - 1]];
         --k) {
      std::swap(order[k], order[k - 1]);
    }
  }
  out.clear();
  for (std::size_t i = 0; i < rank; ++i) out.push_back(Dim(1));
  if (ordered) {
    bool same = true;
    Dim next(1);
    for (std::size_t k = 0; k < order.size(); ++k) {
      same = same && strides[order[k]] == next;
      out[order[k]] = next;
      next = next * sizes[order[k]];
    }
    for (std::size_t i = rank; i-- > 0;) {
      if (same) {
        out[i] = strides[i];
      } else if (!(Dim(1) < sizes[i]) && i + 1 < rank) {
        out[i] = sizes[i + 1] * out[i + 1];
      }
    }
    return;
  }
  for (std::size_t i = rank; i-- > 1;) {
    out[i - 1] = out[i];
    if (Dim(1) < sizes[i]) out[i - 1] = out[i] * sizes[i];
  }
}

}  // namespace truefuse
