// The same operator as an ordinary C++ extension, for comparing build times: the host side.
#include <torch/extension.h>

#ifdef WITH_CUDA
at::Tensor bias_gelu_cuda(const at::Tensor& x, const at::Tensor& bias);
#endif

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias) {
  TORCH_CHECK(x.dim() == 2 && bias.dim() == 1 && x.size(1) == bias.size(0), "shapes do not fit");
  TORCH_CHECK(x.is_contiguous() && bias.is_contiguous(), "x and bias must be contiguous");
  TORCH_CHECK(x.scalar_type() == at::kFloat && bias.scalar_type() == at::kFloat, "float32 only");
#ifdef WITH_CUDA
  return bias_gelu_cuda(x, bias);
#else
  at::Tensor out = at::empty_like(x);
  const float* in = x.data_ptr<float>();
  const float* b = bias.data_ptr<float>();
  float* o = out.data_ptr<float>();
  for (int64_t row = 0; row < x.size(0); ++row) {
    for (int64_t column = 0; column < x.size(1); ++column) {
      const int64_t i = row * x.size(1) + column;
      const float v = in[i] + b[column];
      o[i] = 0.5F * v * (1.0F + std::tanh(0.7978845608F * (v + 0.044715F * v * v * v)));
    }
  }
  return out;
#endif
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("bias_gelu", &bias_gelu); }
