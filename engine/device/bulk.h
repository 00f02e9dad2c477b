#pragma once

#include "truefuse/device/types.h"

// Copies between global and shared memory by the copy engine of NVIDIA sm_90 and later: one thread
// asks for thousands of bytes, no register holds them, and a barrier in shared memory tells when
// they are there. A kernel that uses them keeps a form without them, and the plan chooses.
//
// Addresses and sizes are multiples of 16 bytes.

#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define TF_HAS_BULK_COPY 1

namespace tf {

namespace detail {
TF_DEVICE u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}
}  // namespace detail

/// In shared memory: what some threads of a block, or the loads that name it, give to others. Its
/// phases complete one after the other, each when all arrivals are there and all announced bytes.
struct PhaseBarrier {
  u64 bits;

  /// By one thread; others use it after a barrier of theirs. A bulk_load is one arrival.
  TF_DEVICE void init(u32 arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(detail::shared_address(this)),
                 "r"(arrivals)
                 : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }

  /// What this thread wrote before can be read by who waits for the phase.
  TF_DEVICE void arrive() {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(detail::shared_address(this))
                 : "memory");
  }

  /// Returns once the phase of that parity (0, 1, 0, ...) is complete.
  TF_DEVICE void wait(u32 parity) {
    u32 done;
    do {
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(detail::shared_address(this)), "r"(parity)
          : "memory");
    } while (done == 0);
  }
};

/// When the L2 cache should give the bytes up: a hint. An update in place of more than it holds
/// loads with kLast and stores with kFirst: what was read stays until it is overwritten, and then
/// leaves.
enum class Eviction { kNormal, kFirst, kLast };

namespace detail {
template <Eviction kEviction>
TF_DEVICE u64 cache_policy() {
  u64 policy;
  if constexpr (kEviction == Eviction::kFirst) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}
}  // namespace detail

/// By one thread: the barrier's phase completes when the bytes have arrived.
template <Eviction kEviction = Eviction::kNormal>
TF_DEVICE void bulk_load(void* shared, const void* global, u32 bytes, PhaseBarrier& barrier) {
  const u32 address = detail::shared_address(&barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
  if constexpr (kEviction == Eviction::kNormal) {  // No hint: one that says so costs time.
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(detail::shared_address(shared)),
        "l"(global), "r"(bytes), "r"(address)
        : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
        "[%0], [%1], %2, [%3], %4;" ::"r"(detail::shared_address(shared)),
        "l"(global), "r"(bytes), "r"(address), "l"(detail::cache_policy<kEviction>())
        : "memory");
  }
}

/// In every thread that wrote to shared memory, before the barrier after which one of them calls
/// bulk_store: makes the writes visible to the copy engine.
TF_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <Eviction kEviction = Eviction::kNormal>
TF_DEVICE void bulk_store(void* global, const void* shared, u32 bytes) {
  if constexpr (kEviction == Eviction::kNormal) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
                 "r"(detail::shared_address(shared)), "r"(bytes)
                 : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
            global),
        "r"(detail::shared_address(shared)), "r"(bytes), "l"(detail::cache_policy<kEviction>())
        : "memory");
  }
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/// Returns once the shared memory of all of this thread's stores has been read: it may be written
/// again, or the block may end.
TF_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

}  // namespace tf
#endif
