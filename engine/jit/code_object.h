#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <truefuse/jit/arch.h>
#include <truefuse/jit/compiler.h>

namespace truefuse::jit {

/// What each kernel of a cubin or an AMD code object needs, in the order of the object; empty if it
/// is neither. Spilled bytes on NVIDIA are not in the object: they are read from the report of
/// `ptxas -v` if `log` holds one.
std::vector<Resources> resources_of(std::string_view code, std::string_view log = {});

/// The architecture that an object was compiled for, as it says itself: "sm_90a",
/// "gfx90a:sramecc+:xnack-"; empty if it does not.
std::string target_of(std::string_view code);

/// How many waves (warps) of a kernel are resident at once.
struct Occupancy {
  double value = -1;  ///< -1: not known for this architecture or this kernel.
  double maximum = -1;
  std::string unit;  ///< "waves per SIMD" or "warps per SM".
  std::string
      limited_by;  ///< "registers", "shared memory", "block size", "nothing"; or why unknown.
};

/// An estimate from published limits, with the largest carve-out of shared memory on NVIDIA.
/// `dynamic_shared` in bytes. A `block_threads` that cannot be launched gives 0.
Occupancy occupancy(const Resources& resources, const Arch& arch, int block_threads,
                    int dynamic_shared);

}  // namespace truefuse::jit
