#pragma once

// The inner loop of elementwise CPU kernels, under vector.h's rules.

#include <cstddef>

#include <truefuse/operators/common_cpu/arithmetic.h>

namespace truefuse::cpu {
namespace {

constexpr std::int64_t kBlock = 256;  // Elements that are gathered at once.

/// Calls function(in, out) on vectors of kInputs inputs and kOutputs outputs for `count` elements
/// that lie at data[k] + i * strides[k], outputs first; no output overlaps an input. Nobody wants
/// an output whose data is null.
template <class T, int kOutputs, int kInputs, class Function>
void for_each_element(std::byte* const* data, const std::int64_t* strides, std::int64_t count,
                      const Function& function) {
  using Values = Vector<typename Traits<T>::Compute>;
  constexpr int kOperands = kOutputs + kInputs;
  constexpr std::int64_t kWidth = Values::kCount;
  bool in_place = count >= kWidth;
  for (int k = 0; k < kOperands; ++k) {
    in_place = in_place && strides[k] == 1 && data[k] != nullptr;
  }

  T buffers[kOperands][kBlock];
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t left = count - done;
    const std::int64_t block = in_place || left < kBlock ? left : kBlock;
    T* at[kOperands];
    for (int k = 0; k < kOperands; ++k) {
      T* const begin = reinterpret_cast<T*>(data[k]) + done * strides[k];
      const bool direct = strides[k] == 1 && block >= kWidth && data[k] != nullptr;
      at[k] = direct ? begin : buffers[k];
      if (direct || k < kOutputs) continue;
      for (std::int64_t i = 0; i < block; ++i) buffers[k][i] = begin[i * strides[k]];
      for (std::int64_t i = block; i < kWidth; ++i) buffers[k][i] = T{};
    }
    for_each_vector<kWidth>(block < kWidth ? kWidth : block, [&](std::int64_t i) {
      Values in[kInputs], out[kOutputs];
      for (int k = 0; k < kInputs; ++k) in[k] = load(at[kOutputs + k] + i);
      function(in, out);
      for (int k = 0; k < kOutputs; ++k) store(at[k] + i, out[k]);
    });
    for (int k = 0; k < kOutputs; ++k) {
      if (at[k] != buffers[k] || data[k] == nullptr) continue;
      T* const begin = reinterpret_cast<T*>(data[k]) + done * strides[k];
      for (std::int64_t i = 0; i < block; ++i) begin[i * strides[k]] = buffers[k][i];
    }
    done += block;
  }
}

}  // namespace
}  // namespace truefuse::cpu
