#include <array>
#include <cstring>
#include <unistd.h>
#include <vector>

#include <truefuse/core/error.h>
#include <truefuse/gpu/driver.h>
#include <truefuse/gpu/library.h>
#include <truefuse/jit/arch.h>

namespace truefuse::gpu {
namespace {

// The part of the HIP runtime in use; AMD's libamdhip64 and DTK's libgalaxyhip both export it. No
// HIP header is needed to build, so one binary serves every ROCm and DTK.
using hipError_t = int;
using hipModule_t = struct ihipModule_t*;
using hipFunction_t = struct ihipModuleSymbol_t*;
using hipStream_t = struct ihipStream_t*;

constexpr int kFunctionMaxThreadsPerBlock = 0;
constexpr int kCaptureModeRelaxed = 2;

struct Api {
  hipError_t (*hipInit)(unsigned);
  hipError_t (*hipDriverGetVersion)(int*);
  hipError_t (*hipGetDeviceCount)(int*);
  hipError_t (*hipGetDevice)(int*);
  hipError_t (*hipSetDevice)(int);
  hipError_t (*hipGetDeviceProperties)(void*, int);
  hipError_t (*hipModuleLoadData)(hipModule_t*, const void*);
  hipError_t (*hipModuleGetFunction)(hipFunction_t*, hipModule_t, const char*);
  hipError_t (*hipModuleLaunchKernel)(hipFunction_t, unsigned, unsigned, unsigned, unsigned,
                                      unsigned, unsigned, unsigned, hipStream_t, void**, void**);
  const char* (*hipGetErrorName)(hipError_t);
  const char* (*hipGetErrorString)(hipError_t);
  // Absent before ROCm 5 and possibly in a DTK.
  hipError_t (*hipFuncGetAttribute)(int*, int, hipFunction_t);
  hipError_t (*hipThreadExchangeStreamCaptureMode)(int*);
};

/// Where the wanted fields of hipDeviceProp_t lie. HIP 6 changed the structure and exports the new
/// one under another name; the old name keeps the old structure.
struct PropertyLayout {
  const char* symbol;
  std::size_t shared_bytes, wave, multiprocessors, arch;
};
constexpr PropertyLayout kPropertiesR0600{"hipGetDevicePropertiesR0600", 296, 308, 388, 1160};
constexpr PropertyLayout kPropertiesR0000{"hipGetDeviceProperties", 264, 276, 336, 396};

class HipDriver final : public Driver {
 public:
  explicit HipDriver(const Library& library) : path_(library.path()) {
    bind(library, "hipInit", api_.hipInit);
    bind(library, "hipDriverGetVersion", api_.hipDriverGetVersion);
    bind(library, "hipGetDeviceCount", api_.hipGetDeviceCount);
    bind(library, "hipGetDevice", api_.hipGetDevice);
    bind(library, "hipSetDevice", api_.hipSetDevice);
    bind(library, "hipModuleLoadData", api_.hipModuleLoadData);
    bind(library, "hipModuleGetFunction", api_.hipModuleGetFunction);
    bind(library, "hipModuleLaunchKernel", api_.hipModuleLaunchKernel);
    bind(library, "hipGetErrorName", api_.hipGetErrorName);
    bind(library, "hipGetErrorString", api_.hipGetErrorString);
    layout_ =
        library.find(kPropertiesR0600.symbol) != nullptr ? kPropertiesR0600 : kPropertiesR0000;
    bind(library, layout_.symbol, api_.hipGetDeviceProperties);
    find(library, "hipFuncGetAttribute", api_.hipFuncGetAttribute);
    find(library, "hipThreadExchangeStreamCaptureMode", api_.hipThreadExchangeStreamCaptureMode);
    check(api_.hipInit(0), "hipInit");
  }

  std::string_view name() const override { return "HIP"; }
  std::string library() const override { return path_; }

  int version() override {
    int value = 0;
    check(api_.hipDriverGetVersion(&value), "hipDriverGetVersion");
    return value;
  }

  int device_count() override {
    int count = 0;
    check(api_.hipGetDeviceCount(&count), "hipGetDeviceCount");
    return count;
  }

  std::string device_name(int device) override { return text_at(properties(device), 0, 256); }

  DeviceFacts facts(int device) override {
    const std::vector<char> bytes = properties(device);
    DeviceFacts facts;
    facts.arch = text_at(bytes, layout_.arch, 256);
    if (facts.arch.rfind("gfx", 0) != 0) {
      throw Error("the device properties of " + path_ +
                  " are laid out in a way that truefuse does not know: no architecture string "
                  "(gfx...) was found for device " +
                  std::to_string(device));
    }
    facts.wave = jit::parse_arch(facts.arch).wave;
    facts.max_grid_threads_x = (std::int64_t{1} << 32) - 1;
    // A second witness for the layout: without it the remaining fields are not believed.
    if (integer_at(bytes, layout_.wave) == facts.wave) {
      facts.multiprocessors = integer_at(bytes, layout_.multiprocessors);
      std::size_t shared = 0;
      std::memcpy(&shared, bytes.data() + layout_.shared_bytes, sizeof shared);
      facts.max_shared_bytes = facts.max_shared_bytes_opt_in = static_cast<int>(shared);
    }
    return facts;
  }

  Function load(int device, const std::string& code, const char* kernel) override {
    const DeviceGuard guard(*this, device);
    const CaptureModeGuard relaxed(*this);
    hipModule_t module = nullptr;
    check(api_.hipModuleLoadData(&module, code.data()), "hipModuleLoadData");
    hipFunction_t function = nullptr;
    check(api_.hipModuleGetFunction(&function, module, kernel), "hipModuleGetFunction");
    Function result;
    result.handle = function;
    if (api_.hipFuncGetAttribute != nullptr &&
        api_.hipFuncGetAttribute(&result.max_threads, kFunctionMaxThreadsPerBlock, function) != 0) {
      result.max_threads = 0;
    }
    return result;
  }

  void launch(int device, const Function& function, const Launch& launch, void* stream,
              void** parameters) override {
    const DeviceGuard guard(*this, device);
    check(api_.hipModuleLaunchKernel(static_cast<hipFunction_t>(function.handle), launch.grid.x,
                                     launch.grid.y, launch.grid.z, launch.block.x, launch.block.y,
                                     launch.block.z, launch.shared_bytes,
                                     static_cast<hipStream_t>(stream), parameters, nullptr),
          "hipModuleLaunchKernel");
  }

 private:
  template <class Pointer>
  static void bind(const Library& library, const char* symbol, Pointer& pointer) {
    pointer = reinterpret_cast<Pointer>(library.require(symbol));
  }
  template <class Pointer>
  static void find(const Library& library, const char* symbol, Pointer& pointer) {
    pointer = reinterpret_cast<Pointer>(library.find(symbol));
  }

  void check(hipError_t result, const char* what) const {
    if (result == 0) return;
    const char* name = api_.hipGetErrorName(result);
    const char* text = api_.hipGetErrorString(result);
    throw Error(std::string(what) + " failed: " + (name != nullptr ? name : "HIP error") + " (" +
                std::to_string(result) + (text != nullptr ? std::string(", ") + text : "") + ")" +
                words_if_forked(opened_in_));
  }

  std::vector<char> properties(int device) {
    // Larger than any known hipDeviceProp_t (792 and about 1472 bytes).
    std::vector<char> bytes(8192, '\0');
    check(api_.hipGetDeviceProperties(bytes.data(), device), layout_.symbol);
    return bytes;
  }

  static std::string text_at(const std::vector<char>& bytes, std::size_t offset, std::size_t size) {
    return {bytes.data() + offset, strnlen(bytes.data() + offset, size)};
  }

  static int integer_at(const std::vector<char>& bytes, std::size_t offset) {
    int value = 0;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
  }

  class DeviceGuard {
   public:
    DeviceGuard(HipDriver& driver, int device) : driver_(driver) {
      driver.check(driver.api_.hipGetDevice(&previous_), "hipGetDevice");
      if (previous_ == device) return;
      driver.check(driver.api_.hipSetDevice(device), "hipSetDevice");
      changed_ = true;
    }
    ~DeviceGuard() {
      if (changed_) driver_.api_.hipSetDevice(previous_);
    }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

   private:
    HipDriver& driver_;
    int previous_ = 0;
    bool changed_ = false;
  };

  /// As for CUDA: loading code is harmless during a capture, but the default mode forbids it.
  class CaptureModeGuard {
   public:
    explicit CaptureModeGuard(HipDriver& driver)
        : exchange_(driver.api_.hipThreadExchangeStreamCaptureMode) {
      if (exchange_ != nullptr && exchange_(&mode_) != 0) exchange_ = nullptr;
    }
    ~CaptureModeGuard() {
      if (exchange_ != nullptr) exchange_(&mode_);
    }
    CaptureModeGuard(const CaptureModeGuard&) = delete;
    CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

   private:
    hipError_t (*exchange_)(int*);
    int mode_ = kCaptureModeRelaxed;
  };

  std::string path_;
  std::int64_t opened_in_ = ::getpid();
  Api api_{};
  PropertyLayout layout_ = kPropertiesR0000;
};

}  // namespace

bool hip_runtime_is_mapped() {
  return Library::mapped({"libgalaxyhip.so", "libamdhip64.so"}).has_value();
}

std::unique_ptr<Driver> open_hip_driver() {
  // DTK ships both names; its own one is the runtime that its PyTorch uses.
  const std::optional<Library> library =
      Library::open({"libgalaxyhip.so", "libamdhip64.so", "libgalaxyhip.so.5", "libamdhip64.so.7",
                     "libamdhip64.so.6", "libamdhip64.so.5"});
  if (!library) return nullptr;
  return std::make_unique<HipDriver>(*library);
}

}  // namespace truefuse::gpu
