// grad_x = grad_out gelu'(x + bias) and its sum over the rows, grad_bias: one pass over memory, and
// a second kernel that adds up what the tiles have found, in a fixed order.
//
// Tiles as in common/tiles.h. Each thread owns TF_VECTOR neighbouring columns, loads their bias
// once and walks down rows, TF_ROWS of them in flight at once, with a sum for each column. At the
// end the threads of a column add their sums in a tree, and the tile's sums are written as one row
// of partial sums; or as the result, where one tile has all rows.
//
// Constants: TF_STAGE (1 gradients, 2 sum), TF_STORAGE (see StorageOf), TF_EXACT, TF_VECTOR,
// TF_ROWS, TF_SHORT_ROWS (see RowIndexOf), TF_THREADS.

#include "truefuse/device.h"
#include "truefuse/operators/common/device_arithmetic.h"
#include "truefuse/operators/common/gelu_derivative.h"
#include "truefuse/operators/common/tiles.h"

using namespace truefuse::common;
using Storage = StorageOf<TF_STORAGE>::Type;
using Value = tf::Compute<Storage>;
constexpr int kThreads = TF_THREADS;

/// Adds up `count` values of each thread over the threads of a column, which lie 2^threads_x_log2
/// apart; the sums are those of the threads with thread_y 0. `shared` has room for the block's.
template <int count>
TF_DEVICE void add_over_rows(Value* shared, Value (&values)[count],
                             tf::u32 threads_x_log2 TF_SITE) {
  const tf::u32 thread = tf::thread_x();
  const tf::u32 thread_y = thread >> threads_x_log2;
  for (tf::u32 half = kThreads >> threads_x_log2 >> 1; half > 0; half /= 2) {
    // The upper half writes, the lower half adds.
    if (thread_y >= half && thread_y < 2 * half) {
      TF_UNROLL for (int i = 0; i < count; ++i) shared[i * kThreads + thread] = values[i];
    }
    tf::block_sync(TF_PASS_SITE_ONLY);
    if (thread_y < half) {
      TF_UNROLL for (int i = 0; i < count; ++i) {
        values[i] += shared[i * kThreads + thread + (half << threads_x_log2)];
      }
    }
  }
  tf::block_sync(TF_PASS_SITE_ONLY);  // The next tile writes the same memory.
}

#if TF_STAGE == 1

// The plan's grid is one round of blocks.
#define TF_RESIDENT (TF_VECTOR > 1 && TF_ROWS == 1 && TF_SHORT_ROWS ? 1280 / TF_THREADS : 1)

using Vector = tf::Vector<Storage, TF_VECTOR>;
constexpr Gelu kForm = TF_EXACT ? Gelu::kExact : Gelu::kTanh;

/// Elements `column` to `column + TF_VECTOR` of a row; `whole` if one access can read them.
TF_DEVICE Vector load_columns(const Storage* row, tf::i64 column, tf::i64 stride, tf::u32 whole) {
  if (whole) return tf::load<TF_VECTOR>(row + column);
  Vector values;
  TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) values[i] = row[(column + i) * stride];
  return values;
}

TF_KERNEL_RESIDENT(TF_THREADS, TF_RESIDENT)
void bias_gelu_backward(Storage* grad_x, Storage* grad_bias, Value* partial_sums,
                        const Storage* grad_out, const Storage* x, const Storage* bias,
                        tf::i64 rows, tf::i64 hidden, tf::i64 grad_stride, tf::i64 bias_stride,
                        tf::u32 grad_is_whole, tf::u32 bias_is_whole, tf::u32 threads_x_log2,
                        tf::u32 rows_each, TileMap tiles, TF_PARAMETER RowMap x_map,
                        TF_PARAMETER RowMap grad_map) {
  TF_SHARED(Value, shared, kThreads * TF_VECTOR);
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::u32 threads_y = kThreads >> threads_x_log2;

  using Index = RowIndexOf<TF_SHORT_ROWS>::Type;
  for (tf::u32 tile = tf::block_x(); tile < tiles.count; tile += tf::grid_dim_x()) {
    const auto place = place_of<Index>(tiles, tile);
    const Index column = place.column + thread_x * TF_VECTOR;
    Index row = place.row + thread_y;
    Value sums[TF_VECTOR] = {};
    if (column < static_cast<Index>(hidden)) {
      const Vector bias_values = load_columns(bias, column, bias_stride, bias_is_whole);
      for (tf::u32 done = 0; done < rows_each && row < static_cast<Index>(rows); done += TF_ROWS) {
        const Index rows_left = static_cast<Index>(rows) - row;
        Vector x_values[TF_ROWS], grad_values[TF_ROWS];
        TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
          const tf::u32 down = r * threads_y;
          if (r == 0 || down < rows_left) {
            x_values[r] = tf::load<TF_VECTOR>(x + row_offset(x_map, row + down) + column);
            grad_values[r] = load_columns(grad_out + row_offset(grad_map, row + down), column,
                                          grad_stride, grad_is_whole);
          }
        }
        TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
          const tf::u32 down = r * threads_y;
          if (r == 0 || down < rows_left) {
            const auto added = tf::to_float(bias_values);
            const auto values = tf::to_float(x_values[r]);
            auto gradients = tf::to_float(grad_values[r]);
            TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
              gradients[i] *=
                  gelu_derivative<DeviceArithmetic<Value>, kForm, kPrecisionOf<Storage>>(values[i] +
                                                                                         added[i]);
              sums[i] += gradients[i];
            }
            if (grad_x) {
              tf::store(grad_x + row_offset(row + down, hidden) + column,
                        tf::from_float<Storage>(gradients));
            }
          }
        }
        row += TF_ROWS * threads_y;
      }
    }
    if (!partial_sums && !grad_bias) continue;
    add_over_rows<TF_VECTOR>(shared, sums, threads_x_log2);
    if (thread_y > 0 || column >= static_cast<Index>(hidden)) continue;
    TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
      if (partial_sums) {
        partial_sums[place.row_tile * hidden + column + i] = sums[i];
      } else {
        grad_bias[column + i] = tf::from_float<Storage>(sums[i]);
      }
    }
  }
}

#else

TF_KERNEL(TF_THREADS)
void bias_gelu_backward_sum(Storage* grad_bias, const Value* partial_sums, tf::i64 row_tiles,
                            tf::i64 hidden, tf::u32 threads_x_log2, tf::u32 column_tiles) {
  TF_SHARED(Value, shared, kThreads);
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  for (tf::u32 tile = tf::block_x(); tile < column_tiles; tile += tf::grid_dim_x()) {
    const tf::i64 column =
        static_cast<tf::i64>((static_cast<tf::u64>(tile) << threads_x_log2) + thread_x);
    Value sums[1] = {};
    if (column < hidden) {
      constexpr int kAtOnce = 8;
      const tf::i64 step = kThreads >> threads_x_log2;
      for (tf::i64 row = thread_y; row < row_tiles; row += kAtOnce * step) {
        Value values[kAtOnce];
        TF_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const tf::i64 at = row + i * step;
          values[i] = at < row_tiles ? partial_sums[at * hidden + column] : Value(0);
        }
        TF_UNROLL for (int i = 0; i < kAtOnce; ++i) sums[0] += values[i];
      }
    }
    add_over_rows<1>(shared, sums, threads_x_log2);
    if (thread_y == 0 && column < hidden) grad_bias[column] = tf::from_float<Storage>(sums[0]);
  }
}

#endif
