// Into how many pieces row_sum cuts a row. One block for each row leaves a device idle where rows
// are few, and pieces cost a second launch and memory in between; which is the least depends on the
// last, perhaps almost empty round of blocks, so the candidates are tried in turn.

#include "truefuse/host/plan.h"

#include <algorithm>
#include <cstdint>

namespace {

constexpr std::int64_t kThreads = 256;
constexpr std::int64_t kPiece = 2048;      // Elements that a block should have to itself at least.
constexpr std::int64_t kBlock = 1024;      // What a block costs before it reads, in elements.
constexpr std::int64_t kLaunch = 8192;     // And the second launch.
constexpr std::int64_t kBlocksAtOnce = 8;  // Of these on a multiprocessor.
constexpr std::int64_t kMostSplits = 64;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// A whole number of loads of all threads, whatever the width of a load is; one at least.
std::int64_t chunk_of(std::int64_t hidden, std::int64_t splits) {
  const std::int64_t whole = kThreads * 8;
  return std::max<std::int64_t>(ceil_div(ceil_div(hidden, splits), whole), 1) * whole;
}

void plan(const truefuse::host::Call& call, truefuse::host::Values& values) {
  const std::int64_t rows = call.number("rows");
  const std::int64_t hidden = call.number("hidden");
  const std::int64_t at_once = kBlocksAtOnce * std::max(call.device().multiprocessors, 1);
  std::int64_t best = 1, least = 0;
  const std::int64_t most = std::clamp<std::int64_t>(hidden / kPiece, 1, kMostSplits);
  for (std::int64_t splits = 1; splits <= most; ++splits) {
    const std::int64_t rounds = ceil_div(rows * splits, at_once);
    const std::int64_t cost =
        rounds * (chunk_of(hidden, splits) + kBlock) + (splits > 1 ? kLaunch : 0);
    if (splits == 1 || cost < least) {
      best = splits;
      least = cost;
    }
  }
  values["chunk"] = chunk_of(hidden, best);
  // Chunks are rounded up, so fewer may hold the row.
  values["splits"] = std::max<std::int64_t>(ceil_div(hidden, values["chunk"]), 1);
}

}  // namespace

TRUEFUSE_PLAN(plan)
