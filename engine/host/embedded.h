#pragma once

#include <truefuse/jit/source.h>

namespace truefuse {

/// What the C++ file of a description may include: "truefuse/host/plan.h".
const jit::Files& host_files();

}  // namespace truefuse
