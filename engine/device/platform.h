#pragma once

// Which compiler is reading, and the macros that differ between them. Exactly one of
// TF_PLATFORM_SIM, TF_PLATFORM_HIP, TF_PLATFORM_CUDA and TF_PLATFORM_HOST is defined.

#if defined(TRUEFUSE_SIM)
#define TF_PLATFORM_SIM 1
#elif defined(__HIP__) || defined(__HIPCC__) || defined(__HIPCC_RTC__)
#define TF_PLATFORM_HIP 1
#if !defined(__HIPCC_RTC__)
#include <hip/hip_runtime.h>
#endif
#elif defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define TF_PLATFORM_CUDA 1
#else
#define TF_PLATFORM_HOST 1
#endif

// TF_WAVE: lanes per wave (warp), a literal. The engine may define it from the device; else it is
// what the compiler says, else 64, the size of every GCN, CDNA and Hygon part.
#if !defined(TF_WAVE)
#if defined(TF_PLATFORM_CUDA) || defined(TF_PLATFORM_HOST)
#define TF_WAVE 32
#elif defined(__AMDGCN_WAVEFRONT_SIZE__)
#define TF_WAVE __AMDGCN_WAVEFRONT_SIZE__
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
#define TF_WAVE __AMDGCN_WAVEFRONT_SIZE
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define TF_WAVE 32
#else
#define TF_WAVE 64
#endif
#endif

// TF_KERNEL(max_threads) void name(parameters) { ... } defines a kernel that is launched with at
// most max_threads threads per block. Parameters are scalars, pointers and plain structs.
// TF_KERNEL_RESIDENT(max_threads, blocks): the same, and registers should leave room for so many
// blocks on one multiprocessor at a time. Only CUDA compilers listen: HIP's second launch bound
// means another thing.
// TF_DEVICE marks a function that kernels call.
#if defined(TF_PLATFORM_SIM)
#define TF_KERNEL(max_threads) extern "C" [[truefuse::kernel(max_threads)]]
#define TF_KERNEL_RESIDENT(max_threads, blocks) TF_KERNEL(max_threads)
#define TF_DEVICE inline
#elif defined(TF_PLATFORM_HOST)
#define TF_DEVICE inline
#else
#define TF_KERNEL(max_threads) extern "C" __global__ __launch_bounds__(max_threads)
#if defined(TF_PLATFORM_CUDA)
#define TF_KERNEL_RESIDENT(max_threads, blocks) \
  extern "C" __global__ __launch_bounds__(max_threads, blocks)
#else
#define TF_KERNEL_RESIDENT(max_threads, blocks) TF_KERNEL(max_threads)
#endif
#define TF_DEVICE __device__ __forceinline__
#endif

// In front of a kernel's struct parameter whose arrays are indexed with a variable: NVIDIA's
// compiler else copies the struct into memory of each thread.
#if defined(TF_PLATFORM_CUDA)
#define TF_PARAMETER const __grid_constant__
#else
#define TF_PARAMETER const
#endif

// In front of a loop with a constant trip count.
#if defined(TF_PLATFORM_HIP) || defined(TF_PLATFORM_CUDA)
#define TF_UNROLL _Pragma("unroll")
#else
#define TF_UNROLL
#endif

// Last parameter and last argument of everything that a lane can wait in or be at fault in: the
// simulator reports the kernel's own line. Nothing elsewhere.
#if defined(TF_PLATFORM_SIM)
#define TF_SITE_ONLY ::tf_sim::Site site = ::tf_sim::here()
#define TF_SITE , TF_SITE_ONLY
#define TF_PASS_SITE_ONLY site
#define TF_PASS_SITE , site
#else
#define TF_SITE_ONLY
#define TF_SITE
#define TF_PASS_SITE_ONLY
#define TF_PASS_SITE
#endif
