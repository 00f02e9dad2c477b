// The arithmetic of the backward operator's CPU path. Compiled once per instruction set, as
// cpu_kernel.cpp is.

#include <truefuse/operators/bias_gelu/cpu_backward_kernel.h>
#include <truefuse/operators/common/gelu_derivative.h>
#include <truefuse/operators/common_cpu/arithmetic.h>

namespace truefuse::bias_gelu::backward {
namespace {

using common::Gelu;
using cpu::Bf16;
using cpu::F16;
using cpu::Traits;
using cpu::Vector;

template <class T, Gelu kForm, class Compute>
TF_DEVICE void gradients(const T* grad_out, const T* x, const T* bias, T* grad_x, Compute* sums) {
  const Vector<Compute> slope =
      common::gelu_derivative<cpu::Arithmetic<Compute>, kForm, Traits<T>::kPrecision>(
          cpu::load(x) + cpu::load(bias));
  const Vector<Compute> gradient = cpu::load(grad_out) * slope;
  if (grad_x != nullptr) cpu::store(grad_x, gradient);
  if (sums != nullptr) cpu::store(sums, cpu::load(sums) + gradient);
}

template <class T, Gelu kForm>
void kernel(const void* grad_out_data, const void* x_data, const void* bias_data, void* grad_x_data,
            void* sums_data, std::int64_t columns) {
  using Compute = typename Traits<T>::Compute;
  constexpr int kWidth = Vector<Compute>::kCount;
  const T* const grad_out = static_cast<const T*>(grad_out_data);
  const T* const x = static_cast<const T*>(x_data);
  const T* const bias = static_cast<const T*>(bias_data);
  T* const grad_x = static_cast<T*>(grad_x_data);
  Compute* const sums = static_cast<Compute*>(sums_data);
  std::int64_t i = 0;
  for (; i + kWidth <= columns; i += kWidth) {
    gradients<T, kForm>(grad_out + i, x + i, bias + i, grad_x != nullptr ? grad_x + i : nullptr,
                        sums != nullptr ? sums + i : nullptr);
  }
  const int rest = static_cast<int>(columns - i);
  if (rest == 0) return;
  T last_grad_out[kWidth] = {}, last_x[kWidth] = {}, last_bias[kWidth] = {}, last_grad_x[kWidth];
  Compute last_sums[kWidth] = {};
  for (int k = 0; k < rest; ++k) {
    last_grad_out[k] = grad_out[i + k];
    last_x[k] = x[i + k];
    last_bias[k] = bias[i + k];
  }
  gradients<T, kForm>(last_grad_out, last_x, last_bias, last_grad_x, last_sums);
  for (int k = 0; k < rest; ++k) {
    if (grad_x != nullptr) grad_x[i + k] = last_grad_x[k];
    if (sums != nullptr) sums[i + k] += last_sums[k];
  }
}

template <class T>
void round_to(const float* from, void* to, std::int64_t columns) {
  constexpr int kWidth = Vector<float>::kCount;
  for (std::int64_t i = 0; i < columns; i += kWidth) {
    float wide[kWidth] = {};
    T rounded[kWidth];
    const int count = static_cast<int>(columns - i < kWidth ? columns - i : kWidth);
    for (int k = 0; k < count; ++k) wide[k] = from[i + k];
    cpu::store(rounded, cpu::load(wide));
    for (int k = 0; k < count; ++k) static_cast<T*>(to)[i + k] = rounded[k];
  }
}

}  // namespace

const CpuKernels TRUEFUSE_TABLE_OF_LEVEL(kBackwardKernels) = {
    {kernel<double, Gelu::kTanh>, kernel<double, Gelu::kExact>},
    {kernel<float, Gelu::kTanh>, kernel<float, Gelu::kExact>},
    {kernel<F16, Gelu::kTanh>, kernel<F16, Gelu::kExact>},
    {kernel<Bf16, Gelu::kTanh>, kernel<Bf16, Gelu::kExact>},
    round_to<F16>,
    round_to<Bf16>,
};

}  // namespace truefuse::bias_gelu::backward
