#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <truefuse/core/error.h>
#include <truefuse/sim/launch.h>

namespace truefuse::sim {
namespace {

std::uintptr_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void add_pointer(SimParameters& parameters, const void* pointer,
                 std::span<const HostRange> ranges) {
  if (pointer == nullptr) {
    parameters.add_null();
    return;
  }
  // The end of one range may be the beginning of the next, which is meant then.
  for (const std::size_t past_the_end : {0, 1}) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const std::uintptr_t begin = address(ranges[i].begin);
      if (address(pointer) < begin || address(pointer) - begin >= ranges[i].bytes + past_the_end) {
        continue;
      }
      parameters.add_pointer(static_cast<std::uint32_t>(i), address(pointer) - begin);
      return;
    }
  }
  throw Error("a kernel parameter points into none of the " + std::to_string(ranges.size()) +
              " memory ranges of the simulated launch");
}

}  // namespace

SimOutcome run(const std::string& executable, const Launch& launch,
               std::span<const HostRange> ranges, const SimOptions& options) {
  SimLaunch simulated;
  simulated.kernel = launch.kernel;
  simulated.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
  simulated.block = {launch.block.x, launch.block.y, launch.block.z};
  simulated.shared_bytes = launch.shared_bytes;
  simulated.starts_early = launch.starts_early;
  for (std::size_t i = 0; i < launch.parameters.size(); ++i) {
    const KernelParameters::Slot& slot = launch.parameters.slot(i);
    if (slot.is_pointer) {
      const void* pointer = nullptr;
      std::memcpy(&pointer, launch.parameters.data(i), sizeof pointer);
      add_pointer(simulated.parameters, pointer, ranges);
    } else {
      simulated.parameters.add_bytes(launch.parameters.data(i), slot.size);
    }
  }
  std::vector<SimBuffer> buffers;
  for (const HostRange& range : ranges) {
    SimBuffer buffer;
    const auto* bytes = static_cast<const std::byte*>(range.begin);
    buffer.bytes.assign(bytes, bytes + range.bytes);
    buffer.misalignment = static_cast<std::uint32_t>(address(range.begin) % 256);
    buffer.is_writable = range.is_writable;
    buffers.push_back(std::move(buffer));
  }
  SimOutcome outcome = run(executable, simulated, std::move(buffers), options);
  if (outcome.fault) return outcome;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (ranges[i].is_writable && ranges[i].bytes > 0) {
      std::memcpy(ranges[i].begin, outcome.buffers[i].bytes.data(), ranges[i].bytes);
    }
  }
  return outcome;
}

SimOutcome run(const std::function<std::string(const Launch&)>& executable_of, Plan plan,
               std::span<const HostRange> ranges, const SimOptions& options,
               const std::function<void(const Launch&, SimOutcome&)>& on_outcome) {
  const std::size_t bytes = (plan.scratch_bytes + 255) / 256 * 256;
  const std::unique_ptr<void, void (*)(void*)> scratch(
      bytes > 0 ? std::aligned_alloc(256, bytes) : nullptr, &std::free);
  std::vector<HostRange> all(ranges.begin(), ranges.end());
  if (bytes > 0) {
    std::memset(scratch.get(), 0xff, bytes);
    all.push_back({scratch.get(), plan.scratch_bytes, true});
  }
  plan.bind_scratch(scratch.get());
  SimOutcome outcome;
  for (const Launch& launch : plan.view()) {
    outcome = run(executable_of(launch), launch, all, options);
    if (outcome.fault) break;
    if (on_outcome) on_outcome(launch, outcome);
  }
  return outcome;
}

}  // namespace truefuse::sim
