#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

/// What one rank holds under tensor parallelism: its range of one logical axis of every segment
/// that has it, and the whole of every segment that has not. Cutting the row in the middle is
/// something else: the halves of `H (b=G | a=G)` hold the same heads as these shares, those of `b=H
/// G | a=H G` do not.
struct Share {
  Bound local;                  ///< The same layout of the rank's own, shorter axis.
  std::vector<Segment> global;  ///< Where the elements of each segment of local lie in the whole.
  std::int64_t first = 0;       ///< The rank's first index of the axis.
  std::vector<std::string> replicated;  ///< Segments without the axis.
};

/// `layout` with `sizes` (of the whole), for rank `rank` of `world`. Throws Error if no segment has
/// the axis or its outermost part cannot be divided by `world`.
Share share(const Layout& layout, const Sizes& sizes, std::string_view axis, std::int64_t rank,
            std::int64_t world);

/// For every offset of the share the offset in the whole, -1 for padding: local[i] = whole[map[i]].
/// `map` has share.local.size() places.
void index_map(const Share& share, std::int64_t* map);

/// A stretch of the whole that is also one in the rank's share.
struct Stretch {
  std::int64_t global = 0, local = 0, length = 0;

  bool operator==(const Stretch&) const = default;
};

/// The stretches that the rank owns, by their place in the share, padding left out; at most `most`.
std::vector<Stretch> stretches(const Share& share, std::size_t most);

}  // namespace truefuse::layout
