#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <truefuse/core/rows.h>
#include <truefuse/operators/bias_gelu/operator.h>

namespace truefuse::bias_gelu {
namespace {

constexpr std::uint32_t kThreads = 128;
constexpr std::int64_t kAccessBytes = 16;
constexpr std::size_t kMaxRowDims = 6;
// HIP refuses a launch of 2^32 threads or more in one dimension; blocks walk over the rest.
constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 32) / kThreads - 1;
constexpr std::int64_t kMaxTiles = std::int64_t{1} << 31;

/// The leading dimensions of x, innermost first, merged where one stride describes two of them.
struct RowMap {
  std::array<std::int64_t, kMaxRowDims> sizes;
  std::array<std::int64_t, kMaxRowDims> strides;
  std::int64_t dims;
};

/// How rows and columns are cut into tiles: see kernel.hip, whose structs have the same members.
struct TileMap {
  std::uint32_t count, column_tiles, multiplier, shift;
  std::uint32_t rows, columns;
};

RowMap row_map(const Rows& rows) {
  if (rows.dims() > kMaxRowDims) {
    throw Error("bias_gelu: the leading dimensions of x have strides that need " +
                std::to_string(rows.dims()) + " separate loops; a GPU kernel walks over at most " +
                std::to_string(kMaxRowDims) + ". Pass x.contiguous()");
  }
  RowMap map;
  map.sizes.fill(1);
  map.strides.fill(0);
  map.dims = static_cast<std::int64_t>(rows.dims());
  for (std::size_t d = 0; d < rows.dims(); ++d) {
    map.sizes[d] = rows.size(d);
    map.strides[d] = rows.stride(d);
  }
  return map;
}

bool aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kAccessBytes == 0;
}

/// Whether every row of x and of the output begins at a multiple of 16 bytes and holds whole
/// 16-byte vectors.
bool rows_are_vectors(const TensorView& x, const TensorView& out, const Rows& rows,
                      std::int64_t hidden, std::int64_t vector) {
  if (hidden % vector != 0 || !aligned(x.data) || !aligned(out.data)) return false;
  for (std::size_t d = 0; d < rows.dims(); ++d) {
    if (rows.stride(d) % vector != 0) return false;
  }
  return true;
}

/// The widest power of two of threads along the columns (32 to 128) that wastes the least of the
/// last column tile; narrower when a row has fewer vectors than that.
std::uint32_t threads_x_log2(std::int64_t vectors_per_row) {
  std::uint32_t narrow = 0;
  while (narrow < 5 && (std::int64_t{1} << narrow) < vectors_per_row) ++narrow;
  if (narrow < 5) return narrow;
  std::uint32_t best = 5;
  std::int64_t least = -1;
  for (std::uint32_t log2 = 7; log2 >= 5; --log2) {
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

TileMap cut_into_tiles(std::int64_t rows, std::int64_t columns, std::int64_t tile_rows,
                       std::int64_t tile_columns) {
  const std::int64_t column_tiles = (columns + tile_columns - 1) / tile_columns;
  const std::int64_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  if (row_tiles > kMaxTiles / column_tiles) {
    throw Error("bias_gelu: x has " + std::to_string(rows) + " rows of " + std::to_string(columns) +
                " columns; one call covers at most 2^31 tiles of " + std::to_string(tile_rows) +
                " rows and " + std::to_string(tile_columns) + " columns. Call it on parts of x");
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

std::int64_t storage_code(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0;
    case DType::f32:
      return 1;
    case DType::f16:
      return 2;
    default:
      return 3;
  }
}

/// Rows per thread, measured on an H200: more loads in flight cost registers and so waves, hence
/// one 16-byte access where an element is dear to compute and two where it is cheap. Single
/// elements make up for their size with more rows.
std::int64_t rows_per_thread(DType dtype, std::int64_t vector) {
  if (vector == 1) return 8;
  return size_of(dtype) == 2 ? 2 : 1;
}

Variant variant_of(DType dtype, bool exact, std::int64_t vector, bool one_row_dim) {
  Variant variant;
  variant.add(storage_code(dtype));
  variant.add(exact ? 1 : 0);
  variant.add(vector);
  variant.add(rows_per_thread(dtype, vector));
  variant.add(one_row_dim ? 1 : static_cast<std::int64_t>(kMaxRowDims));
  variant.add(static_cast<std::int64_t>(kMaxRowDims));
  return variant;
}

std::int64_t vector_elements(DType dtype) {
  return kAccessBytes / static_cast<std::int64_t>(size_of(dtype));
}

constexpr const char* kKernel = "bias_gelu_forward";

}  // namespace

std::vector<std::string> constant_names() {
  return {"TF_STORAGE", "TF_EXACT", "TF_VECTOR", "TF_ROWS", "TF_ROW_DIMS", "TF_MAX_ROW_DIMS"};
}

void plan(const Call& call, const DeviceFacts& /*device*/, Plan& plan) {
  const TensorView& x = call.tensor(kX);
  const TensorView& bias = call.tensor(kBias);
  const TensorView& out = call.outputs[0];
  const std::int64_t hidden = x.sizes.back();
  const Rows rows(x);
  if (hidden == 0 || rows.count() == 0) return;

  const bool exact = call.text(kApproximate) == "none";
  const std::int64_t widest = vector_elements(x.dtype);
  const std::int64_t vector = rows_are_vectors(x, out, rows, hidden, widest) ? widest : 1;
  const std::int64_t bias_stride = bias.sizes[0] > 1 ? bias.strides[0] : 0;
  const bool bias_is_vector =
      vector == 1 ? bias_stride == 1 : bias_stride == 1 && aligned(bias.data);

  const std::uint32_t log2 = threads_x_log2((hidden + vector - 1) / vector);
  const TileMap tiles =
      cut_into_tiles(rows.count(), hidden, (kThreads >> log2) * rows_per_thread(x.dtype, vector),
                     (std::int64_t{1} << log2) * vector);

  Launch& launch = plan.add();
  launch.kernel = kKernel;
  launch.variant = variant_of(x.dtype, exact, vector, rows.dims() <= 1);
  launch.grid = {static_cast<std::uint32_t>(std::min<std::int64_t>(tiles.count, kMaxBlocks)), 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.shared_bytes = 0;
  launch.parameters.add(out.data);
  launch.parameters.add(x.data);
  launch.parameters.add(bias.data);
  launch.parameters.add(rows.count());
  launch.parameters.add(hidden);
  launch.parameters.add(bias_stride);
  launch.parameters.add(static_cast<std::uint32_t>(bias_is_vector));
  launch.parameters.add(log2);
  launch.parameters.add(tiles);
  launch.parameters.add(row_map(rows));
}

std::vector<Operator::NamedVariant> variants() {
  std::vector<Operator::NamedVariant> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool exact : {false, true}) {
      for (const bool vectorised : {true, false}) {
        for (const bool one_row_dim : {true, false}) {
          Operator::NamedVariant named;
          named.label = std::string(short_name(dtype)) + (exact ? " none" : " tanh") +
                        (vectorised ? " vector" : " element") + (one_row_dim ? "" : " rows-nd");
          named.kernel = kKernel;
          named.variant =
              variant_of(dtype, exact, vectorised ? vector_elements(dtype) : 1, one_row_dim);
          named.shown = vectorised && one_row_dim;
          named.block_threads = kThreads;
          all.push_back(std::move(named));
        }
      }
    }
  }
  return all;
}

}  // namespace truefuse::bias_gelu
