#include <atomic>

#include <ATen/Parallel.h>

#include <truefuse/operators/common_cpu/parallel.h>

namespace truefuse::cpu {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body) {
  at::parallel_for(0, count, grain, body);
}

int parallel_threads() {
  std::atomic<int> parts = 0;
  parallel_for(std::int64_t{1} << 20, 1, [&](std::int64_t, std::int64_t) { ++parts; });
  return parts;
}

}  // namespace truefuse::cpu
