// The CPU path's arithmetic. Compiled once per instruction set, each time with the level's name as
// TRUEFUSE_CPU_LEVEL and the compiler options that switch it on; see common_cpu/vector.h for what
// such a file must not do. The one name that it gives to the linker is its table of kernels.

#include <truefuse/operators/common/swish.h>
#include <truefuse/operators/common_cpu/elementwise_kernel.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/swish/cpu_kernel.h>

namespace truefuse::swish {
namespace {

using cpu::Bf16;
using cpu::F16;
using cpu::Traits;
using cpu::Vector;

template <class T>
void forward(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  using Compute = typename Traits<T>::Compute;
  using Values = Vector<Compute>;
  cpu::for_each_element<T, 1, 1>(data, strides, count, [](const Values* in, Values* out) {
    out[0] = common::swish<cpu::Arithmetic<Compute>, Traits<T>::kPrecision>(in[0]);
  });
}

template <class T>
void backward(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  using Compute = typename Traits<T>::Compute;
  using Values = Vector<Compute>;
  cpu::for_each_element<T, 1, 2>(data, strides, count, [](const Values* in, Values* out) {
    Values unused;
    out[0] = common::swish_gradient<cpu::Arithmetic<Compute>, Traits<T>::kPrecision>(in[0], in[1],
                                                                                     unused);
  });
}

}  // namespace

const CpuKernels TRUEFUSE_TABLE_OF_LEVEL(kCpuKernels) = {
    {forward<double>, forward<float>, forward<F16>, forward<Bf16>},
    {backward<double>, backward<float>, backward<F16>, backward<Bf16>},
};

}  // namespace truefuse::swish
