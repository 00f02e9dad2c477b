#pragma once

#include "truefuse/device.h"

// The part of CUDA's and HIP's language that `truefuse sim` gives to a kernel written in it. What a
// macro cannot say (__shared__) is rewritten before; see docs/simulator.md for what is left out.

#define TF_SIM_GLOBAL(threads) [[truefuse::kernel(threads)]]  // What `truefuse sim` makes of it.
#define __global__ TF_SIM_GLOBAL(1024)
#define __launch_bounds__(...)
#define __device__
#define __host__
#define __constant__
// Where nobody rewrote it, as in the kernel of a described operator.
#define __shared__ \
  _Pragma("GCC error \"write TF_SHARED(T, name, N), if extern TF_SHARED_DYNAMIC(T, name)\"")
#define __forceinline__ inline
#define __align__(bytes) alignas(bytes)

typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;

#define NULL __null
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define DBL_MAX __DBL_MAX__
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX (2u * __INT_MAX__ + 1u)
#define M_PI 3.14159265358979323846

#define threadIdx (::tf_sim::current_lane->thread)
#define blockIdx (::tf_sim::current_lane->block)
#define blockDim (::tf_sim::current_lane->block_dim)
#define gridDim (::tf_sim::current_lane->grid_dim)
#define warpSize TF_WAVE
#define hipThreadIdx_x threadIdx.x
#define hipThreadIdx_y threadIdx.y
#define hipThreadIdx_z threadIdx.z
#define hipBlockIdx_x blockIdx.x
#define hipBlockIdx_y blockIdx.y
#define hipBlockIdx_z blockIdx.z
#define hipBlockDim_x blockDim.x
#define hipBlockDim_y blockDim.y
#define hipBlockDim_z blockDim.z
#define hipGridDim_x gridDim.x
#define hipGridDim_y gridDim.y
#define hipGridDim_z gridDim.z

#define __syncthreads() ::tf::block_sync()
#define __threadfence() ::tf::device_fence()
#define __threadfence_block() ::tf::device_fence()
#define __threadfence_system() ::tf::device_fence()

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
};

namespace tf_sim {

/// The block's array for the __shared__ variable that `Tag` stands for.
template <class Array, class Tag>
Array& shared_variable(Tag) {
  static const char identity = 0;
  return *static_cast<Array*>(static_shared(&identity, sizeof(Array)));
}

/// What `extern __shared__ T name[]` outside a function declares.
template <class T>
struct DynamicShared {
  constexpr DynamicShared() {}
  operator T*() const { return static_cast<T*>(dynamic_shared()); }
  template <class U>
  explicit operator U*() const {
    return static_cast<U*>(dynamic_shared());
  }
};

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
inline void full_mask(unsigned long long mask, Site site) {
  if ((mask & 0xffffffffu) != 0xffffffffu) {
    unsupported(
        "a _sync function is called with a mask that leaves out lanes; the simulator knows "
        "only the full mask",
        site);
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
    ::tf_sim::full_mask(mask, site);                                                          \
    return ::tf_sim::exchanged(kind, value, operand, width, site);                            \
  }
TF_SIM_SHUFFLE(__shfl_xor, 0, mask_of_lanes)
TF_SIM_SHUFFLE(__shfl_down, 1, delta)
TF_SIM_SHUFFLE(__shfl, 2, source)
TF_SIM_SHUFFLE(__shfl_up, 3, delta)
#undef TF_SIM_SHUFFLE

inline void __syncwarp(unsigned long long mask = ~0ull, ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask, site);
  ::tf::wave_sync(site);
}
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
  ::tf_sim::full_mask(mask, site);
  return __ballot(vote, site);
}
inline int __any_sync(unsigned long long mask, int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask, site);
  return __any(vote, site);
}
inline int __all_sync(unsigned long long mask, int vote, ::tf_sim::Site site = ::tf_sim::here()) {
  ::tf_sim::full_mask(mask, site);
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
T atomicSub(T* address, typename ::tf::detail::Itself<T>::type value,
            ::tf_sim::Site site = ::tf_sim::here()) {
  return ::tf::atomic_add(address, static_cast<T>(T{} - value), site);
}
/// Up to `last`, then 0 again.
inline unsigned int atomicInc(unsigned int* address, unsigned int last,
                              ::tf_sim::Site site = ::tf_sim::here()) {
  for (unsigned int old = ::tf::atomic_add(address, 0u, site);;) {
    const unsigned int next = old >= last ? 0u : old + 1u;
    const unsigned int found = ::tf::atomic_compare_exchange(address, old, next, site);
    if (found == old) return old;
    old = found;
  }
}
/// Down to 0, then `last` again.
inline unsigned int atomicDec(unsigned int* address, unsigned int last,
                              ::tf_sim::Site site = ::tf_sim::here()) {
  for (unsigned int old = ::tf::atomic_add(address, 0u, site);;) {
    const unsigned int next = old == 0u || old > last ? last : old - 1u;
    const unsigned int found = ::tf::atomic_compare_exchange(address, old, next, site);
    if (found == old) return old;
    old = found;
  }
}
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
TF_SIM_MATH(round)
TF_SIM_MATH(trunc)
TF_SIM_MATH(log10)
#undef TF_SIM_MATH
extern "C" int abs(int);
extern "C" float powf(float, float), fminf(float, float), fmaxf(float, float);
extern "C" float fmodf(float, float);
extern "C" float fmaf(float, float, float);
extern "C" double pow(double, double), fmin(double, double), fmax(double, double);
extern "C" double fma(double, double, double);

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
inline unsigned int __float_as_uint(float x) { return __builtin_bit_cast(unsigned int, x); }
inline float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
inline float __uint_as_float(unsigned int x) { return __builtin_bit_cast(float, x); }
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

#define TF_SIM_VECTORS(T, name)                                      \
  struct name##1 {                                                   \
    T x;                                                             \
  };                                                                 \
  struct alignas(2 * sizeof(T)) name##2 {                            \
    T x, y;                                                          \
  };                                                                 \
  struct name##3 {                                                   \
    T x, y, z;                                                       \
  };                                                                 \
  struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) name##4 {  \
    T x, y, z, w;                                                    \
  };                                                                 \
  inline name##1 make_##name##1(T x) { return {x}; }                 \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }         \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; } \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
TF_SIM_VECTORS(signed char, char)
TF_SIM_VECTORS(unsigned char, uchar)
TF_SIM_VECTORS(short, short)
TF_SIM_VECTORS(unsigned short, ushort)
TF_SIM_VECTORS(int, int)
TF_SIM_VECTORS(unsigned int, uint)
TF_SIM_VECTORS(long long, longlong)
TF_SIM_VECTORS(unsigned long long, ulonglong)
TF_SIM_VECTORS(float, float)
TF_SIM_VECTORS(double, double)
#undef TF_SIM_VECTORS
