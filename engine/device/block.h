#pragma once

#include "truefuse/device/types.h"

// Shared memory (LDS) and the block's barrier.

// TF_SHARED(T, name, count) declares an array of `count` T in shared memory, not initialised; count
// is a constant, T and its name hold no comma. TF_SHARED_DYNAMIC(T, name) declares `T* name`, the
// start of the memory whose size the launch states, aligned to 16 bytes; once per kernel.
#if defined(TF_PLATFORM_SIM)
#define TF_SHARED(T, name, count)                              \
  T(&name)                                                     \
  [count] = *static_cast<T(*)[count]>(::tf_sim::static_shared( \
      [] {                                                     \
        static const char identity = 0;                        \
        return &identity;                                      \
      }(),                                                     \
      sizeof(T) * (count)))
#define TF_SHARED_DYNAMIC(T, name) T* const name = static_cast<T*>(::tf_sim::dynamic_shared())
#else
#define TF_SHARED(T, name, count) __shared__ T name[count]
#define TF_SHARED_DYNAMIC(T, name)                                                  \
  extern __shared__ __attribute__((aligned(16))) unsigned char tf_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(tf_dynamic_shared)
#endif

namespace tf {

/// Waits for all threads of the block; what they wrote before it can be read after it. Every thread
/// of the block must arrive, at the same place in the source.
TF_DEVICE void block_sync(TF_SITE_ONLY) {
#if defined(TF_PLATFORM_SIM)
  ::tf_sim::block_barrier(site);
#else
  __syncthreads();
#endif
}

}  // namespace tf
