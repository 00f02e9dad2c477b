#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <truefuse/core/tensor.h>

namespace truefuse::bias_gelu {

/// For the CPU paths: the bias one element after the other, `repeats` times over.
class Bias {
 public:
  Bias(const TensorView& bias, std::int64_t repeats) : data_(static_cast<std::byte*>(bias.data)) {
    const auto size = static_cast<std::int64_t>(size_of(bias.dtype));
    const std::int64_t columns = bias.sizes[0];
    const std::int64_t stride = columns > 1 ? bias.strides[0] : 1;
    if (stride == 1 && repeats == 1) return;
    copy_.resize(static_cast<std::size_t>(repeats * columns * size));
    for (std::int64_t c = 0; c < columns; ++c) {
      std::memcpy(&copy_[static_cast<std::size_t>(c * size)], data_ + c * stride * size,
                  static_cast<std::size_t>(size));
    }
    const auto once = copy_.begin() + columns * size;
    for (std::int64_t r = 1; r < repeats; ++r) {
      std::copy(copy_.begin(), once, copy_.begin() + r * columns * size);
    }
    data_ = copy_.data();
  }

  const std::byte* data() const { return data_; }

 private:
  const std::byte* data_;
  std::vector<std::byte> copy_;
};

}  // namespace truefuse::bias_gelu
