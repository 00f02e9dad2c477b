#pragma once

#include <cstdint>
#include <functional>

namespace truefuse::cpu {

/// Calls body(begin, end) on parts that together are [0, count), on PyTorch's threads; parts hold
/// at least `grain` elements where there are several. Nothing is called for a count of 0. An
/// exception of the body reaches the caller.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

/// How many threads take part in a parallel_for of plenty of work, found by running one. It is 1 if
/// this library was built without OpenMP, whatever torch.get_num_threads() says.
int parallel_threads();

}  // namespace truefuse::cpu
