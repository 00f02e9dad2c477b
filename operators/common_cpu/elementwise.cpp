#include <algorithm>
#include <array>

#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/common_cpu/elementwise.h>
#include <truefuse/operators/common_cpu/parallel.h>

namespace truefuse::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;  // Elements worth a thread: about 10 microseconds.

ElementwiseKernel kernel_for(DType dtype, const ElementwiseKernels& kernels) {
  switch (dtype) {
    case DType::f64:
      return kernels.f64;
    case DType::f32:
      return kernels.f32;
    case DType::f16:
      return kernels.f16;
    default:
      return kernels.bf16;
  }
}

}  // namespace

void run_elementwise(const common::Space& space, const ElementwiseKernels& kernels) {
  if (space.elements() == 0) return;
  const ElementwiseKernel kernel = kernel_for(space.dtype(), kernels);
  const auto bytes = static_cast<std::int64_t>(size_of(space.dtype()));
  const std::int64_t columns = space.size(0);
  std::array<std::int64_t, common::kMaxOperands> strides;
  for (std::size_t k = 0; k < space.operands(); ++k) strides[k] = space.stride(k, 0);

  parallel_for(space.elements(), kGrain, [&](std::int64_t i, std::int64_t end) {
    std::array<std::byte*, common::kMaxOperands> data;
    while (i < end) {
      const std::int64_t column = i % columns;
      const std::int64_t count = std::min(columns - column, end - i);
      for (std::size_t k = 0; k < space.operands(); ++k) {
        std::int64_t offset = column * strides[k];
        std::int64_t row = i / columns;
        for (std::size_t d = 1; d < space.dims(); ++d) {
          offset += row % space.size(d) * space.stride(k, d);
          row /= space.size(d);
        }
        data[k] = space.data(k) == nullptr ? nullptr : space.data(k) + offset * bytes;
      }
      kernel(data.data(), strides.data(), count);
      i += count;
    }
  });
}

}  // namespace truefuse::cpu
