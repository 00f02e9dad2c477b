// out[row, column] = gelu(x[row, column] + bias[column]): one pass over memory.
//
// Tiles as in common/tiles.h. Each thread of a block owns TF_VECTOR neighbouring columns, loads
// their bias once and walks down TF_ROWS rows, whose loads are all in flight before the first
// result is needed. Where rows lie without gaps (TF_ROW_DIMS 0), a tile is TF_ROWS times a block's
// width of neighbouring vectors, and one number finds them in x and in out.
//
// Constants: TF_STORAGE (see StorageOf), TF_EXACT, TF_VECTOR, TF_ROWS, TF_ROW_DIMS (0; 1: rows are
// short, see RowIndexOf; or kMaxRowDims), TF_THREADS.

#include "truefuse/device.h"
#include "truefuse/operators/common/device_arithmetic.h"
#include "truefuse/operators/common/gelu.h"
#include "truefuse/operators/common/tiles.h"

using namespace truefuse::common;
using Storage = StorageOf<TF_STORAGE>::Type;
using Vector = tf::Vector<Storage, TF_VECTOR>;
constexpr Gelu kForm = TF_EXACT ? Gelu::kExact : Gelu::kTanh;

/// Half types are added and computed in float.
TF_DEVICE Vector gelu_of_sum(const Vector& x, const Vector& bias) {
  using Arithmetic = DeviceArithmetic<tf::Compute<Storage>>;
  auto sum = tf::to_float(x);
  const auto added = tf::to_float(bias);
  TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
    sum[i] = gelu<Arithmetic, kForm, kPrecisionOf<Storage>>(sum[i] + added[i]);
  }
  return tf::from_float<Storage>(sum);
}

#if TF_ROW_DIMS == 0

// `vectors`: each vector of x as a tile of its own. They are so few that the grid covers them.
TF_KERNEL(TF_THREADS)
void bias_gelu_forward(Storage* out, const Storage* x, const Storage* bias, TileMap vectors) {
  tf::wait_for_earlier_launches();
  const tf::u32 first = tf::block_x() * (TF_ROWS * TF_THREADS) + tf::thread_x();
  Vector values[TF_ROWS], added[TF_ROWS];
  TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
    const tf::u32 at = first + r * TF_THREADS;
    if (at < vectors.count) {
      values[r] = tf::load<TF_VECTOR>(x + static_cast<tf::u64>(at) * TF_VECTOR);
    }
  }
  TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
    const tf::u32 at = first + r * TF_THREADS;
    if (at < vectors.count) {
      added[r] = tf::load<TF_VECTOR>(bias + place_of<tf::u32>(vectors, at).column);
    }
  }
  TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
    const tf::u32 at = first + r * TF_THREADS;
    if (at < vectors.count) {
      tf::store(out + static_cast<tf::u64>(at) * TF_VECTOR, gelu_of_sum(values[r], added[r]));
    }
  }
}

#else

TF_KERNEL(TF_THREADS)
void bias_gelu_forward(Storage* out, const Storage* x, const Storage* bias, tf::i64 rows,
                       tf::i64 hidden, tf::i64 bias_stride, tf::u32 bias_is_vector,
                       tf::u32 threads_x_log2, TileMap tiles, TF_PARAMETER RowMap map) {
  tf::wait_for_earlier_launches();
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::u32 threads_y = tf::block_dim_x() >> threads_x_log2;

  using Index = RowIndexOf<TF_ROW_DIMS == 1>::Type;
  for (tf::u32 tile = tf::block_x(); tile < tiles.count; tile += tf::grid_dim_x()) {
    const auto place = place_of<Index>(tiles, tile);
    const Index column = place.column + thread_x * TF_VECTOR;
    const Index row = place.row + thread_y;
    if (column >= static_cast<Index>(hidden) || row >= static_cast<Index>(rows)) continue;
    const Index rows_left = static_cast<Index>(rows) - row;

    Vector values[TF_ROWS];
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (r == 0 || down < rows_left) {
        values[r] = tf::load<TF_VECTOR>(x + row_offset(map, row + down) + column);
      }
    }
    Vector bias_values;
    if (bias_is_vector) {
      bias_values = tf::load<TF_VECTOR>(bias + column);
    } else {
      TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
        bias_values[i] = bias[static_cast<tf::i64>(column + i) * bias_stride];
      }
    }
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (r == 0 || down < rows_left) {
        tf::store(out + row_offset(row + down, hidden) + column,
                  gelu_of_sum(values[r], bias_values));
      }
    }
  }
}

#endif
