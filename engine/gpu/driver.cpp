#include <array>
#include <string>
#include <unistd.h>
#include <utility>

#include <truefuse/core/error.h>
#include <truefuse/gpu/driver.h>
#include <truefuse/gpu/library.h>

namespace truefuse::gpu {
namespace {

/// PyTorch's own GPU library decides, where one is mapped. A HIP runtime alone says little: hipRTC
/// may have brought it into the process of an NVIDIA machine.
bool hip_comes_first() {
  if (Library::mapped({"libtorch_cuda.so"})) return false;
  return Library::mapped({"libtorch_hip.so"}) || hip_runtime_is_mapped();
}

std::unique_ptr<Driver> find_driver() {
  using Open = std::unique_ptr<Driver> (*)();
  std::array<Open, 2> candidates = {open_cuda_driver, open_hip_driver};
  if (hip_comes_first()) std::swap(candidates[0], candidates[1]);
  std::string failures;
  for (const Open open : candidates) {
    try {
      if (std::unique_ptr<Driver> driver = open()) return driver;
    } catch (const Error& error) {
      failures += std::string(failures.empty() ? "" : "; ") + error.what();
    }
  }
  if (!failures.empty()) {
    throw Error("a GPU driver was found but no device can be used: " + failures +
                ". `truefuse doctor --device` tests what is there");
  }
  throw Error(
      "no GPU driver was found: libcuda.so.1 (CUDA), libamdhip64.so (ROCm) and libgalaxyhip.so "
      "(Hygon DTK) are neither loaded in this process nor on the loader's path. `truefuse doctor` "
      "shows where it looked");
}

}  // namespace

std::string words_if_forked(std::int64_t opened_in) {
  if (opened_in == ::getpid()) return {};
  return ". This process was forked from one that already used the GPU, which drivers do not "
         "support: start it by another method (multiprocessing.get_context(\"spawn\"))";
}

Driver& Driver::instance() {
  // A failed search throws and is repeated at the next call: the driver may be mapped later, when
  // PyTorch is imported.
  static const std::unique_ptr<Driver> driver = find_driver();
  return *driver;
}

}  // namespace truefuse::gpu
