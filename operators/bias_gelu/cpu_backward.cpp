// The backward operator's CPU path: which kernel, on which rows, on which thread. Compiled once,
// for every processor. Rows are summed in parts that depend on the shape alone, and the parts are
// added in order: the result is the same for any number of threads.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <truefuse/core/rows.h>
#include <truefuse/operator/operator.h>
#include <truefuse/operators/bias_gelu/backward.h>
#include <truefuse/operators/bias_gelu/cpu_backward_kernel.h>
#include <truefuse/operators/bias_gelu/cpu_bias.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/common_cpu/parallel.h>

namespace truefuse {
namespace bias_gelu::backward {
namespace {

constexpr std::int64_t kPartElements =
    65536;                                    // At least, where there are so many: 50 microseconds.
constexpr std::int64_t kWideColumns = 4096;   // Sums of so many columns stay in the first cache.
constexpr std::int64_t kShortColumns = 1024;  // Shorter rows are joined where x is dense.

const CpuKernels& kernels() { return TRUEFUSE_KERNELS_OF_LEVEL(kBackwardKernels); }

CpuKernel kernel_for(DType dtype, bool exact) {
  switch (dtype) {
    case DType::f64:
      return kernels().f64[exact];
    case DType::f32:
      return kernels().f32[exact];
    case DType::f16:
      return kernels().f16[exact];
    default:
      return kernels().bf16[exact];
  }
}

/// Where elements of a tensor [rows.., hidden] are, if its rows are read as rows of `columns`
/// elements, whole multiples of hidden; gathered into a buffer where they are not neighbours.
class Reader {
 public:
  Reader(const TensorView& tensor, std::int64_t columns)
      : data_(static_cast<const std::byte*>(tensor.data)),
        rows_(tensor),
        size_(static_cast<std::int64_t>(size_of(tensor.dtype))),
        hidden_(tensor.sizes.back()),
        stride_(hidden_ > 1 ? tensor.strides.back() : 1),
        columns_(columns),
        is_dense_(rows_.dense() && stride_ == 1),
        in_place_(is_dense_ || (stride_ == 1 && columns == hidden_)) {}

  /// Elements `column` to `column + count` of `row`.
  const std::byte* at(std::int64_t row, std::int64_t column, std::int64_t count,
                      std::vector<std::byte>& buffer) const {
    if (is_dense_) return data_ + (row * columns_ + column) * size_;
    if (in_place_) return data_ + (rows_.run_from(row).offset + column) * size_;
    buffer.resize(static_cast<std::size_t>(count * size_));
    std::byte* to = buffer.data();
    std::int64_t element = row * columns_ + column;
    for (const std::int64_t end = element + count; element < end;) {
      const std::int64_t first = element % hidden_;
      const std::int64_t run = std::min(hidden_ - first, end - element);
      gather(data_ + (rows_.run_from(element / hidden_).offset + first * stride_) * size_, to, run);
      to += run * size_;
      element += run;
    }
    return buffer.data();
  }

 private:
  void gather(const std::byte* from, std::byte* to, std::int64_t count) const {
    const auto copy = [&](auto element) {
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(&element, from + i * stride_ * size_, sizeof element);
        std::memcpy(to + i * size_, &element, sizeof element);
      }
    };
    if (size_ == 2) return copy(std::uint16_t{});
    if (size_ == 4) return copy(std::uint32_t{});
    return copy(std::uint64_t{});
  }

  const std::byte* data_;
  Rows rows_;
  std::int64_t size_, hidden_, stride_, columns_;
  bool is_dense_, in_place_;
};

/// grad_bias[c] = the sum of the elements c, c + hidden, c + 2 hidden, ... of `sums`.
template <class Compute>
void write_grad_bias(const std::vector<std::byte>& sums, const TensorView& grad_bias) {
  const auto* const from = reinterpret_cast<const Compute*>(sums.data());
  const auto hidden = static_cast<std::size_t>(grad_bias.sizes[0]);
  std::vector<double> totals(hidden, 0.0);
  std::size_t column = 0;
  for (std::size_t i = 0; i < sums.size() / sizeof(Compute); ++i) {
    totals[column] += static_cast<double>(from[i]);
    if (++column == hidden) column = 0;
  }
  const std::vector<Compute> rounded(totals.begin(), totals.end());
  if (grad_bias.dtype == DType::f16) {
    if constexpr (sizeof(Compute) == 4) {
      kernels().round_f16(rounded.data(), grad_bias.data, grad_bias.sizes[0]);
    }
  } else if (grad_bias.dtype == DType::bf16) {
    if constexpr (sizeof(Compute) == 4) {
      kernels().round_bf16(rounded.data(), grad_bias.data, grad_bias.sizes[0]);
    }
  } else if (hidden > 0) {
    std::memcpy(grad_bias.data, rounded.data(), hidden * sizeof(Compute));
  }
}

}  // namespace
}  // namespace bias_gelu::backward

/// The CPU path of the registration: see binding::CpuKernel.
void bias_gelu_backward_cpu(const Call& call) {
  using namespace bias_gelu::backward;
  const TensorView& x = call.tensor(kX);
  const Rows rows(x);
  const std::int64_t total = rows.count() * rows.columns();
  const bool bias_wanted = call.flag(kBiasWanted);
  auto* const grad_x =
      call.flag(kXWanted) ? static_cast<std::byte*>(call.outputs[kGradX].data) : nullptr;
  const CpuKernel kernel = kernel_for(x.dtype, call.text(kApproximate) == "none");
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const auto sum_size = std::max<std::int64_t>(size, sizeof(float));

  // Dense x is cut anew, into rows of several biases side by side; the last one may be shorter.
  const bool joins = total > 0 && rows.dense();
  const std::int64_t repeats =
      joins ? std::clamp<std::int64_t>(kShortColumns / rows.columns(), 1, rows.count()) : 1;
  const std::int64_t columns = std::max<std::int64_t>(repeats * rows.columns(), 1);
  const std::int64_t count = (total + columns - 1) / columns;
  const std::int64_t wide = std::min(columns, kWideColumns);
  const std::int64_t column_parts = (columns + wide - 1) / wide;
  const std::int64_t part_rows = std::max<std::int64_t>(kPartElements / wide, 1);
  const std::int64_t row_parts = (count + part_rows - 1) / part_rows;

  std::vector<std::byte> sums(bias_wanted ? static_cast<std::size_t>(row_parts * columns * sum_size)
                                          : 0);
  if (total > 0 && (bias_wanted || grad_x != nullptr)) {
    const bias_gelu::Bias bias(call.tensor(kBias), repeats);
    const Reader read_x(x, columns);
    const Reader read_grad(call.tensor(kGradOut), columns);
    cpu::parallel_for(row_parts * column_parts, 1, [&](std::int64_t part, std::int64_t last_part) {
      std::vector<std::byte> x_buffer, grad_buffer;
      for (; part < last_part; ++part) {
        const std::int64_t row_part = part / column_parts;
        const std::int64_t column = part % column_parts * wide;
        std::byte* const part_sums =
            bias_wanted ? &sums[static_cast<std::size_t>((row_part * columns + column) * sum_size)]
                        : nullptr;
        const std::int64_t last_row = std::min((row_part + 1) * part_rows, count);
        for (std::int64_t row = row_part * part_rows; row < last_row; ++row) {
          const std::int64_t begin = row * columns + column;
          const std::int64_t n = std::min({wide, columns - column, total - begin});
          if (n <= 0) continue;
          kernel(read_grad.at(row, column, n, grad_buffer), read_x.at(row, column, n, x_buffer),
                 bias.data() + column * size, grad_x != nullptr ? grad_x + begin * size : nullptr,
                 part_sums, n);
        }
      }
    });
  }
  if (!bias_wanted) return;
  if (x.dtype == DType::f64) {
    write_grad_bias<double>(sums, call.outputs[kGradBias]);
  } else {
    write_grad_bias<float>(sums, call.outputs[kGradBias]);
  }
}

}  // namespace truefuse
