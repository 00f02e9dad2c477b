#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <truefuse/core/rows.h>
#include <truefuse/core/tensor.h>
#include <truefuse/operator/policy.h>
#include <truefuse/operator/row_map.h>
#include <truefuse/operators/common/tiles.h>

/// What the plans of operators that walk over rows share; the kernel's side is tiles.h.
namespace truefuse::common {

/// What one thread moves at once.
inline constexpr std::int64_t kAccessBytes = 16;

/// The number of StorageOf; for f64, f32, f16 and bf16.
std::int64_t storage_code(DType dtype);

/// Elements of one 16-byte access.
std::int64_t elements_per_access(DType dtype);

/// Elements of a policy's vector.
std::int64_t elements_per_access(DType dtype, const LaunchPolicy& policy);

/// Whether the address is a multiple of 16 bytes.
bool is_aligned(const void* pointer);

/// Whether every row of `tensor` begins at a multiple of 16 bytes and holds whole vectors of
/// `vector` elements, which are 16 bytes. `rows` are its rows; its last dimension has stride 1.
bool rows_are_vectors(const TensorView& tensor, const Rows& rows, std::int64_t vector);

/// Whether a number of rows, of columns or a stride is below 2^31 (RowIndexOf).
bool is_short(std::int64_t number);

/// Whether the rows have one dimension at most and all is short.
bool are_short(const Rows& rows);

using truefuse::row_map;

/// Log2 of the threads along the columns: the widest power of two from 32 to 2^widest_log2 that
/// wastes little of the last column tile; fewer than 32 where a row has fewer vectors than that.
std::uint32_t threads_x_log2(std::int64_t vectors_per_row, std::uint32_t widest_log2 = 7);

/// Covers rows x columns, both at least 1. Throws Error, naming the operator, if that takes more
/// than 2^31 tiles.
TileMap cut_into_tiles(std::string_view op_name, std::int64_t rows, std::int64_t columns,
                       std::int64_t tile_rows, std::int64_t tile_columns);

/// Blocks of a grid over the tiles: one for each, but no more than every vendor accepts; the
/// kernel's blocks walk over the rest, in steps of the grid.
std::uint32_t blocks_for(const TileMap& tiles, std::uint32_t block_threads);

}  // namespace truefuse::common
