#pragma once

// Kernels that make each element of their outputs from the elements at the same place of their
// inputs: one pass over memory, whatever the strides.
//
// The plan (elementwise_plan.h) lays all operands, outputs first, over one grid of rows and
// columns. A block of TF_THREADS threads covers a tile: 2^threads_x_log2 threads side by side along
// the columns, the others below them along the rows. Each thread owns TF_VECTOR neighbouring
// columns and walks down TF_ROWS rows, whose loads are all in flight before the first result is
// needed. Tiles are numbered along the columns first, so neighbouring blocks touch neighbouring
// memory. Tile numbers are 32 bits wide, offsets 64: any size is addressed by the same code.
//
// Constants: TF_STORAGE (of StorageOf), TF_VECTOR, TF_ROWS, TF_ROW_DIMS (1 or kMaxRowDims),
// TF_THREADS.

#include "truefuse/device.h"

#include "device_arithmetic.h"
#include "elementwise_grid.h"

namespace truefuse::common::elementwise {

using Storage = StorageOf<TF_STORAGE>::Type;
using Value = tf::Compute<Storage>;
using Arithmetic = DeviceArithmetic<Value>;
constexpr Precision kPrecision = kPrecisionOf<Storage>;

template <int kOperands>
using Grid = ElementwiseGrid<kOperands, TF_ROW_DIMS>;

/// Of the first elements of the row `down` rows below `row`.
template <int kOperands>
struct Offsets {
  tf::i64 of[kOperands];

  TF_DEVICE Offsets(const Grid<kOperands>& grid, tf::i64 row, tf::u32 down) {
#if TF_ROW_DIMS == 1
    // The first product serves all rows of a thread.
    TF_UNROLL for (int k = 0; k < kOperands; ++k) {
      of[k] = row * grid.row_strides[k][0] + down * grid.row_strides[k][0];
    }
#else
    row += down;
    TF_UNROLL for (int k = 0; k < kOperands; ++k) of[k] = 0;
    // Constant indices only: others would make a copy of the grid in slow memory.
    TF_UNROLL for (int d = 0; d < TF_ROW_DIMS; ++d) {
      if (d >= grid.row_dims) break;
      const tf::i64 outer = divide(row, grid.row_sizes[d]);
      const tf::i64 here = row - outer * grid.row_sizes[d];
      TF_UNROLL for (int k = 0; k < kOperands; ++k) of[k] += here * grid.row_strides[k][d];
      row = outer;
    }
#endif
  }
};

/// Walks over the grid. `body` has
///   Inputs<N>                       what N neighbouring elements need
///   load<N>(offsets, column, in)    reads them
///   store<N>(offsets, column, in)   computes and writes the results
/// where N is TF_VECTOR, or 1 for the last elements of the last row.
template <int kOperands, class Body>
TF_DEVICE void walk(const Grid<kOperands>& grid, const Body& body) {
  const tf::u32 thread_x = tf::thread_x() & ((1u << grid.threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> grid.threads_x_log2;
  const tf::u32 threads_y = tf::block_dim_x() >> grid.threads_x_log2;

  for (tf::u32 tile = tf::block_x(); tile < grid.tiles.count; tile += tf::grid_dim_x()) {
    const TilePlace place = place_of(grid.tiles, tile);
    const tf::i64 column = static_cast<tf::i64>(
        static_cast<tf::u64>(place.column_tile) * grid.tiles.columns + thread_x * TF_VECTOR);
    const tf::i64 row =
        static_cast<tf::i64>(static_cast<tf::u64>(place.row_tile) * grid.tiles.rows + thread_y);
    // Rows from here on; whole vectors fit into all of them but, perhaps, the last.
    const tf::i64 rows = column + TF_VECTOR <= grid.columns ? grid.rows - row : 0;
    const tf::i64 whole_rows = column + TF_VECTOR <= grid.last_columns ? rows : rows - 1;

    typename Body::template Inputs<TF_VECTOR> in[TF_ROWS];
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (down < whole_rows) {
        body.template load<TF_VECTOR>(Offsets<kOperands>(grid, row, down), column, in[r]);
      }
    }
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (down < whole_rows) {
        body.template store<TF_VECTOR>(Offsets<kOperands>(grid, row, down), column, in[r]);
      }
    }
#if TF_VECTOR > 1
    // Only memory without gaps has such a last row, and its tiles are one thread high.
    if (whole_rows < rows && 0 < rows && rows <= TF_ROWS) {
      const Offsets<kOperands> offsets(grid, grid.rows - 1, 0);
      for (tf::i64 i = column; i < grid.last_columns; ++i) {
        typename Body::template Inputs<1> one;
        body.template load<1>(offsets, i, one);
        body.template store<1>(offsets, i, one);
      }
    }
#endif
  }
}

/// N elements of operand k; a vector of them lies without gaps.
template <int N, int kOperands>
TF_DEVICE tf::Vector<Storage, N> load(const Grid<kOperands>& grid, int k, const Storage* from,
                                      tf::i64 offset, tf::i64 column) {
  const tf::i64 stride = N > 1 ? 1 : grid.column_strides[k];
  return tf::load<N>(from + offset + column * stride);
}

/// Of the one operand that may have any strides though the others are vectors.
template <int N, int kOperands>
TF_DEVICE tf::Vector<Storage, N> load_loose(const Grid<kOperands>& grid, int k, const Storage* from,
                                            tf::i64 offset, tf::i64 column) {
  if (N > 1 && grid.loose_is_vector) return tf::load<N>(from + offset + column);
  const tf::i64 stride = grid.column_strides[k];
  from += offset + column * stride;
  tf::Vector<Storage, N> vector;
  vector[0] = *from;  // All there is to read of an expanded tensor.
  TF_UNROLL for (int i = 1; i < N; ++i) vector[i] = stride == 0 ? vector[0] : from[i * stride];
  return vector;
}

template <int N, int kOperands>
TF_DEVICE void store(const Grid<kOperands>& grid, int k, Storage* to, tf::i64 offset,
                     tf::i64 column, const tf::Vector<Storage, N>& value) {
  const tf::i64 stride = N > 1 ? 1 : grid.column_strides[k];
  tf::store(to + offset + column * stride, value);
}

}  // namespace truefuse::common::elementwise
