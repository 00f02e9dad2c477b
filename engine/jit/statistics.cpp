#include <algorithm>
#include <mutex>

#include <truefuse/jit/statistics.h>

namespace truefuse::jit {
namespace {

std::mutex mutex;
std::array<Tally, kEventNames.size()> tallies;

}  // namespace

void record(Event event, double seconds) {
  const std::scoped_lock lock(mutex);
  Tally& tally = tallies[static_cast<std::size_t>(event)];
  ++tally.count;
  tally.seconds += seconds;
  tally.most_seconds = std::max(tally.most_seconds, seconds);
}

std::array<Tally, kEventNames.size()> statistics() {
  const std::scoped_lock lock(mutex);
  return tallies;
}

}  // namespace truefuse::jit
