#pragma once

// A small description and its kernel, for tests that change one thing in it.

#include <gtest/gtest.h>
#include <string>
#include <utility>

#include <truefuse/description/description.h>

#include "../error_of.h"

namespace truefuse::description::testing {

inline const std::string kText = R"(# Doubles rows.
operator: mine::scale
summary:  alpha x,
          row by row
schema:   scale(Tensor x, Tensor? y, float alpha, *, str form, int times) -> Tensor
contract:
  x: f32|bf16 [rows.., hidden] contiguous;
  y: like x [hidden] contiguous optional;
  alpha: float [-8, 8];
  form: "plain"|"#odd";   # a word with a hash
  times: int [0, 9]
  -> out: like x [rows.., hidden] contiguous
kernel:   kernel.hip
let:
  wide = 16 / x.bytes
  vector = hidden % wide == 0 && x.alignment >= 16 ? wide : 1
constants:
  TF_STORAGE = x.dtype
  TF_VECTOR = vector
  TF_ODD = form == "#odd"
launch: scale
  grid = ceil_div(hidden, 64), min(rows, 3)
  block = 64
reference: reference
)";

inline const std::string kKernel = R"(#include "truefuse/device.h"
/* TF_KERNEL(1) void scale(int comment) */
#include "truefuse/operators/common/tiles.h"
using T = truefuse::common::StorageOf<TF_STORAGE>::Type;

TF_KERNEL(64)
void scale(T* out, const T* __restrict__ x, const T* y,  // commas, in a comment
           float alpha, tf::i64 rows, tf::u32 hidden, int times) {
  for (tf::i64 row = tf::block_y(); row < rows; row += tf::grid_dim_y()) {
    const tf::i64 column = tf::block_x() * 64 + tf::thread_x();
    if (column >= hidden) return;
    const float value = alpha * tf::to_float(x[row * hidden + column]) + (y ? tf::to_float(y[column]) : 0.0f);
    out[row * hidden + column] = tf::from_float<T>(value + float(times));
  }
}
)";

inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

inline std::unique_ptr<Described> described(const std::string& text = kText,
                                            const std::string& kernel = kKernel,
                                            const jit::Files& more = {}) {
  Sources sources;
  sources.files = more;
  sources.name = "mine/description.txt";
  sources.prefix = "mine";
  sources.text = text;
  sources.files["kernel.hip"] = kernel;
  return read(sources);
}

inline std::string refusal(const std::string& text, const std::string& kernel = kKernel) {
  return truefuse::testing::error_of([&] { described(text, kernel); });
}

}  // namespace truefuse::description::testing
