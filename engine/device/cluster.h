#pragma once

#include "truefuse/device/types.h"

// Clusters: blocks of one launch that run at the same time, wait for each other and write into each
// other's shared memory. NVIDIA sm_90 and later; a kernel that uses them keeps a form without them,
// and the plan chooses.
//
//   TF_KERNEL(256) TF_CLUSTER(4) void name(parameters) { ... }   // the grid: a multiple of 4
//
// A block may touch another's shared memory only while that one is known to run: between the first
// cluster_wait() of the kernel and the last.

#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TF_HAS_CLUSTERS 1
#define TF_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)

namespace tf {

/// Of this block in its cluster.
TF_DEVICE u32 cluster_rank() {
  u32 rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/// The two halves of a barrier over the cluster: what any thread wrote before it arrived can be
/// read after the wait. Every thread of every block takes part in both, in turn.
TF_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
TF_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Writes to the place of `shared`, an address in this block's shared memory, in block `rank`.
TF_DEVICE void store_to_block(float* shared, u32 rank, float value) {
  u32 remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;"
      : "=r"(remote)
      : "r"(static_cast<u32>(__cvta_generic_to_shared(shared))), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(value) : "memory");
}

}  // namespace tf
#endif
