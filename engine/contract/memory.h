#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include <truefuse/core/tensor.h>

namespace truefuse {

/// Whether no two elements are known to share an address. Sufficient, not necessary: ordered by
/// stride, each dimension steps over everything inside it. Slices, transposes and non-overlapping
/// windows of a dense tensor all pass.
bool elements_are_distinct(const TensorView& tensor);

/// Whether two tensors have no byte in common. True if their byte ranges are apart, or if some
/// stride repeats both of them in disjoint slots: columns of one matrix, pages of one pool. False
/// where neither shows it.
bool are_apart(const TensorView& a, const TensorView& b);

/// Whether two tensors are the same view of the same memory.
bool are_same_memory(const TensorView& a, const TensorView& b);

}  // namespace truefuse
