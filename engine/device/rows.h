#pragma once

// Where the rows of a tensor [rows.., columns] begin whose leading dimensions have any strides, as
// in x[:, 1:, :] or x.transpose(0, 1). The host fills a RowMap for each call (operator/row_map.h).

#include "truefuse/device/types.h"

namespace tf {

constexpr int kMaxRowDims = 6;

/// The leading dimensions of a tensor, innermost first, merged where one stride describes two of
/// them.
struct RowMap {
  i64 sizes[kMaxRowDims];
  i64 strides[kMaxRowDims];
  i64 dims;
};

/// Quotient of non-negative integers; the 64-bit division is several times dearer.
TF_DEVICE i64 divide(i64 a, i64 b) {
  if (((a | b) >> 32) == 0) return static_cast<u32>(a) / static_cast<u32>(b);
  return a / b;
}

/// Of the first element of a row, in elements.
TF_DEVICE i64 row_offset(const RowMap& map, i64 row) {
  i64 offset = 0;
  int d = 0;
  for (; d < map.dims - 1; ++d) {
    const i64 outer = divide(row, map.sizes[d]);
    offset += (row - outer * map.sizes[d]) * map.strides[d];
    row = outer;
  }
  return offset + row * map.strides[d];
}

}  // namespace tf
