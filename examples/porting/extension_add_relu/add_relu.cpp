// The extension as it was: relu(x + alpha y), and nothing of truefuse.

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

namespace {

at::Tensor add_relu(const at::Tensor& x, const at::Tensor& y, double alpha) {
  at::Tensor out = at::empty_like(x);
  const float* const a = x.const_data_ptr<float>();
  const float* const b = y.const_data_ptr<float>();
  float* const result = out.mutable_data_ptr<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const float sum = a[i] + static_cast<float>(alpha) * b[i];
    result[i] = sum <= 0 ? 0 : sum;
  }
  return out;
}

}  // namespace

TORCH_LIBRARY(extension, library) {
  library.def("add_relu(Tensor x, Tensor y, float alpha) -> Tensor", &add_relu);
}
