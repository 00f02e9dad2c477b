#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <truefuse/contract/check.h>

namespace truefuse::testing {

inline constexpr std::string_view kBiasGelu =
    "x: f32|f64|f16|bf16 [rows.., hidden] rows-strided; bias: like x [hidden] strided; "
    "approximate: \"tanh\"|\"none\" -> out: like x [rows.., hidden] contiguous";

/// A tensor description with storage for its sizes and strides; no memory behind it unless `data`
/// is set.
struct Tensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  Device device{};
  void* data = nullptr;

  TensorView view() const { return {dtype, device, sizes, strides, data}; }
  operator Argument() const { return view(); }
};

inline Tensor dense(std::vector<std::int64_t> sizes, DType dtype = DType::f32) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t i = sizes.size(); i-- > 0; stride *= sizes[i]) strides[i] = stride;
  return {dtype, std::move(sizes), std::move(strides)};
}

/// What the check says about a call of "op"; empty if it passes.
inline std::string refusal(const Contract& contract, const std::vector<Argument>& arguments) {
  try {
    check<std::int64_t>(contract, "op", arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

inline std::string refusal(std::string_view contract, const std::vector<Argument>& arguments) {
  return refusal(Contract::parse(contract), arguments);
}

}  // namespace truefuse::testing
