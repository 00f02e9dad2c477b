#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <truefuse/operator/operator.h>
#include <truefuse/sim/launch.h>

namespace truefuse::sim {

/// A simulated device, on which an operator runs as its plan says: "sim:wave32" or "sim:wave64",
/// and the sanitizers that its kernels are compiled with.
struct SimDevice {
  std::string arch = "sim:wave64";
  std::vector<std::string> sanitizers = {"address", "undefined"};
  SimOptions options = {};
};

/// What a plan is told: few multiprocessors, so that small inputs make a kernel's loops turn.
DeviceFacts facts_of(const SimDevice& device);

/// The executable of a program, from the cache or compiled; `label` is for people. Throws Error if
/// there is no g++, with the compiler's words if it fails.
std::string executable_of(const jit::Program& program, const std::string& label,
                          const SimDevice& device);

/// The same of one variant of an operator, remembered.
const std::string& executable_of(const Operator& op, const Variant& variant,
                                 const SimDevice& device);

/// One tensor of a call, for whoever reads a trace.
struct TracedLaunch {
  std::string kernel;
  Dim3 grid, block;
  std::vector<SimAccess> accesses;  ///< `buffer` is an index into CallTrace::ranges.
};
struct CallTrace {
  std::vector<HostRange> ranges;
  std::vector<TracedLaunch> launches;
};

/// Runs a checked call whose tensors are in host memory, written ones in place. A kernel sees just
/// the memory between a tensor's first and last element, and may write only outputs and mutated
/// arguments. Throws Error with the fault's sentence if a kernel has one; nothing is written by the
/// launch that had it. `trace` is filled if given.
void run(const Operator& op, const Call& call, const SimDevice& device, CallTrace* trace = nullptr);

}  // namespace truefuse::sim
