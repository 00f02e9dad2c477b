#include <truefuse/core/rows.h>

namespace truefuse {

Rows::Rows(const TensorView& tensor) : columns_(tensor.sizes.back()) {
  for (std::size_t d = tensor.sizes.size() - 1; d-- > 0;) {
    const std::int64_t size = tensor.sizes[d];
    const std::int64_t stride = tensor.strides[d];
    count_ *= size;
    if (size == 1) continue;
    if (dims_ > 0 && stride == strides_[dims_ - 1] * sizes_[dims_ - 1]) {
      sizes_[dims_ - 1] *= size;
    } else {
      sizes_[dims_] = size;
      strides_[dims_] = stride;
      ++dims_;
    }
  }
}

Rows::Run Rows::run_from(std::int64_t row) const {
  if (dims_ == 0) return {0, 0, 1};
  const std::int64_t inner = row % sizes_[0];
  Run run{inner * strides_[0], strides_[0], sizes_[0] - inner};
  row /= sizes_[0];
  for (std::size_t d = 1; d < dims_; ++d) {
    run.offset += row % sizes_[d] * strides_[d];
    row /= sizes_[d];
  }
  return run;
}

}  // namespace truefuse
