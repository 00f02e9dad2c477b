#pragma once

#include "truefuse/device/types.h"

// A launch that starts early (Launch::starts_early in the plan): while the kernel before it in the
// stream is still ending, so that the time of a launch is hidden behind it. NVIDIA calls it
// programmatic dependent launch, from sm_90 on; elsewhere launches follow each other as ever.

namespace tf {

/// Returns when every launch before this one in the stream has ended and what they wrote can be
/// read. In a kernel that starts early each thread calls it before it reads or writes anything in
/// memory but parameters; in any other kernel it does nothing.
TF_DEVICE void wait_for_earlier_launches() {
#if defined(TF_PLATFORM_SIM)
  ::tf_sim::wait_for_earlier_launches();
#elif defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// The same, where a kernel leaves most of the device free for a short time: a later launch that
/// starts early may start now, and has its preparations behind it when this one ends, for which it
/// waits all the same.
TF_DEVICE void wait_while_later_launches_start() {
#if defined(TF_PLATFORM_CUDA) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  wait_for_earlier_launches();
}

}  // namespace tf
