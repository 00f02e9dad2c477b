// out[row, column] = gelu(x[row, column] + bias[column]): one pass over memory.
//
// A block of 128 threads covers a tile: 2^threads_x_log2 threads side by side along the columns, the
// others below them along the rows. Each thread owns TF_VECTOR neighbouring columns, loads their bias
// once and walks down TF_ROWS rows, whose loads are all in flight before the first result is needed.
// Tiles are numbered along the columns first, so neighbouring blocks touch neighbouring memory. Only
// the tile number is divided, once per tile; offsets are 64 bits wide from there, hence any size is
// addressed by the same code.
//
// Constants: TF_STORAGE (0 f64, 1 f32, 2 f16, 3 bf16), TF_EXACT, TF_VECTOR, TF_ROWS, TF_ROW_DIMS.

#include "truefuse/device.h"

#include "math.h"

#if TF_STORAGE == 0
using Storage = double;
#elif TF_STORAGE == 1
using Storage = float;
#elif TF_STORAGE == 2
using Storage = tf::f16;
#elif TF_STORAGE == 3
using Storage = tf::bf16;
#endif

// The leading dimensions of x after merging those that one stride describes, innermost first.
struct RowMap {
  tf::i64 sizes[TF_MAX_ROW_DIMS];
  tf::i64 strides[TF_MAX_ROW_DIMS];
};

// Quotient of non-negative integers; the 64-bit division is several times dearer.
TF_DEVICE tf::i64 divide(tf::i64 a, tf::i64 b) {
  if (((a | b) >> 32) == 0) return tf::i64(tf::u32(a) / tf::u32(b));
  return a / b;
}

TF_DEVICE tf::i64 row_offset(const RowMap& map, tf::i64 row) {
#if TF_ROW_DIMS == 1
  return row * map.strides[0];
#else
  tf::i64 offset = 0;
  TF_UNROLL for (int d = 0; d < TF_MAX_ROW_DIMS - 1; ++d) {
    const tf::i64 outer = divide(row, map.sizes[d]);
    offset += (row - outer * map.sizes[d]) * map.strides[d];
    row = outer;
  }
  return offset + row * map.strides[TF_MAX_ROW_DIMS - 1];
#endif
}

using Vector = tf::Vector<Storage, TF_VECTOR>;
using truefuse::bias_gelu::Gelu;
using truefuse::bias_gelu::gelu_of_sum;
constexpr Gelu kForm = TF_EXACT ? Gelu::kExact : Gelu::kTanh;

TF_KERNEL(128)
void bias_gelu_forward(Storage* out, const Storage* x, const Storage* bias, tf::i64 rows,
                       tf::i64 hidden, tf::i64 bias_stride, tf::u32 bias_is_vector,
                       tf::u32 threads_x_log2, tf::u32 column_tiles, tf::u32 tiles, RowMap map) {
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::u32 threads_y = tf::block_dim_x() >> threads_x_log2;

  for (tf::u32 tile = tf::block_x(); tile < tiles; tile += tf::grid_dim_x()) {
    const tf::u32 row_tile = tile / column_tiles;
    const tf::u32 column_tile = tile - row_tile * column_tiles;
    const tf::i64 column = ((tf::i64(column_tile) << threads_x_log2) + thread_x) * TF_VECTOR;
    const tf::i64 first_row = tf::i64(row_tile) * (threads_y * TF_ROWS) + thread_y;
    if (column >= hidden || first_row >= rows) continue;

    Vector values[TF_ROWS];
    TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
      const tf::i64 row = first_row + tf::i64(r * threads_y);
      if (row < rows) values[r] = tf::load<TF_VECTOR>(x + row_offset(map, row) + column);
    }
    Vector bias_values;
    if (bias_is_vector) {
      bias_values = tf::load<TF_VECTOR>(bias + column);
    } else {
      TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
        bias_values[i] = bias[(column + i) * bias_stride];
      }
    }
    TF_UNROLL for (int r = 0; r < TF_ROWS; ++r) {
      const tf::i64 row = first_row + tf::i64(r * threads_y);
      if (row < rows) {
        tf::store(out + row * hidden + column, gelu_of_sum<kForm>(values[r], bias_values));
      }
    }
  }
}
