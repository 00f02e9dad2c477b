#pragma once

// What plans of elementwise operators (elementwise_plan.h) tell their kernels (elementwise.h).

#include "tiles.h"

namespace truefuse::common {

/// All operands of a call over one grid of rows and columns, outputs first. Strides are in
/// elements. kRowDims is 0, 1 or kMaxRowDims.
template <int kOperands, int kRowDims>
struct ElementwiseGrid {
  tf::i64 rows, columns;
  tf::i64 last_columns;  ///< Of the last row, which may be shorter. Vectors divide `columns`.
  tf::i64 column_strides[kOperands];
  tf::u32 threads_x_log2;
  tf::u32 loose_is_vector;  ///< Whether load_loose may read 16 bytes at once.
  TileMap tiles;
  tf::i64 row_sizes[kRowDims];  ///< Innermost first.
  tf::i64 row_strides[kOperands][kRowDims];
  tf::i64 row_dims;
};

/// No rows: all operands lie without gaps and in the same order.
template <int kOperands>
struct ElementwiseGrid<kOperands, 0> {
  tf::i64 elements;
  tf::u32 tiles;
};

}  // namespace truefuse::common
