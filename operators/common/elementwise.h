#pragma once

// Kernels that make each element of their outputs from the elements at the same place of their
// inputs: one pass over memory, whatever the strides.
//
// The plan (elementwise_plan.h) lays all operands, outputs first, over one grid of rows and
// columns. A block of TF_THREADS threads covers a tile: 2^threads_x_log2 threads side by side along
// the columns, the others below them along the rows. Each thread owns TF_VECTOR neighbouring
// columns and walks down TF_ROWS rows, whose loads are all in flight before the first result is
// needed. Operands without gaps (TF_ROW_DIMS 0) have no rows: a tile is TF_ROWS times a block's
// width of neighbouring elements, and one number finds them in all operands. With TF_ROW_DIMS 1
// rows are short (see RowIndexOf). Offsets are 64 bits wide: any size is addressed.
//
// A kernel's `body` has
//   Inputs<N>          what N neighbouring elements need; it adds its vectors to an arrival, and
//                      holds that one back with which the work begins (tf::Arrival)
//   load(at, in)       reads them
//   store(at, in)      computes and writes the results
// where N is TF_VECTOR, or 1 for the last elements, and `at` is a Place of N elements.
//
// Constants: TF_STORAGE (of StorageOf), TF_VECTOR, TF_ROWS, TF_ROW_DIMS (0, 1 or kMaxRowDims),
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

#if TF_ROW_DIMS == 0

/// N neighbouring elements in each operand.
template <int kOperands, int N>
struct Place {
  static constexpr int kCount = N;
  tf::i64 index;

  TF_DEVICE tf::Vector<Storage, N> load(int, const Storage* from) const {
    return tf::load<N>(from + index);
  }
  TF_DEVICE tf::Vector<Storage, N> load_loose(int k, const Storage* from) const {
    return load(k, from);
  }
  TF_DEVICE void store(int, Storage* to, const tf::Vector<Storage, N>& value) const {
    tf::store(to + index, value);
  }
  /// Of the first of 2 N elements, in operands k and k + 1 by turns.
  TF_DEVICE tf::i64 offset_of_pairs(int) const { return 2 * index; }
};

/// No work begins on the first inputs before all have arrived. (Where rows
/// may be missing the branches around the loads keep these together.)
template <class Inputs, int kRows>
TF_DEVICE void arrive_together(Inputs (&in)[kRows]) {
  if constexpr (sizeof(in) > 16) {  // Else there is one load.
    tf::Arrival all;
    TF_UNROLL for (int r = 0; r < kRows; ++r) in[r].add_to(all);
    in[0].hold(all);
  }
}

template <int kOperands, class Body>
TF_DEVICE void walk(const Grid<kOperands>& grid, const Body& body) {
  tf::wait_for_earlier_launches();
  constexpr tf::u32 kRow = TF_THREADS * TF_VECTOR;
  for (tf::u32 tile = tf::block_x(); tile < grid.tiles; tile += tf::grid_dim_x()) {
    const tf::i64 begin = static_cast<tf::i64>(static_cast<tf::u64>(tile) * (TF_ROWS * kRow));
    const tf::i64 left = grid.elements - begin;
    const tf::i64 mine = tf::thread_x() * TF_VECTOR;
    if (left >= TF_ROWS * kRow) {
      typename Body::template Inputs<TF_VECTOR> in[TF_ROWS];
      TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
        body.load(Place<kOperands, TF_VECTOR>{begin + mine + r * kRow}, in[r]);
      }
      arrive_together(in);
      TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
        body.store(Place<kOperands, TF_VECTOR>{begin + mine + r * kRow}, in[r]);
      }
      continue;
    }
    for (tf::i64 i = mine; i < left; i += kRow) {
      if (i + TF_VECTOR <= left) {
        typename Body::template Inputs<TF_VECTOR> in;
        body.load(Place<kOperands, TF_VECTOR>{begin + i}, in);
        body.store(Place<kOperands, TF_VECTOR>{begin + i}, in);
      } else {
        for (tf::i64 k = i; k < left; ++k) {
          typename Body::template Inputs<1> in;
          body.load(Place<kOperands, 1>{begin + k}, in);
          body.store(Place<kOperands, 1>{begin + k}, in);
        }
      }
    }
  }
}

#else

using Index = RowIndexOf<TF_ROW_DIMS == 1>::Type;

/// N neighbouring elements of a row in each operand.
template <int kOperands, int N>
struct Place {
  static constexpr int kCount = N;
  const Grid<kOperands>& grid;
  tf::i64 column;
  tf::i64 offsets[kOperands];  ///< Of the first elements of the row.

  TF_DEVICE Place(const Grid<kOperands>& grid, Index row, tf::i64 column)
      : grid(grid), column(column) {
#if TF_ROW_DIMS == 1
    TF_UNROLL for (int k = 0; k < kOperands; ++k) {
      offsets[k] = row_offset(row, grid.row_strides[k][0]);
    }
#else
    TF_UNROLL for (int k = 0; k < kOperands; ++k) offsets[k] = 0;
    // Constant indices only: others would make a copy of the grid in slow memory.
    TF_UNROLL for (int d = 0; d < TF_ROW_DIMS; ++d) {
      if (d >= grid.row_dims) break;
      const tf::i64 outer = divide(row, grid.row_sizes[d]);
      const tf::i64 here = row - outer * grid.row_sizes[d];
      TF_UNROLL for (int k = 0; k < kOperands; ++k) offsets[k] += here * grid.row_strides[k][d];
      row = outer;
    }
#endif
  }

  /// Operand k, of which a vector lies without gaps.
  TF_DEVICE tf::Vector<Storage, N> load(int k, const Storage* from) const {
    return tf::load<N>(from + offset(k));
  }

  /// The one operand that may have any strides though the others are vectors.
  TF_DEVICE tf::Vector<Storage, N> load_loose(int k, const Storage* from) const {
    if (N > 1 && grid.loose_is_vector) return load(k, from);
    const tf::i64 stride = grid.column_strides[k];
    from += offsets[k] + column * stride;
    tf::Vector<Storage, N> vector;
    vector[0] = *from;  // All there is to read of an expanded tensor.
    TF_UNROLL for (int i = 1; i < N; ++i) vector[i] = stride == 0 ? vector[0] : from[i * stride];
    return vector;
  }

  TF_DEVICE void store(int k, Storage* to, const tf::Vector<Storage, N>& value) const {
    tf::store(to + offset(k), value);
  }

  /// Of the first of 2 N elements, in operands k and k + 1 by turns.
  TF_DEVICE tf::i64 offset_of_pairs(int k) const { return offsets[k] + 2 * column; }

 private:
  TF_DEVICE tf::i64 offset(int k) const {
    return offsets[k] + (N > 1 ? column : column * grid.column_strides[k]);
  }
};

template <int kOperands, class Body>
TF_DEVICE void walk(const Grid<kOperands>& grid, const Body& body) {
  tf::wait_for_earlier_launches();
  const tf::u32 thread_x = tf::thread_x() & ((1u << grid.threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> grid.threads_x_log2;
  const tf::u32 threads_y = tf::block_dim_x() >> grid.threads_x_log2;

  for (tf::u32 tile = tf::block_x(); tile < grid.tiles.count; tile += tf::grid_dim_x()) {
    const auto place = place_of<Index>(grid.tiles, tile);
    const Index column = place.column + thread_x * TF_VECTOR;
    const Index row = place.row + thread_y;
    // Rows from here on; whole vectors fit into all of them but, perhaps, the last.
    const Index all_rows = static_cast<Index>(grid.rows);
    const Index rows = row < all_rows && column + TF_VECTOR <= static_cast<Index>(grid.columns)
                           ? all_rows - row
                           : 0;
    const Index whole_rows =
        rows == 0 || column + TF_VECTOR <= static_cast<Index>(grid.last_columns) ? rows : rows - 1;

    typename Body::template Inputs<TF_VECTOR> in[TF_ROWS];
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (down < whole_rows) {
        body.load(Place<kOperands, TF_VECTOR>(grid, row + down, column), in[r]);
      }
    }
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (down < whole_rows) {
        body.store(Place<kOperands, TF_VECTOR>(grid, row + down, column), in[r]);
      }
    }
#if TF_VECTOR > 1
    // Only memory without gaps has such a last row, and its tiles are one thread high.
    if (whole_rows < rows && rows <= TF_ROWS) {
      for (tf::i64 i = column; i < grid.last_columns; ++i) {
        const Place<kOperands, 1> at(grid, all_rows - 1, i);
        typename Body::template Inputs<1> one;
        body.load(at, one);
        body.store(at, one);
      }
    }
#endif
  }
}

#endif

}  // namespace truefuse::common::elementwise
