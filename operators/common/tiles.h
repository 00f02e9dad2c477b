#pragma once

// How kernels walk over tensors [rows.., columns] in tiles. Kernels include it as
// "truefuse/operators/common/tiles.h"; plans fill the same structs (tiling.h).
//
// A block of threads covers one tile at a time: 2^threads_x_log2 threads side by side along the
// columns, the others below them along the rows. Tiles are numbered along the columns first, so
// neighbouring blocks touch neighbouring memory. Offsets are 64 bits wide: any size is addressed.

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

/// Of rows and columns. Short: rows of one dimension at most whose number, columns and stride are
/// all below 2^31 (are_short in tiling.h). Offsets are 64 bits wide all the same.
template <bool kShort>
struct RowIndexOf {
  using Type = tf::i64;
};
template <>
struct RowIndexOf<true> {
  using Type = tf::u32;
};

/// Of the first element of a row.
TF_DEVICE tf::i64 row_offset(tf::u32 row, tf::i64 stride) {
  return static_cast<tf::i64>(static_cast<tf::u64>(row) * static_cast<tf::u32>(stride));
}
TF_DEVICE tf::i64 row_offset(tf::i64 row, tf::i64 stride) { return row * stride; }

/// The same, in elements, where a map knows the strides.
TF_DEVICE tf::i64 row_offset(const RowMap& map, tf::u32 row) {
  return row_offset(row, map.strides[0]);
}
using tf::row_offset;

/// How the rows and columns are cut into tiles. Tile t lies in row of tiles t / column_tiles, which
/// is t * multiplier >> shift for every t < 2^31.
struct TileMap {
  tf::u32 count, column_tiles, multiplier, shift;
  tf::u32 rows, columns;  ///< Of one tile.
};

/// The first row and column of a tile.
template <class Index>
struct TilePlace {
  tf::u32 row_tile;
  Index row, column;
};

template <class Index>
TF_DEVICE TilePlace<Index> place_of(const TileMap& tiles, tf::u32 tile) {
  const auto row_tile =
      static_cast<tf::u32>(static_cast<tf::u64>(tile) * tiles.multiplier >> tiles.shift);
  const tf::u32 column_tile = tile - row_tile * tiles.column_tiles;
  return {row_tile, static_cast<Index>(static_cast<Index>(row_tile) * tiles.rows),
          static_cast<Index>(static_cast<Index>(column_tile) * tiles.columns)};
}

}  // namespace truefuse::common
