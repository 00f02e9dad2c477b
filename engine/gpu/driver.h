#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <truefuse/operator/operator.h>

namespace truefuse::gpu {

/// A kernel that is loaded on one device and can be launched there.
struct Function {
  void* handle = nullptr;  ///< CUfunction or hipFunction_t; lives as long as the process.
  int max_threads = 0;     ///< Launch bound the compiler assumed; 0 where the driver does not say.
  int static_shared = 0;   ///< Bytes of shared memory beside a launch's, where it matters.
};

/// The CUDA or HIP driver of this process. It is found at run time and never linked: the library
/// works on machines without a GPU, and on a DCU whose runtime is not AMD's. All members throw
/// Error with the driver's own name and text for what went wrong, and leave the calling thread's
/// current device as they found it.
class Driver {
 public:
  virtual ~Driver() = default;

  virtual std::string_view name() const = 0;  ///< "CUDA" or "HIP".
  virtual std::string library() const = 0;    ///< Path of the library in use.
  virtual int version() = 0;                  ///< As the driver reports it: 13000 for CUDA 13.0.
  virtual int device_count() = 0;
  virtual std::string device_name(int device) = 0;

  /// The architecture string is whole, as the device reports it.
  virtual DeviceFacts facts(int device) = 0;

  /// Loads `code` (a cubin or an AMD code object) on `device` and finds `kernel` in it. Allowed
  /// while a stream of this thread is being captured.
  virtual Function load(int device, const std::string& code, const char* kernel) = 0;

  /// Asynchronous: an error of an earlier launch may be reported here. `parameters` points to one
  /// pointer per kernel parameter.
  virtual void launch(int device, const Function& function, const Launch& launch, void* stream,
                      void** parameters) = 0;

  /// The driver for this process: that of the PyTorch which is loaded, else HIP if its runtime is
  /// mapped, else CUDA, else HIP from the loader's path; one that fails yields to the other. Throws
  /// Error saying what was looked for.
  static Driver& instance();
};

/// What to add to a driver's error in a process that was forked from `opened_in`, where the driver
/// was opened; empty in that process itself.
std::string words_if_forked(std::int64_t opened_in);

/// Null where the library is not there; throws Error if it is there and cannot be used.
std::unique_ptr<Driver> open_cuda_driver();
std::unique_ptr<Driver> open_hip_driver();

/// Whether this process has a HIP runtime mapped (AMD's libamdhip64 or DTK's libgalaxyhip).
bool hip_runtime_is_mapped();

}  // namespace truefuse::gpu
