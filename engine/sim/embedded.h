#pragma once

#include <truefuse/jit/source.h>

namespace truefuse {

/// The device headers, as kernels include them: "truefuse/device.h", "truefuse/device/...".
const jit::Files& device_files();

/// The simulator's side of a simulated kernel: "truefuse/sim/...".
const jit::Files& sim_runtime_files();

}  // namespace truefuse
