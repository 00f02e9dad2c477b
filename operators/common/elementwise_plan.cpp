#include <truefuse/operators/common/elementwise_plan.h>

#include <algorithm>
#include <string>

namespace truefuse::elementwise {
namespace {

constexpr std::int64_t kAccessBytes = 16;
// HIP refuses a launch of 2^32 threads or more in one dimension; blocks walk over the rest.
constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 32) / kThreads - 1;
constexpr std::int64_t kMaxTiles = std::int64_t{1} << 31;

std::int64_t vector_elements(DType dtype) {
  return kAccessBytes / static_cast<std::int64_t>(size_of(dtype));
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

/// As bias_gelu's, measured on an H200: one 16-byte access per operand where an element is dear to
/// compute and two where it is cheap. Single elements make up for their size with more rows.
std::int64_t rows_per_thread(const Shape& shape) {
  if (!shape.vectorised) return 8;
  return size_of(shape.dtype) == 2 ? 2 : 1;
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

/// As elementwise.h declares it.
template <std::size_t kOperands, std::size_t kRowDims>
struct Grid {
  std::int64_t rows, columns, last_columns;
  std::int64_t column_strides[kOperands];
  std::uint32_t threads_x_log2;
  std::uint32_t tiles, column_tiles, multiplier, shift, tile_rows, tile_columns;
  std::uint32_t loose_is_vector;
  std::int64_t row_sizes[kRowDims];
  std::int64_t row_strides[kOperands][kRowDims];
  std::int64_t row_dims;
};

/// The rows and columns. Memory without gaps is cut anew into rows of one block's width.
template <std::size_t kOperands, std::size_t kRowDims>
void lay_out(const Space& space, std::int64_t vector, Grid<kOperands, kRowDims>& grid) {
  grid.columns = space.size(0);
  grid.rows = space.elements() / grid.columns;
  grid.last_columns = grid.columns;
  grid.row_dims = static_cast<std::int64_t>(std::max<std::size_t>(space.dims() - 1, 1));
  for (std::size_t d = 0; d < kRowDims; ++d) {
    const bool there = d + 1 < space.dims();
    grid.row_sizes[d] = there ? space.size(d + 1) : 1;
    for (std::size_t k = 0; k < kOperands; ++k) {
      grid.row_strides[k][d] = there ? space.stride(k, d + 1) : 0;
    }
  }
  for (std::size_t k = 0; k < kOperands; ++k) grid.column_strides[k] = space.stride(k, 0);
  if (space.dims() > 1) return;
  grid.columns = kThreads * vector;
  grid.rows = (space.elements() + grid.columns - 1) / grid.columns;
  grid.last_columns = space.elements() - (grid.rows - 1) * grid.columns;
  grid.row_sizes[0] = grid.rows;
  for (std::size_t k = 0; k < kOperands; ++k) {
    grid.row_strides[k][0] = grid.columns * grid.column_strides[k];
  }
}

template <std::size_t kOperands, std::size_t kRowDims>
void cut_into_tiles(std::string_view op_name, std::int64_t vector, std::int64_t rows_per_thread,
                    Grid<kOperands, kRowDims>& grid) {
  grid.threads_x_log2 = threads_x_log2((grid.columns + vector - 1) / vector);
  grid.tile_rows = static_cast<std::uint32_t>((kThreads >> grid.threads_x_log2) * rows_per_thread);
  grid.tile_columns = static_cast<std::uint32_t>((1 << grid.threads_x_log2) * vector);
  const std::int64_t column_tiles = (grid.columns + grid.tile_columns - 1) / grid.tile_columns;
  const std::int64_t row_tiles = (grid.rows + grid.tile_rows - 1) / grid.tile_rows;
  if (row_tiles > kMaxTiles / column_tiles) {
    throw Error(std::string(op_name) + ": the tensors have " + std::to_string(grid.rows) +
                " rows of " + std::to_string(grid.columns) +
                " columns; one call covers at most 2^31 tiles of " +
                std::to_string(grid.tile_rows) + " rows and " + std::to_string(grid.tile_columns) +
                " columns. Call it on parts of them");
  }
  // With l = ceil(log2 d) and m = ceil(2^(31+l) / d) < 2^32, t * m >> (31+l) is t / d for t < 2^31.
  std::uint32_t log2 = 0;
  while ((std::int64_t{1} << log2) < column_tiles) ++log2;
  const auto divisor = static_cast<std::uint64_t>(column_tiles);
  grid.shift = 31 + log2;
  grid.multiplier = static_cast<std::uint32_t>(
      ((std::uint64_t{1} << grid.shift) + divisor - 1) / divisor);
  grid.column_tiles = static_cast<std::uint32_t>(column_tiles);
  grid.tiles = static_cast<std::uint32_t>(row_tiles * column_tiles);
}

template <std::size_t kOperands, std::size_t kRowDims>
void add_grid_of(std::string_view op_name, const Space& space, std::size_t outputs,
                 const Shape& shape, Launch& launch) {
  Grid<kOperands, kRowDims> grid;
  const std::int64_t vector = shape.vectorised ? vector_elements(space.dtype()) : 1;
  lay_out(space, vector, grid);
  cut_into_tiles(op_name, vector, rows_per_thread(shape), grid);
  grid.loose_is_vector = space.is_vector(outputs) ? 1 : 0;
  launch.grid = {static_cast<std::uint32_t>(std::min<std::int64_t>(grid.tiles, kMaxBlocks)), 1, 1};
  launch.block = {kThreads, 1, 1};
  launch.shared_bytes = 0;
  launch.parameters.add(grid);
}

template <std::size_t kOperands>
void add_grid_for(std::string_view op_name, const Space& space, std::size_t outputs,
                  const Shape& shape, Launch& launch) {
  if (shape.one_row_dim) {
    add_grid_of<kOperands, 1>(op_name, space, outputs, shape, launch);
  } else {
    add_grid_of<kOperands, kMaxRowDims>(op_name, space, outputs, shape, launch);
  }
}

}  // namespace

Operand::Operand(const TensorView& tensor) : data(static_cast<std::byte*>(tensor.data)) {
  std::copy(tensor.strides.begin(), tensor.strides.end(), strides.begin());
}

Space::Space(DType dtype, std::span<const std::int64_t> sizes, std::span<const Operand> operands)
    : dtype_(dtype), operands_(operands.size()) {
  std::array<std::size_t, kMaxDims> order;  // Innermost first.
  std::size_t count = 0;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    elements_ *= sizes[d];
    if (sizes[d] == 1) continue;
    std::size_t k = count++;
    for (; k > 0 && operands[0].strides[d] < operands[0].strides[order[k - 1]]; --k) {
      order[k] = order[k - 1];
    }
    order[k] = d;
  }
  for (std::size_t k = 0; k < operands_; ++k) data_[k] = operands[k].data;
  for (std::size_t i = 0; i < count; ++i) add(sizes[order[i]], operands, order[i]);
  if (dims_ == 0) {
    sizes_[0] = 1;
    for (std::size_t k = 0; k < operands_; ++k) strides_[k][0] = 1;
    dims_ = 1;
  }
}

void Space::add(std::int64_t size, std::span<const Operand> operands, std::size_t dim) {
  bool merges = dims_ > 0;
  for (std::size_t k = 0; merges && k < operands_; ++k) {
    merges = operands[k].strides[dim] == strides_[k][dims_ - 1] * sizes_[dims_ - 1];
  }
  if (merges) {
    sizes_[dims_ - 1] *= size;
    return;
  }
  sizes_[dims_] = size;
  for (std::size_t k = 0; k < operands_; ++k) strides_[k][dims_] = operands[k].strides[dim];
  ++dims_;
}

bool Space::is_vector(std::size_t operand) const {
  const std::int64_t vector = vector_elements(dtype_);
  if (strides_[operand][0] != 1) return false;
  if (reinterpret_cast<std::uintptr_t>(data_[operand]) % kAccessBytes != 0) return false;
  if (dims_ > 1 && sizes_[0] % vector != 0) return false;
  for (std::size_t d = 1; d < dims_; ++d) {
    if (strides_[operand][d] % vector != 0) return false;
  }
  return true;
}

std::vector<std::string> constant_names() {
  return {"TF_STORAGE", "TF_VECTOR", "TF_ROWS", "TF_ROW_DIMS"};
}

Variant variant_of(const Shape& shape) {
  Variant variant;
  variant.add(storage_code(shape.dtype));
  variant.add(shape.vectorised ? vector_elements(shape.dtype) : 1);
  variant.add(rows_per_thread(shape));
  variant.add(shape.one_row_dim ? 1 : static_cast<std::int64_t>(kMaxRowDims));
  return variant;
}

std::vector<NamedShape> shapes() {
  std::vector<NamedShape> all;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool vectorised : {true, false}) {
      for (const bool one_row_dim : {true, false}) {
        all.push_back({{dtype, vectorised, one_row_dim},
                       std::string(short_name(dtype)) + (vectorised ? " vector" : " element") +
                           (one_row_dim ? "" : " rows-nd"),
                       vectorised && one_row_dim});
      }
    }
  }
  return all;
}

Shape shape_of(const Space& space, std::size_t outputs, bool loose) {
  bool vectorised = true;
  for (std::size_t k = 0; vectorised && k < space.operands(); ++k) {
    vectorised = (loose && k == outputs) || space.is_vector(k);
  }
  return {space.dtype(), vectorised, space.dims() <= 2};
}

void add_grid(std::string_view op_name, const Space& space, std::size_t outputs, const Shape& shape,
              Launch& launch) {
  if (space.dims() > kMaxRowDims + 1) {
    throw Error(std::string(op_name) + ": the strides of the tensors need " +
                std::to_string(space.dims()) + " separate loops; a GPU kernel walks over at most " +
                std::to_string(kMaxRowDims + 1) + ". Make them contiguous");
  }
  switch (space.operands()) {
    case 2:
      return add_grid_for<2>(op_name, space, outputs, shape, launch);
    case 3:
      return add_grid_for<3>(op_name, space, outputs, shape, launch);
    default:
      return add_grid_for<5>(op_name, space, outputs, shape, launch);
  }
}

}  // namespace truefuse::elementwise
