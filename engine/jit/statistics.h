#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace truefuse::jit {

/// What can happen to a kernel before its first launch. One that is loaded is found again without
/// coming past here: that costs nothing and is not counted.
enum class Event {
  compiled,  ///< Cold: by a compiler.
  disk,      ///< Read from the cache; waiting for a process that was compiling it included.
  bundle,    ///< Taken from the bundle.
  failed,    ///< The compiler ended with an error.
  loaded,    ///< Handed to the driver.
};
inline constexpr std::array<std::string_view, 5> kEventNames{"compiled", "disk", "bundle", "failed",
                                                             "loaded"};

struct Tally {
  std::uint64_t count = 0;
  double seconds = 0;       ///< Of all together.
  double most_seconds = 0;  ///< Of the dearest.
};

/// Counts the event for this process. From any thread.
void record(Event event, double seconds);

/// What this process has counted, in the order of Event.
std::array<Tally, kEventNames.size()> statistics();

}  // namespace truefuse::jit
