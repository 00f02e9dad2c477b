#pragma once

#include "truefuse/device.h"

// The part of CUDA's and HIP's language that `truefuse sim` gives to a kernel written in it. What a
// macro cannot say (__shared__) is rewritten before; see docs/simulator.md for what is left out.

#define __global__ [[truefuse::kernel(1024)]]
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)

#define threadIdx (::tf_sim::current_lane->thread)
#define blockIdx (::tf_sim::current_lane->block)
#define blockDim (::tf_sim::current_lane->block_dim)
#define gridDim (::tf_sim::current_lane->grid_dim)
#define warpSize TF_WAVE

#define __syncthreads() ::tf::block_sync()
#define __syncwarp(...) ::tf::wave_sync()
#define __threadfence() ::tf::device_fence()
#define __threadfence_block() ::tf::device_fence()
#define __threadfence_system() ::tf::device_fence()

namespace tf_sim {

/// The block's array for the __shared__ variable that `Tag` stands for.
template <class Array, class Tag>
Array& shared_variable(Tag) {
  static const char identity = 0;
  return *static_cast<Array*>(static_shared(&identity, sizeof(Array)));
}

template <class T>
T exchanged(int kind, T value, int operand, int width, Site site) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffled value has 4 or 8 bytes");
  if constexpr (sizeof(T) == 8) {
    const auto bits = __builtin_bit_cast(unsigned long long, value);
    return __builtin_bit_cast(T, exchange(kind, width, bits, operand, site));
  } else {
    const auto bits = __builtin_bit_cast(unsigned int, value);
    return __builtin_bit_cast(
        T, static_cast<unsigned int>(exchange(kind, width, bits, operand, site)));
  }
}

/// Lanes that a mask leaves out would have to be followed apart.
inline void full_mask(unsigned long long mask) {
  if ((mask & 0xffffffffu) != 0xffffffffu) {
    unsupported(
        "a _sync function is called with a mask that leaves out lanes; the simulator knows "
        "only the full mask");
  }
}

}  // namespace tf_sim

#define TF_SIM_SHUFFLE(name, kind, operand)                                                   \
  template <class T>                                                                          \
  T name(T value, int operand, int width = TF_WAVE, ::tf_sim::Site site = ::tf_sim::here()) { \
    return ::tf_sim::exchanged(kind, value, operand, width, site);                            \
  }                                                                                           \
  template <class T>                                                                          \
  T name##_sync(unsigned long long mask, T value, int operand, int width = TF_WAVE,           \
                ::tf_sim::Site site = ::tf_sim::here()) {                                     \
    ::tf_sim::full_mask(mask);                                                                \
    return ::tf_sim::exchanged(kind, value, operand, width, site);                            \
  }
TF_SIM_SHUFFLE(__shfl_xor, 0, mask_of_lanes)
TF_SIM_SHUFFLE(__shfl_down, 1, delta)
TF_SIM_SHUFFLE(__shfl, 2, source)
TF_SIM_SHUFFLE(__shfl_up, 3, delta)
#undef TF_SIM_SHUFFLE

inline unsigned long long __ballot(int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  return ::tf::ballot<TF_WAVE>(vote != 0, site);
}
inline int __any(int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  return ::tf::any<TF_WAVE>(vote != 0, site);
}
inline int __all(int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  return ::tf::all<TF_WAVE>(vote != 0, site);
}
inline unsigned long long __ballot_sync(unsigned long long mask, int vote,
                                        ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask);
  return __ballot(vote, site);
}
inline int __any_sync(unsigned long long mask, int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask);
  return __any(vote, site);
}
inline int __all_sync(unsigned long long mask, int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask);
  return __all(vote, site);
}

#define TF_SIM_ATOMIC(name, function)                              \
  template <class T>                                               \
  T name(T* address, typename ::tf::detail::Itself<T>::type value, \
         ::tf_sim::Site site = ::tf_sim::here()) {                 \
    return ::tf::function(address, value, site);                   \
  }
TF_SIM_ATOMIC(atomicAdd, atomic_add)
TF_SIM_ATOMIC(atomicMin, atomic_min)
TF_SIM_ATOMIC(atomicMax, atomic_max)
TF_SIM_ATOMIC(atomicAnd, atomic_and)
TF_SIM_ATOMIC(atomicOr, atomic_or)
TF_SIM_ATOMIC(atomicXor, atomic_xor)
TF_SIM_ATOMIC(atomicExch, atomic_exchange)
#undef TF_SIM_ATOMIC
template <class T>
T atomicCAS(T* address, typename ::tf::detail::Itself<T>::type expected,
            typename ::tf::detail::Itself<T>::type value, ::tf_sim::Site site = ::tf_sim::here()) {
  return ::tf::atomic_compare_exchange(address, expected, value, site);
}

template <class T>
T __ldg(const T* address) {
  return *address;
}

#define TF_SIM_MATH(name)          \
  extern "C" float name##f(float); \
  extern "C" double name(double);
TF_SIM_MATH(exp)
TF_SIM_MATH(exp2)
TF_SIM_MATH(expm1)
TF_SIM_MATH(log)
TF_SIM_MATH(log2)
TF_SIM_MATH(log1p)
TF_SIM_MATH(sqrt)
TF_SIM_MATH(tanh)
TF_SIM_MATH(erf)
TF_SIM_MATH(erfc)
TF_SIM_MATH(sin)
TF_SIM_MATH(cos)
TF_SIM_MATH(fabs)
TF_SIM_MATH(floor)
TF_SIM_MATH(ceil)
#undef TF_SIM_MATH
extern "C" float powf(float, float), fminf(float, float), fmaxf(float, float);
extern "C" float fmaf(float, float, float);
extern "C" double pow(double, double), fmin(double, double), fmax(double, double);
extern "C" double fma(double, double, double);

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned int>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

template <class T>
T min(T a, typename ::tf::detail::Itself<T>::type b) {
  return b < a ? b : a;
}
template <class T>
T max(T a, typename ::tf::detail::Itself<T>::type b) {
  return a < b ? b : a;
}

#define TF_SIM_VECTORS(T, name)                              \
  struct alignas(2 * sizeof(T)) name##2 {                    \
    T x, y;                                                  \
  };                                                         \
  struct alignas(16) name##4 {                               \
    T x, y, z, w;                                            \
  };                                                         \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TF_SIM_VECTORS(float, float)
TF_SIM_VECTORS(int, int)
TF_SIM_VECTORS(unsigned int, uint)
#undef TF_SIM_VECTORS
