#pragma once

#include <cstddef>
#include <cstdint>

// Included by files that are compiled once per instruction set: nothing with code comes in here.
namespace truefuse::common {
class Space;
}

namespace truefuse::cpu {

/// What an elementwise kernel does with one run of elements: operand k's i-th lies at data[k] + i *
/// strides[k] (elements of one type), outputs first. Any alignment; no output overlaps an input.
using ElementwiseKernel = void (*)(std::byte* const* data, const std::int64_t* strides,
                                   std::int64_t count);

/// The same kernel for each element type.
struct ElementwiseKernels {
  ElementwiseKernel f64, f32, f16, bf16;
};

/// Runs the kernel of the space's element type over the whole space, on PyTorch's threads.
void run_elementwise(const common::Space& space, const ElementwiseKernels& kernels);

}  // namespace truefuse::cpu
