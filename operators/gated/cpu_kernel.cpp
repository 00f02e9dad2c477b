// The CPU path's arithmetic. Compiled once per instruction set, each time with the level's name as
// TRUEFUSE_CPU_LEVEL and the compiler options that switch it on; see common_cpu/vector.h for what
// such a file must not do. The one name that it gives to the linker is its table of kernels.

#include <truefuse/operators/common_cpu/elementwise_kernel.h>
#include <truefuse/operators/common_cpu/level.h>
#include <truefuse/operators/gated/activation.h>
#include <truefuse/operators/gated/cpu_kernel.h>

namespace truefuse::gated {
namespace {

using cpu::Bf16;
using cpu::F16;
using cpu::Traits;
using cpu::Vector;

template <class T>
using ValuesOf = Vector<typename Traits<T>::Compute>;

template <class T, Activation kActivation>
using GateOf =
    Gate<cpu::Arithmetic<typename Traits<T>::Compute>, kActivation, Traits<T>::kPrecision>;

template <class T, bool kRoundGate>
ValuesOf<T> rounded(ValuesOf<T> activated) {
  if constexpr (kRoundGate) {
    T elements[ValuesOf<T>::kCount];
    cpu::store(elements, activated);
    return cpu::load(elements);
  } else {
    return activated;
  }
}

template <class T, Activation kActivation, bool kRoundGate>
void forward(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  using Values = ValuesOf<T>;
  cpu::for_each_element<T, 1, 2>(data, strides, count, [](const Values* in, Values* out) {
    out[0] = rounded<T, kRoundGate>(GateOf<T, kActivation>::value(in[0])) * in[1];
  });
}

template <class T, Activation kActivation, bool kRoundGate>
void backward(std::byte* const* data, const std::int64_t* strides, std::int64_t count) {
  using Values = ValuesOf<T>;
  cpu::for_each_element<T, 2, 3>(data, strides, count, [](const Values* in, Values* out) {
    Values activated;
    out[0] = GateOf<T, kActivation>::gradient(in[0] * in[2], in[1], activated);
    out[1] = in[0] * rounded<T, kRoundGate>(activated);
  });
}

}  // namespace

// For float and double the rounding changes nothing.
#define TRUEFUSE_KERNELS(function, activation)                                 \
  {                                                                            \
    {function<double, activation, false>, function<float, activation, false>,  \
     function<F16, activation, false>, function<Bf16, activation, false>},     \
    {                                                                          \
      function<double, activation, false>, function<float, activation, false>, \
          function<F16, activation, true>, function<Bf16, activation, true>    \
    }                                                                          \
  }

const CpuKernels TRUEFUSE_TABLE_OF_LEVEL(kCpuKernels) = {
    {TRUEFUSE_KERNELS(forward, Activation::kSwish),
     TRUEFUSE_KERNELS(forward, Activation::kGeluTanh),
     TRUEFUSE_KERNELS(forward, Activation::kGeluExact)},
    {TRUEFUSE_KERNELS(backward, Activation::kSwish),
     TRUEFUSE_KERNELS(backward, Activation::kGeluTanh),
     TRUEFUSE_KERNELS(backward, Activation::kGeluExact)},
};

}  // namespace truefuse::gated
