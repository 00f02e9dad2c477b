// The CPU path: which kernel, on which rows, on which thread. Compiled once, for every processor.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <truefuse/core/rows.h>
#include <truefuse/operator/operator.h>
#include <truefuse/operators/bias_gelu/cpu_bias.h>
#include <truefuse/operators/bias_gelu/cpu_kernel.h>
#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/common_cpu/parallel.h>

namespace truefuse {
namespace bias_gelu {
namespace {

constexpr std::int64_t kGrain = 16384;        // Elements worth a thread: about 10 microseconds.
constexpr std::int64_t kShortColumns = 1024;  // Shorter rows than this are joined where x is dense.

CpuKernel kernel_for(DType dtype, bool exact) {
  const CpuKernels& kernels = TRUEFUSE_KERNELS_OF_LEVEL(kCpuKernels);
  switch (dtype) {
    case DType::f64:
      return kernels.f64[exact];
    case DType::f32:
      return kernels.f32[exact];
    case DType::f16:
      return kernels.f16[exact];
    default:
      return kernels.bf16[exact];
  }
}

}  // namespace
}  // namespace bias_gelu

/// The CPU path of the registration: see binding::CpuKernel.
void bias_gelu_cpu(const Call& call) {
  using namespace bias_gelu;
  const TensorView& x = call.tensor(kX);
  const TensorView& out = call.outputs[0];
  for (const std::int64_t size : x.sizes) {
    if (size == 0) return;
  }
  const Rows rows(x);
  const bool exact = call.text(kApproximate) == "none";
  const CpuKernel kernel = kernel_for(x.dtype, exact);
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const std::int64_t total = rows.count() * rows.columns();

  // Dense x is cut anew, into rows of several biases side by side; the last one may be shorter.
  const std::int64_t repeats =
      rows.dense() ? std::clamp<std::int64_t>(kShortColumns / rows.columns(), 1, rows.count()) : 1;
  const std::int64_t columns = repeats * rows.columns();
  const Bias bias(call.tensor(kBias), repeats);

  const auto* const from = static_cast<const std::byte*>(x.data);
  auto* const to = static_cast<std::byte*>(out.data);
  cpu::parallel_for(total, kGrain, [&](std::int64_t i, std::int64_t end) {
    while (i < end) {
      const std::int64_t row = i / columns;
      const std::int64_t column = i % columns;
      const Rows::Run run = rows.dense()
                                ? Rows::Run{row * columns, columns, total / columns + 1 - row}
                                : rows.run_from(row);
      std::int64_t run_rows = 1;
      std::int64_t run_columns = std::min(columns - column, end - i);
      if (column == 0 && end - i >= columns) {
        run_rows = std::min(run.length, (end - i) / columns);
        run_columns = columns;
      }
      kernel(from + (run.offset + column) * size, run.stride, bias.data() + column * size,
             to + i * size, run_rows, run_columns);
      i += run_rows * run_columns;
    }
  });
}

}  // namespace truefuse
