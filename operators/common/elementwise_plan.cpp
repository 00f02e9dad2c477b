#include <algorithm>
#include <bit>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse::common {
namespace {

/// Elements side by side of the widest block: 512 threads with 16 bytes of a half type each.
constexpr std::int64_t kWidestBlock = 4096;

/// Measured on an H200: one 16-byte access of each input; a second one costs registers and so
/// waves. Single elements make up for their size with more rows.
LaunchPolicy standard_policy(const ElementwiseForm& form) {
  if (!form.vectorised) return {128, form.inputs > 1 ? 4 : 8};
  return {128, 1};
}

/// The rows and columns. Memory without gaps is cut anew into rows of one block's width.
template <int kOperands, int kRowDims>
void lay_out(const Space& space, std::int64_t width, ElementwiseGrid<kOperands, kRowDims>& grid) {
  grid.columns = space.size(0);
  grid.rows = space.elements() / grid.columns;
  grid.last_columns = grid.columns;
  grid.row_dims = static_cast<std::int64_t>(std::max<std::size_t>(space.dims() - 1, 1));
  for (std::size_t d = 0; d < std::size_t{kRowDims}; ++d) {
    const bool there = d + 1 < space.dims();
    grid.row_sizes[d] = there ? space.size(d + 1) : 1;
    for (std::size_t k = 0; k < std::size_t{kOperands}; ++k) {
      grid.row_strides[k][d] = there ? space.stride(k, d + 1) : 0;
    }
  }
  for (std::size_t k = 0; k < std::size_t{kOperands}; ++k)
    grid.column_strides[k] = space.stride(k, 0);
  if (space.dims() > 1) return;
  grid.columns = width;
  grid.rows = (space.elements() + grid.columns - 1) / grid.columns;
  grid.last_columns = space.elements() - (grid.rows - 1) * grid.columns;
  grid.row_sizes[0] = grid.rows;
  for (std::size_t k = 0; k < std::size_t{kOperands}; ++k) {
    grid.row_strides[k][0] = grid.columns * grid.column_strides[k];
  }
}

template <int kOperands, int kRowDims>
void add_grid(std::string_view op_name, const Space& space, const ElementwiseForm& form,
              std::size_t loose, Launch& launch) {
  ElementwiseGrid<kOperands, kRowDims> grid;
  const std::int64_t vector = form.elements_per_access();
  const auto threads = static_cast<std::uint32_t>(form.policy.threads);
  lay_out(space, threads * vector, grid);
  // As wide as the block: then the tiles of memory without gaps are one thread high.
  grid.threads_x_log2 =
      threads_x_log2((grid.columns + vector - 1) / vector, std::bit_width(threads) - 1);
  grid.tiles = cut_into_tiles(op_name, grid.rows, grid.columns,
                              (threads >> grid.threads_x_log2) * form.policy.rows,
                              (std::int64_t{1} << grid.threads_x_log2) * vector);
  grid.loose_is_vector = loose < space.operands() && space.is_vector(loose) ? 1 : 0;
  launch.grid = {blocks_for(grid.tiles, threads), 1, 1};
  launch.block = {threads, 1, 1};
  launch.shared_bytes = 0;
  launch.parameters.add(grid);
}

template <int kOperands>
void add_dense_grid(std::string_view op_name, const Space& space, const ElementwiseForm& form,
                    Launch& launch) {
  const auto threads = static_cast<std::uint32_t>(form.policy.threads);
  const std::int64_t vector = form.elements_per_access();
  const TileMap tiles =
      cut_into_tiles(op_name, 1, space.elements(), 1, threads * vector * form.policy.rows);
  launch.grid = {blocks_for(tiles, threads), 1, 1};
  launch.block = {threads, 1, 1};
  launch.shared_bytes = 0;
  launch.parameters.add(ElementwiseGrid<kOperands, 0>{space.elements(), tiles.count});
}

template <int kOperands>
void add_grid_for(std::string_view op_name, const Space& space, const ElementwiseForm& form,
                  std::size_t loose, Launch& launch) {
  switch (form.row_dims) {
    case 0:
      return add_dense_grid<kOperands>(op_name, space, form, launch);
    case 1:
      return add_grid<kOperands, 1>(op_name, space, form, loose, launch);
    default:
      return add_grid<kOperands, kMaxRowDims>(op_name, space, form, loose, launch);
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

bool Space::rows_are_vectors(const std::byte* data, std::size_t operand) const {
  const std::int64_t vector = elements_per_access(dtype_);
  if (!is_aligned(data) || (dims_ > 1 && sizes_[0] % vector != 0)) return false;
  for (std::size_t d = 1; d < dims_; ++d) {
    if (strides_[operand][d] % vector != 0) return false;
  }
  return true;
}

bool Space::is_vector(std::size_t operand) const {
  return strides_[operand][0] == 1 && rows_are_vectors(data_[operand], operand);
}

bool Space::are_pairs(std::size_t one, std::size_t other) const {
  if (strides_[one][0] != 2 || strides_[other][0] != 2) return false;
  for (std::size_t d = 1; d < dims_; ++d) {
    if (strides_[one][d] != strides_[other][d]) return false;
  }
  const auto [first, second] = std::minmax(data_[one], data_[other]);
  return second - first == static_cast<std::ptrdiff_t>(size_of(dtype_)) &&
         rows_are_vectors(first, one);
}

std::int64_t ElementwiseForm::elements_per_access() const {
  return vectorised ? common::elements_per_access(dtype, policy) : 1;
}

std::string ElementwiseForm::label() const {
  return std::string(short_name(dtype)) + (vectorised ? " vector" : " element") +
         (row_dims == 0   ? " dense"
          : row_dims == 1 ? ""
                          : " rows-nd");
}

std::vector<std::string> elementwise_constants() {
  return {"TF_STORAGE", "TF_VECTOR", "TF_ROWS", "TF_ROW_DIMS", "TF_THREADS"};
}

Variant elementwise_variant(const ElementwiseForm& form) {
  Variant variant;
  variant.add(storage_code(form.dtype));
  variant.add(form.elements_per_access());
  variant.add(form.policy.rows);
  variant.add(form.row_dims);
  variant.add(form.policy.threads);
  return variant;
}

std::vector<ElementwiseForm> elementwise_forms(std::string_view op_name, std::size_t inputs,
                                               const DeviceFacts& device) {
  std::vector<ElementwiseForm> forms;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const bool vectorised : {true, false}) {
      for (const int row_dims : {0, 1, kMaxRowDims}) {
        if (row_dims == 0 && !vectorised) continue;
        forms.push_back(elementwise_form(op_name, dtype, inputs, vectorised, row_dims, device));
      }
    }
  }
  return forms;
}

ElementwiseForm elementwise_form(std::string_view op_name, DType dtype, std::size_t inputs,
                                 bool vectorised, int row_dims, const DeviceFacts& device) {
  ElementwiseForm form{dtype, inputs, vectorised, row_dims, {}};
  const LaunchPolicy standard = standard_policy(form);
  form.policy = device.policy(op_name, dtype, standard);
  if (!vectorised) form.policy.rows = standard.rows;
  return form;
}

int row_dims(const Space& space, bool vectorised, std::size_t loose) {
  if (space.dims() == 1) {
    const bool loose_is_dense = loose >= space.operands() || space.is_vector(loose);
    if (vectorised && loose_is_dense) return 0;
    // It is cut into rows of one block's width, which lie as far apart as so many elements do.
    bool all_short = is_short(space.elements());
    for (std::size_t k = 0; all_short && k < space.operands(); ++k) {
      all_short = is_short(kWidestBlock * space.stride(k, 0));
    }
    return all_short ? 1 : kMaxRowDims;
  }
  bool all_short = space.dims() == 2 && is_short(space.size(0)) && is_short(space.size(1));
  for (std::size_t k = 0; all_short && k < space.operands(); ++k) {
    all_short = is_short(space.stride(k, 1));
  }
  return all_short ? 1 : kMaxRowDims;
}

ElementwiseForm elementwise_form(std::string_view op_name, const Space& space, std::size_t inputs,
                                 const DeviceFacts& device, std::size_t loose) {
  bool vectorised = true;
  for (std::size_t k = 0; vectorised && k < space.operands(); ++k) {
    vectorised = k == loose || space.is_vector(k);
  }
  return elementwise_form(op_name, space.dtype(), inputs, vectorised,
                          row_dims(space, vectorised, loose), device);
}

void add_elementwise_grid(std::string_view op_name, const Space& space, const ElementwiseForm& form,
                          std::size_t loose, Launch& launch) {
  if (space.dims() > std::size_t{kMaxRowDims} + 1) {
    throw Error(std::string(op_name) + ": the strides of the tensors need " +
                std::to_string(space.dims()) + " separate loops; a GPU kernel walks over at most " +
                std::to_string(kMaxRowDims + 1) + ". Make them contiguous");
  }
  launch.starts_early = true;  // walk() in elementwise.h waits.
  switch (space.operands()) {
    case 2:
      return add_grid_for<2>(op_name, space, form, loose, launch);
    case 3:
      return add_grid_for<3>(op_name, space, form, loose, launch);
    default:
      return add_grid_for<5>(op_name, space, form, loose, launch);
  }
}

}  // namespace truefuse::common
