#pragma once

// How kernels walk over tensors [rows.., columns] in tiles. Kernels include it as
// "truefuse/operators/common/tiles.h"; plans fill the same structs (tiling.h).
//
// A block of threads covers one tile at a time: 2^threads_x_log2 threads side by side along the
// columns, the others below them along the rows. Tiles are numbered along the columns first, so
// neighbouring blocks touch neighbouring memory. Tile numbers are 32 bits wide, offsets 64: any
// size is addressed by the same code.

#include "truefuse/device/rows.h"
#include "truefuse/device/types.h"

namespace truefuse::common {

/// The type of elements in memory by its number: 0 f64, 1 f32, 2 f16, 3 bf16.
template <int code>
struct StorageOf;
template <>
struct StorageOf<0> {
  using Type = double;
};
template <>
struct StorageOf<1> {
  using Type = float;
};
template <>
struct StorageOf<2> {
  using Type = tf::f16;
};
template <>
struct StorageOf<3> {
  using Type = tf::bf16;
};

using tf::divide;
using tf::kMaxRowDims;
using tf::RowMap;

/// Of the first element of the row `down` rows below `row`, in elements. kOneDim: the map has at
/// most one dimension.
template <bool kOneDim>
TF_DEVICE tf::i64 row_offset(const RowMap& map, tf::i64 row, tf::u32 down) {
  if constexpr (kOneDim) {
    // The first product serves all rows of a thread.
    return row * map.strides[0] + down * map.strides[0];
  } else {
    return tf::row_offset(map, row + down);
  }
}

/// How the rows and columns are cut into tiles. Tile t lies in row of tiles t / column_tiles, which
/// is t * multiplier >> shift for every t < 2^31.
struct TileMap {
  tf::u32 count, column_tiles, multiplier, shift;
  tf::u32 rows, columns;  ///< Of one tile.
};

struct TilePlace {
  tf::u32 row_tile, column_tile;
};

TF_DEVICE TilePlace place_of(const TileMap& tiles, tf::u32 tile) {
  const tf::u32 row_tile =
      static_cast<tf::u32>(static_cast<tf::u64>(tile) * tiles.multiplier >> tiles.shift);
  return {row_tile, tile - row_tile * tiles.column_tiles};
}

}  // namespace truefuse::common
