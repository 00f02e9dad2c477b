#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
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

/// Runs a plan's launches in order, each in the executable that `executable_of` names for it, until
/// one has a fault. Scratch memory is provided, and filled with NaN before the first launch.
/// `on_outcome` sees each launch's own outcome.
SimOutcome run(const std::function<std::string(const Launch&)>& executable_of, Plan plan,
               std::span<const HostRange> ranges, const SimOptions& options = {},
               const std::function<void(const Launch&, SimOutcome&)>& on_outcome = {});

}  // namespace truefuse::sim
