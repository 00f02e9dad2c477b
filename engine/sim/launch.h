#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <truefuse/operator/operator.h>
#include <truefuse/sim/simulator.h>

namespace truefuse::sim {

/// Memory of this process that a planned launch points into.
struct HostRange {
  void* begin = nullptr;
  std::size_t bytes = 0;
  bool is_writable = false;
};

/// Runs a planned launch in `executable` on copies of `ranges`, whose alignment the copies keep,
/// and on success copies the writable ones back. Throws Error for a pointer that lies in none of
/// them.
SimOutcome run(const std::string& executable, const Launch& launch,
               std::span<const HostRange> ranges, const SimOptions& options = {});

}  // namespace truefuse::sim
