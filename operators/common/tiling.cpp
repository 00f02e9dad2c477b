#include <algorithm>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse::common {
namespace {

constexpr std::int64_t kMaxTiles = std::int64_t{1} << 31;
// HIP refuses a launch of 2^32 threads or more in one dimension.
constexpr std::int64_t kMaxThreads = std::int64_t{1} << 32;

}  // namespace

std::int64_t storage_code(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0;
    case DType::f32:
      return 1;
    case DType::f16:
      return 2;
    case DType::bf16:
      return 3;
    default:
      throw Error("elements of " + std::string(torch_name(dtype)) + " have no storage code");
  }
}

std::int64_t elements_per_access(DType dtype) {
  return kAccessBytes / static_cast<std::int64_t>(size_of(dtype));
}

std::int64_t elements_per_access(DType dtype, const LaunchPolicy& policy) {
  return std::max<std::int64_t>(policy.bytes / static_cast<std::int64_t>(size_of(dtype)), 2);
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAccessBytes == 0;
}

bool rows_are_vectors(const TensorView& tensor, const Rows& rows, std::int64_t vector) {
  if (rows.columns() % vector != 0 || !is_aligned(tensor.data)) return false;
  for (std::size_t d = 0; d < rows.dims(); ++d) {
    if (rows.stride(d) % vector != 0) return false;
  }
  return true;
}

bool is_short(std::int64_t number) { return number < std::int64_t{1} << 31; }

bool are_short(const Rows& rows) {
  return rows.dims() <= 1 && is_short(rows.count()) && is_short(rows.columns()) &&
         (rows.dims() == 0 || is_short(rows.stride(0)));
}

std::uint32_t threads_x_log2(std::int64_t vectors_per_row, std::uint32_t widest_log2) {
  std::uint32_t narrow = 0;
  while (narrow < 5 && (std::int64_t{1} << narrow) < vectors_per_row) ++narrow;
  if (narrow < 5) return narrow;
  std::uint32_t best = 5;
  std::int64_t least = -1;
  for (std::uint32_t log2 = widest_log2; log2 >= 5; --log2) {
    const std::int64_t width = std::int64_t{1} << log2;
    const std::int64_t padded = (vectors_per_row + width - 1) / width * width;
    // A wider block is worth up to one sixteenth of idle threads.
    if (least < 0 || padded + vectors_per_row / 16 < least) {
      least = padded;
      best = log2;
    }
  }
  return best;
}

TileMap cut_into_tiles(std::string_view op_name, std::int64_t rows, std::int64_t columns,
                       std::int64_t tile_rows, std::int64_t tile_columns) {
  const std::int64_t column_tiles = (columns + tile_columns - 1) / tile_columns;
  const std::int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  if (row_tiles > kMaxTiles / column_tiles) {
    throw Error(std::string(op_name) + ": x has " + std::to_string(rows) + " rows of " +
                std::to_string(columns) + " columns; one call covers at most 2^31 tiles of " +
                std::to_string(tile_rows) + " rows and " + std::to_string(tile_columns) +
                " columns. Call it on parts of x");
  }
  // With l = ceil(log2 d) and m = ceil(2^(31+l) / d) < 2^32, t * m >> (31+l) is t / d for t < 2^31.
  std::uint32_t log2 = 0;
  while ((std::int64_t{1} << log2) < column_tiles) ++log2;
  const auto divisor = static_cast<std::uint64_t>(column_tiles);
  const std::uint32_t shift = 31 + log2;
  const std::uint64_t multiplier = ((std::uint64_t{1} << shift) + divisor - 1) / divisor;
  return {static_cast<std::uint32_t>(row_tiles * column_tiles),
          static_cast<std::uint32_t>(column_tiles),
          static_cast<std::uint32_t>(multiplier),
          shift,
          static_cast<std::uint32_t>(tile_rows),
          static_cast<std::uint32_t>(tile_columns)};
}

std::uint32_t blocks_for(const TileMap& tiles, std::uint32_t block_threads) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(tiles.count, kMaxThreads / block_threads - 1));
}

}  // namespace truefuse::common
