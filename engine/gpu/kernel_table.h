#pragma once

#include <functional>
#include <string>

#include <truefuse/gpu/driver.h>
#include <truefuse/jit/build.h>
#include <truefuse/operator/operator.h>

namespace truefuse::gpu {

/// Loaded kernels of this process, by operator, kernel, variant and device. A warm look-up takes no
/// lock and well under a microsecond; a miss compiles (or reads the disk cache), loads and is
/// remembered. Kernels are never unloaded.
const Function& function_for(const Operator& op, const Launch& launch, int device);

/// Facts of a device, asked once.
const DeviceFacts& facts_of(int device);

/// Gives device memory of so many bytes, aligned to 256 of them, that stays until what is on the
/// call's stream now has run. Called at most once per call.
using ScratchAllocator = std::function<void*(std::size_t bytes)>;

/// Plans the call and launches it on `stream` of `device`. Throws Error naming operator, kernel and
/// geometry if the driver refuses.
void run(const Operator& op, const Call& call, int device, void* stream,
         const ScratchAllocator& allocate);

/// Compiles and loads every variant of `op` for `device`, so that no later call compiles; several
/// at a time, as processors allow. Throws the Error of one that failed; what is compiled by then is
/// kept.
void prepare(const Operator& op, int device);

struct WarmLookup {
  std::size_t kernels = 0;  ///< That this process has loaded.
  double seconds = 0;       ///< To find one of them as a call does; 0 if there is none.
};
/// Measured now, over ten thousand look-ups of all loaded kernels in turn.
WarmLookup warm_lookup();

}  // namespace truefuse::gpu
