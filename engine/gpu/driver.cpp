#include <truefuse/core/error.h>
#include <truefuse/gpu/driver.h>

namespace truefuse::gpu {

Driver& Driver::instance() {
  // A failed search throws and is repeated at the next call: the driver may be mapped later, when
  // PyTorch is imported.
  static const std::unique_ptr<Driver> driver = [] {
    std::unique_ptr<Driver> found;
    if (hip_runtime_is_mapped()) found = open_hip_driver();
    if (!found) found = open_cuda_driver();
    if (!found) found = open_hip_driver();
    if (!found) {
      throw Error(
          "no GPU driver was found: libcuda.so.1 (CUDA), libamdhip64.so (ROCm) and libgalaxyhip.so "
          "(Hygon DTK) are neither loaded in this process nor on the loader's path. "
          "`truefuse doctor` shows where it looked");
    }
    return found;
  }();
  return *driver;
}

}  // namespace truefuse::gpu
