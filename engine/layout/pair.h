#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

/// One digit of an index that neither of two layouts splits further: index / divisor % extent.
struct Digit {
  std::int64_t divisor = 1, extent = 1;
  std::int64_t a_stride = 0, b_stride = 0;
};

/// The digits of one axis in two layouts, innermost first. Empty if their splits have no common
/// refinement (by 4 here, by 6 there).
std::optional<std::vector<Digit>> common_digits(const Axis& a, const Axis& b);

/// The segment of the same name in another layout.
struct Pair {
  const Segment* a = nullptr;
  const Segment* b = nullptr;
  std::vector<std::size_t> b_axes;  ///< Per axis of a, its position in b.

  const Axis& b_axis(std::size_t i) const { return b->axes[b_axes[i]]; }
  bool is_reordered() const;
  /// An index of b in the order of a.
  std::vector<std::int64_t> in_order_of_a(const std::vector<std::int64_t>& b_index) const;
};

/// Nothing if b has no such segment. Throws Error if it has, but with other axes.
std::optional<Pair> pair_of(const Segment& a, const Bound& b);

/// map[offset in a] = offset in b, for every element.
void fill_map(const Pair& pair, std::int64_t* map);

}  // namespace truefuse::layout
