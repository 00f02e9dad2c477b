// out[row, column] = gelu(x[row, column] + bias[column]): one pass over memory.
//
// A block of 128 threads covers a tile: 2^threads_x_log2 threads side by side along the columns,
// the others below them along the rows. Each thread owns TF_VECTOR neighbouring columns, loads
// their bias once and walks down TF_ROWS rows, whose loads are all in flight before the first
// result is needed. Tiles are numbered along the columns first, so neighbouring blocks touch
// neighbouring memory. Tile numbers are 32 bits wide, offsets 64: any size is addressed by the same
// code.
//
// Constants: TF_STORAGE (0 f64, 1 f32, 2 f16, 3 bf16), TF_EXACT, TF_VECTOR, TF_ROWS, TF_ROW_DIMS,
// TF_MAX_ROW_DIMS.

#include "truefuse/device.h"

#include "gelu.h"

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
  tf::i64 dims;
};

// How the rows and columns are cut into tiles. Tile t lies in row of tiles t / column_tiles, which
// is t * multiplier >> shift for every t < 2^31.
struct TileMap {
  tf::u32 count, column_tiles, multiplier, shift;
  tf::u32 rows, columns;  // Of one tile.
};

// Quotient of non-negative integers; the 64-bit division is several times dearer.
TF_DEVICE tf::i64 divide(tf::i64 a, tf::i64 b) {
  if (((a | b) >> 32) == 0) return static_cast<tf::u32>(a) / static_cast<tf::u32>(b);
  return a / b;
}

// Of the first element of the row `down` rows below `row`.
TF_DEVICE tf::i64 row_offset(const RowMap& map, tf::i64 row, tf::u32 down) {
#if TF_ROW_DIMS == 1
  return row * map.strides[0] +
         down * map.strides[0];  // The first product serves all rows of a thread.
#else
  row += down;
  tf::i64 offset = 0;
  int d = 0;
  for (; d < map.dims - 1; ++d) {
    const tf::i64 outer = divide(row, map.sizes[d]);
    offset += (row - outer * map.sizes[d]) * map.strides[d];
    row = outer;
  }
  return offset + row * map.strides[d];
#endif
}

using Vector = tf::Vector<Storage, TF_VECTOR>;
using truefuse::bias_gelu::Gelu;
using truefuse::bias_gelu::gelu_of_sum;
constexpr Gelu kForm = TF_EXACT ? Gelu::kExact : Gelu::kTanh;

TF_KERNEL(128)
void bias_gelu_forward(Storage* out, const Storage* x, const Storage* bias, tf::i64 rows,
                       tf::i64 hidden, tf::i64 bias_stride, tf::u32 bias_is_vector,
                       tf::u32 threads_x_log2, TileMap tiles, TF_PARAMETER RowMap map) {
  const tf::u32 thread_x = tf::thread_x() & ((1u << threads_x_log2) - 1);
  const tf::u32 thread_y = tf::thread_x() >> threads_x_log2;
  const tf::u32 threads_y = tf::block_dim_x() >> threads_x_log2;

  for (tf::u32 tile = tf::block_x(); tile < tiles.count; tile += tf::grid_dim_x()) {
    const tf::u32 row_tile =
        static_cast<tf::u32>(static_cast<tf::u64>(tile) * tiles.multiplier >> tiles.shift);
    const tf::u32 column_tile = tile - row_tile * tiles.column_tiles;
    const tf::i64 column = static_cast<tf::i64>(static_cast<tf::u64>(column_tile) * tiles.columns +
                                                thread_x * TF_VECTOR);
    const tf::i64 row =
        static_cast<tf::i64>(static_cast<tf::u64>(row_tile) * tiles.rows + thread_y);
    const tf::i64 rows_left = rows - row;
    if (column >= hidden || rows_left <= 0) continue;

    Storage* const target = out + row * hidden + column;
    Vector values[TF_ROWS];
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (r == 0 || down < rows_left) {
        values[r] = tf::load<TF_VECTOR>(x + row_offset(map, row, down) + column);
      }
    }
    Vector bias_values;
    if (bias_is_vector) {
      bias_values = tf::load<TF_VECTOR>(bias + column);
    } else {
      TF_UNROLL for (int i = 0; i < TF_VECTOR; ++i) {
        bias_values[i] = bias[(column + i) * bias_stride];
      }
    }
    TF_UNROLL for (tf::u32 r = 0; r < TF_ROWS; ++r) {
      const tf::u32 down = r * threads_y;
      if (r == 0 || down < rows_left) {
        tf::store(target + down * hidden, gelu_of_sum<kForm>(values[r], bias_values));
      }
    }
  }
}
