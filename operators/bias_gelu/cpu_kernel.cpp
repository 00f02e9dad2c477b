// The CPU path's arithmetic. Compiled once per instruction set, each time with the level's name as
// TRUEFUSE_CPU_LEVEL and the compiler options that switch it on; see common_cpu/vector.h for what
// such a file must not do. The one name that it gives to the linker is its table of kernels.

#include <truefuse/operators/bias_gelu/cpu_kernel.h>
#include <truefuse/operators/common/gelu.h>
#include <truefuse/operators/common_cpu/arithmetic.h>

namespace truefuse::bias_gelu {
namespace {

using common::Gelu;
using cpu::Bf16;
using cpu::F16;
using cpu::Traits;
using cpu::Vector;

template <class T, Gelu kForm>
TF_DEVICE void gelu_of_sum(const T* x, const T* bias, T* out) {
  using Compute = typename Traits<T>::Compute;
  const Vector<Compute> v = cpu::load(x) + cpu::load(bias);
  cpu::store(out, common::gelu<cpu::Arithmetic<Compute>, kForm, Traits<T>::kPrecision>(v));
}

template <class T, Gelu kForm>
void kernel(const void* x_data, std::int64_t x_stride, const void* bias_data, void* out_data,
            std::int64_t rows, std::int64_t columns) {
  constexpr int kWidth = Vector<typename Traits<T>::Compute>::kCount;
  const T* x = static_cast<const T*>(x_data);
  const T* const bias = static_cast<const T*>(bias_data);
  T* out = static_cast<T*>(out_data);
  for (; rows > 0; --rows, x += x_stride, out += columns) {
    if (columns >= kWidth) {
      cpu::for_each_vector<kWidth>(
          columns, [&](std::int64_t i) { gelu_of_sum<T, kForm>(x + i, bias + i, out + i); });
    } else {
      T padded_x[kWidth] = {}, padded_bias[kWidth] = {}, padded_out[kWidth];
      for (int i = 0; i < columns; ++i) {
        padded_x[i] = x[i];
        padded_bias[i] = bias[i];
      }
      gelu_of_sum<T, kForm>(padded_x, padded_bias, padded_out);
      for (int i = 0; i < columns; ++i) out[i] = padded_out[i];
    }
  }
}

}  // namespace

const CpuKernels TRUEFUSE_TABLE_OF_LEVEL(kCpuKernels) = {
    {kernel<double, Gelu::kTanh>, kernel<double, Gelu::kExact>},
    {kernel<float, Gelu::kTanh>, kernel<float, Gelu::kExact>},
    {kernel<F16, Gelu::kTanh>, kernel<F16, Gelu::kExact>},
    {kernel<Bf16, Gelu::kTanh>, kernel<Bf16, Gelu::kExact>},
};

}  // namespace truefuse::bias_gelu
