#pragma once

// Kernels that make each element of their outputs from the elements at the same place of their
// inputs: one pass over memory, whatever the strides.
//
// The plan (elementwise_plan.h) lays all operands, outputs first, over one grid of rows and
// columns. A block of 128 threads covers a tile: 2^threads_x_log2 threads side by side along the
// columns, the others below them along the rows. Each thread owns TF_VECTOR neighbouring columns
// and walks down TF_ROWS rows, whose loads are all in flight before the first result is needed.
// Tiles are numbered along the columns first, so neighbouring blocks touch neighbouring memory.
// Tile numbers are 32 bits wide, offsets 64: any size is addressed by the same code.
//
// Constants: TF_STORAGE (0 f64, 1 f32, 2 f16, 3 bf16), TF_VECTOR, TF_ROWS, TF_ROW_DIMS (1, or
// the most that a grid has).

#include "truefuse/device.h"

#include "arithmetic.h"

#if TF_STORAGE == 0
using Storage = double;
#elif TF_STORAGE == 1
using Storage = float;
#elif TF_STORAGE == 2
using Storage = tf::f16;
#elif TF_STORAGE == 3
using Storage = tf::bf16;
#endif

namespace elementwise {

using Value = tf::Compute<Storage>;
using Arithmetic = truefuse::math::DeviceArithmetic<Value>;
constexpr auto kPrecision = truefuse::math::precision_of<Storage>();

/// Must be laid out as elementwise_plan.h's. All strides are in elements.
template <int kOperands>
struct Grid {
  tf::i64 rows, columns;
  tf::i64 last_columns;  // Of the last row, which may be shorter; TF_VECTOR divides `columns`.
  tf::i64 column_strides[kOperands];
  tf::u32 threads_x_log2;
  // Tile t lies in row of tiles t / column_tiles, which is t * multiplier >> shift for t < 2^31.
  tf::u32 tiles, column_tiles, multiplier, shift, tile_rows, tile_columns;
  tf::u32 loose_is_vector;  // Whether load_loose may read 16 bytes at once.
  tf::i64 row_sizes[TF_ROW_DIMS];  // Innermost first.
  tf::i64 row_strides[kOperands][TF_ROW_DIMS];
  tf::i64 row_dims;
};

/// Quotient of non-negative integers; the 64-bit division is several times dearer.
TF_DEVICE tf::i64 divide(tf::i64 a, tf::i64 b) {
  if (((a | b) >> 32) == 0) return static_cast<tf::u32>(a) / static_cast<tf::u32>(b);
  return a / b;
}

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
    int d = 0;
    for (; d < grid.row_dims - 1; ++d) {
      const tf::i64 outer = divide(row, grid.row_sizes[d]);
      const tf::i64 here = row - outer * grid.row_sizes[d];
      TF_UNROLL for (int k = 0; k < kOperands; ++k) of[k] += here * grid.row_strides[k][d];
      row = outer;
    }
    TF_UNROLL for (int k = 0; k < kOperands; ++k) of[k] += row * grid.row_strides[k][d];
#endif
  }
};

/// N elements, `stride` apart, one by one; one load serves all of an expanded tensor.
template <int N>
TF_DEVICE tf::Vector<Storage, N> gather(const Storage* from, tf::i64 stride) {
  tf::Vector<Storage, N> vector;
  vector[0] = *from;
  TF_UNROLL for (int i = 1; i < N; ++i) vector[i] = stride == 0 ? vector[0] : from[i * stride];
  return vector;
}

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

  for (tf::u32 tile = tf::block_x(); tile < grid.tiles; tile += tf::grid_dim_x()) {
    const tf::u32 row_tile =
        static_cast<tf::u32>(static_cast<tf::u64>(tile) * grid.multiplier >> grid.shift);
    const tf::u32 column_tile = tile - row_tile * grid.column_tiles;
    const tf::i64 column = static_cast<tf::i64>(static_cast<tf::u64>(column_tile) *
                                                    grid.tile_columns +
                                                thread_x * TF_VECTOR);
    const tf::i64 row =
        static_cast<tf::i64>(static_cast<tf::u64>(row_tile) * grid.tile_rows + thread_y);
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

/// N elements of operand k; a vector lies without gaps.
template <int N, int kOperands>
TF_DEVICE tf::Vector<Storage, N> load(const Grid<kOperands>& grid, int k, const Storage* from,
                                      tf::i64 offset, tf::i64 column) {
  if constexpr (N == TF_VECTOR && N > 1) {
    return tf::load<N>(from + offset + column);
  } else {
    return tf::load<N>(from + offset + column * grid.column_strides[k]);
  }
}

/// Of the one operand that may have any strides though the others are vectors: the gradient.
template <int N, int kOperands>
TF_DEVICE tf::Vector<Storage, N> load_loose(const Grid<kOperands>& grid, int k, const Storage* from,
                                            tf::i64 offset, tf::i64 column) {
  if (N > 1 && grid.loose_is_vector) return tf::load<N>(from + offset + column);
  const tf::i64 stride = grid.column_strides[k];
  return gather<N>(from + offset + column * stride, stride);
}

template <int N, int kOperands>
TF_DEVICE void store(const Grid<kOperands>& grid, int k, Storage* to, tf::i64 offset,
                     tf::i64 column, const tf::Vector<Storage, N>& value) {
  if constexpr (N == TF_VECTOR && N > 1) {
    tf::store(to + offset + column, value);
  } else {
    tf::store(to + offset + column * grid.column_strides[k], value);
  }
}

}  // namespace elementwise
