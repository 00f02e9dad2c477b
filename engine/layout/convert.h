#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

/// For every offset of `to` the offset in `from` of the same element, -1 where `to` has padding:
/// converted[i] = x[map[i]]. Throws Error if `from` lacks a segment of `to`, or has it with other
/// axes. `map` has to.size() places.
void index_map(const Bound& from, const Bound& to, std::int64_t* map);

/// What it takes to bring a tensor [..., from.size()] into the other order.
struct Conversion {
  enum class Kind : std::uint8_t {
    nothing,  ///< The layouts are the same.
    view,     ///< A slice of the tensor: no memory is read.
    copy,     ///< The expression reads and writes each element once.
    gather,  ///< One gather through the index map; an expression would copy more than once, or none
             ///< exists.
  };
  Kind kind = Kind::gather;
  /// A PyTorch expression of `x`, any number of leading dimensions: unflatten, slices, transpose,
  /// movedim, flatten, cat. Empty if none exists (padding to be written, or splits of an axis that
  /// no reshape brings together).
  std::string expression;
  /// Elements that the expression reads and writes, per row.
  std::int64_t expression_moves = 0;
  /// The same for a gather, which also reads to.size() indices, once if the rows are many.
  std::int64_t gather_moves = 0;
  std::vector<std::string> dropped;  ///< Segments of `from` that `to` has not.
};

std::string_view text(Conversion::Kind kind);

/// Throws as index_map does.
Conversion convert(const Bound& from, const Bound& to);

}  // namespace truefuse::layout
