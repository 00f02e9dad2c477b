// grad_x = grad_out gelu'(x + bias) and its sum over the rows, grad_bias: one pass over memory, and
// a second kernel that adds up what the tiles have found, in a fixed order.
//
// Tiles as in common/tiles.h, but for their rows: a tile has every so many-th group of rows, so
// that blocks that run at a time read neighbouring memory, which is a few per cent faster than
// bands of rows far apart. Each thread owns TF_VECTOR neighbouring columns, loads their bias once
// and walks down its rows, TF_ROWS of them in flight at once, with a sum for each column. At the
// end the threads of a column add up what they have found, and the tile's sums are written as one
// row of partial sums; or as the result, where one tile has all rows.
//
// Constants: TF_STAGE (1 gradients, 2 sum), TF_STORAGE (see StorageOf), TF_EXACT, TF_VECTOR,
// TF_ROWS, TF_WHOLE (grad_out and bias, too, can be read by whole vectors; else the launch says
// which), TF_SHORT_ROWS (see RowIndexOf), TF_THREADS.

#include "truefuse/device.h"
#include "truefuse/operators/common/device_arithmetic.h"
#include "truefuse/operators/common/gelu_derivative.h"
#include "truefuse/operators/common/tiles.h"

using namespace truefuse::common;
using Storage = StorageOf<TF_STORAGE>::Type;
using Value = tf::Compute<Storage>;
constexpr int kThreads = TF_THREADS;

/// The block's threads, each with a vector of neighbouring columns: `store(column, sum)` for every
/// column of the tile, once, with its sum over the rows of threads: those of a wave by shuffles,
/// then those of the waves.
template <int kCount, class Store>
TF_DEVICE void add_over_rows(tf::Vector<Value, kCount>* shared, tf::Vector<Value, kCount> values,
                             tf::u32 threads_x_log2, const Store& store TF_SITE) {
  const tf::u32 thread = tf::thread_x();
  const tf::u32 threads_x = 1u << threads_x_log2;
  for (tf::u32 down = TF_WAVE / 2; down >= threads_x; down /= 2) {
    TF_UNROLL for (int i = 0; i < kCount; ++i) {
      values[i] += tf::shuffle_xor<TF_WAVE>(values[i], static_cast<int>(down) TF_PASS_SITE);
    }
  }
  const tf::u32 across = threads_x < TF_WAVE ? threads_x : TF_WAVE;  // Of one wave.
  const tf::u32 lane = thread % TF_WAVE;
  if (lane < across) shared[thread / TF_WAVE * across + lane] = values;
  tf::block_sync(TF_PASS_SITE_ONLY);
  const Value* const rows = reinterpret_cast<const Value*>(shared);
  const tf::u32 columns = threads_x * kCount;
  const tf::u32 all = kThreads / TF_WAVE * across * kCount;
  for (tf::u32 column = thread; column < columns; column += kThreads) {
    Value even = 0, odd = 0;  // There are two or more, a power of two.
    for (tf::u32 at = column; at < all; at += 2 * columns) {
      even += rows[at];
      odd += rows[at + columns];
    }
    store(column, even + odd);
  }
  tf::block_sync(TF_PASS_SITE_ONLY);  // The next tile writes the same memory.
}

#if TF_STAGE == 1

// So many threads of a multiprocessor the plan counts on (threads_per_multiprocessor).
#define TF_RESIDENT \
  (TF_VECTOR > 1 && TF_SHORT_ROWS && TF_ROWS <= 2 ? (TF_ROWS == 1 ? 1280 : 1024) / TF_THREADS : 1)

using Vector = tf::Vector<Storage, TF_VECTOR>;
using Sums = tf::Vector<Value, TF_VECTOR>;
constexpr Gelu kForm = TF_EXACT ? Gelu::kExact : Gelu::kTanh;

/// Elements `column` to `column + TF_VECTOR` of a row; `whole` if one access can read them. Where
/// that is known only at run time, nothing else is asked for before they are there.
TF_DEVICE Vector load_columns(const Storage* row, tf::i64 column, tf::i64 stride, tf::u32 whole) {
  if (TF_WHOLE || whole) return tf::load<TF_VECTOR>(row + column);
  Vector values;
  TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) values[i] = row[(column + i) * stride];
  return values;
}

TF_KERNEL_RESIDENT(TF_THREADS, TF_RESIDENT)
void bias_gelu_backward(Storage* grad_x, Storage* grad_bias, Value* partial_sums,
                        const Storage* grad_out, const Storage* x, const Storage* bias,
                        tf::i64 rows, tf::i64 hidden, tf::i64 pitch, tf::i64 grad_stride,
                        tf::i64 bias_stride, tf::u32 grad_is_whole, tf::u32 bias_is_whole,
                        tf::u32 threads_x_log2, tf::u32 row_tiles, TileMap tiles,
                        TF_PARAMETER RowMap x_map, TF_PARAMETER RowMap grad_map) {
  TF_SHARED(Sums, shared, kThreads);
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::u32 threads_y = kThreads >> threads_x_log2;

  using Index = RowIndexOf<TF_SHORT_ROWS>::Type;
  const Index end = static_cast<Index>(rows);
  const Index group = TF_ROWS * threads_y;
  const Index stride = group * row_tiles;
  for (tf::u32 tile = tf::block_x(); tile < tiles.count; tile += tf::grid_dim_x()) {
    const auto place = place_of<Index>(tiles, tile);
    const Index column = place.column + thread_x * TF_VECTOR;
    tf::wait_for_earlier_launches();
    Sums sums = {};
    if (column < static_cast<Index>(hidden)) {
      const Vector bias_values = load_columns(bias, column, bias_stride, bias_is_whole);
      const auto load = [&](Index row, Vector& x_values, Vector& grad_values) {
        x_values = tf::load<TF_VECTOR>(x + row_offset(x_map, row) + column);
        grad_values =
            load_columns(grad_out + row_offset(grad_map, row), column, grad_stride, grad_is_whole);
      };
      const auto finish = [&](Index row, const Vector& x_values, const Vector& grad_values) {
        const auto added = tf::to_float(bias_values);
        const auto values = tf::to_float(x_values);
        auto gradients = tf::to_float(grad_values);
        TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
          gradients[i] *= gelu_derivative<DeviceArithmetic<Value>, kForm, kPrecisionOf<Storage>>(
              values[i] + added[i]);
          sums[i] += gradients[i];
        }
        if (grad_x) {
          tf::store(grad_x + row_offset(row, hidden) + column, tf::from_float<Storage>(gradients));
        }
      };
      Index row = static_cast<Index>(place.row_tile) * group + thread_y;
      Vector x_values[TF_ROWS], grad_values[TF_ROWS];
      for (; row + (TF_ROWS - 1) * threads_y < end; row += stride) {
        TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
          load(row + r * threads_y, x_values[r], grad_values[r]);
        }
        tf::Arrival all;
        TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
          all.add(x_values[r]);
          all.add(grad_values[r]);
        }
        all.hold(x_values[0]);
        TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
          finish(row + r * threads_y, x_values[r], grad_values[r]);
        }
      }
      // The last group, if rows are missing in it.
      for (; TF_ROWS > 1 && row < end; row += threads_y) {
        load(row, x_values[0], grad_values[0]);
        finish(row, x_values[0], grad_values[0]);
      }
    }
    if (!partial_sums && !grad_bias) continue;
    add_over_rows(shared, sums, threads_x_log2, [&](tf::u32 at, Value sum) {
      const Index here = place.column + at;
      if (here >= static_cast<Index>(hidden)) return;
      if (partial_sums) {
        partial_sums[place.row_tile * pitch + here] = sum;
      } else {
        grad_bias[here] = tf::from_float<Storage>(sum);
      }
    });
  }
}

#else

constexpr int kWide = 16 / sizeof(Value);  // Columns of a thread: one access.
using Sums = tf::Vector<Value, kWide>;

// Rows of partial sums are `pitch` apart, a multiple of kWide.
TF_KERNEL(TF_THREADS)
void bias_gelu_backward_sum(Storage* grad_bias, const Value* partial_sums, tf::i64 row_tiles,
                            tf::i64 hidden, tf::i64 pitch, tf::u32 threads_x_log2,
                            tf::u32 column_tiles) {
  TF_SHARED(Sums, shared, kThreads);
  tf::wait_while_later_launches_start();
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::i64 step = kThreads >> threads_x_log2;
  for (tf::u32 tile = tf::block_x(); tile < column_tiles; tile += tf::grid_dim_x()) {
    const tf::i64 first =
        static_cast<tf::i64>(static_cast<tf::u64>(tile) << threads_x_log2) * kWide;
    const tf::i64 column = first + thread_x * kWide;
    Sums sums = {};
    if (column < hidden) {
      constexpr int kAtOnce = 4;
      for (tf::i64 row = thread_y; row < row_tiles; row += kAtOnce * step) {
        Sums values[kAtOnce] = {};
        TF_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          const tf::i64 at = row + i * step;
          if (at < row_tiles) values[i] = tf::load<kWide>(partial_sums + at * pitch + column);
        }
        TF_UNROLL for (int i = 0; i < kAtOnce; ++i) {
          TF_UNROLL for (int k = 0; k < kWide; ++k) sums[k] += values[i][k];
        }
      }
    }
    add_over_rows(shared, sums, threads_x_log2, [&](tf::u32 at, Value sum) {
      if (first + at < hidden) grad_bias[first + at] = tf::from_float<Storage>(sum);
    });
  }
}

#endif
