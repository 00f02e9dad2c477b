#pragma once

#include "truefuse/device/index.h"
#include "truefuse/device/subgroup.h"

// Votes in a subgroup, and the wave's own barrier. The rules of subgroup.h hold; lanes that have
// returned do not vote.

namespace tf {

/// Bit i is set if `vote` holds in lane i of the own subgroup; a lane reads only the low W bits.
template <int W>
TF_DEVICE u64 ballot(bool vote TF_SITE) {
  static_assert(W > 0 && (W & (W - 1)) == 0 && (W <= 32 || W == TF_WAVE),
                "the width of a subgroup is a power of two up to 32, or TF_WAVE");
#if defined(TF_PLATFORM_SIM)
  return detail::exchange<detail::Exchange::ballot, W>(static_cast<u64>(vote), 0, site);
#else
#if defined(TF_PLATFORM_CUDA)
  const u64 votes = __ballot_sync(~0u, vote);
#else
  // LLVM's comparison 33, "not equal", over the wave; builtins named ballot came only later.
  const u64 votes = __builtin_amdgcn_uicmp(static_cast<u32>(vote), 0u, 33);
#endif
  if constexpr (W == TF_WAVE) return votes;
  constexpr u64 kGroup = (u64{1} << (W % 64)) - 1;
  return votes >> (lane() & ~static_cast<u32>(W - 1)) & kGroup;
#endif
}

/// Whether `vote` holds in any lane of the subgroup.
template <int W>
TF_DEVICE bool any(bool vote TF_SITE) {
  return ballot<W>(vote TF_PASS_SITE) != 0;
}

/// Whether it holds in all of them.
template <int W>
TF_DEVICE bool all(bool vote TF_SITE) {
  return ballot<W>(!vote TF_PASS_SITE) == 0;
}

/// Waits for the lanes of the wave; what they wrote before it can be read by them after it. Nothing
/// else orders memory within a wave: neither exchanges nor votes do.
TF_DEVICE void wave_sync(TF_SITE_ONLY) {
#if defined(TF_PLATFORM_SIM)
  detail::exchange<detail::Exchange::sync, TF_WAVE>(u64{0}, 0, site);
#elif defined(TF_PLATFORM_CUDA)
  __syncwarp();
#else
  __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
  __builtin_amdgcn_wave_barrier();
#endif
}

}  // namespace tf
