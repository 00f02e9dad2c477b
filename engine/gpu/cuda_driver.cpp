#include <array>
#include <dlfcn.h>
#include <mutex>
#include <unistd.h>
#include <unordered_map>

#include <truefuse/core/error.h>
#include <truefuse/gpu/driver.h>
#include <truefuse/gpu/library.h>

namespace truefuse::gpu {
namespace {

// The part of the CUDA driver API in use. Types and values are those of cuda.h, which is not needed
// to build.
using CUresult = int;
using CUdevice = int;
using CUcontext = struct CUctx_st*;
using CUmodule = struct CUmod_st*;
using CUfunction = struct CUfunc_st*;
using CUstream = struct CUstream_st*;

constexpr int kMultiprocessorCount = 16;
constexpr int kWarpSize = 10;
constexpr int kMaxSharedMemoryPerBlock = 8;
constexpr int kMaxSharedMemoryPerBlockOptIn = 97;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kFunctionMaxThreadsPerBlock = 0;
constexpr int kFunctionStaticSharedBytes = 1;
constexpr int kFunctionMaxDynamicSharedBytes = 8;
constexpr int kCaptureModeRelaxed = 2;
constexpr unsigned kProgrammaticStreamSerialization = 6;

// Launches that start early may be captured into graphs from CUDA 12.3 on, and devices of compute
// capability 9 can make them.
constexpr int kVersionForEarlyStart = 12030;
constexpr int kMajorForEarlyStart = 9;

struct LaunchAttribute {
  unsigned id;
  unsigned padding;
  union {
    std::int32_t number;
    std::array<char, 64> bytes;
  };
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  CUstream stream;
  LaunchAttribute* attributes;
  unsigned attribute_count;
};

struct Api {
  CUresult (*cuInit)(unsigned);
  CUresult (*cuDriverGetVersion)(int*);
  CUresult (*cuDeviceGetCount)(int*);
  CUresult (*cuDeviceGet)(CUdevice*, int);
  CUresult (*cuDeviceGetName)(char*, int, CUdevice);
  CUresult (*cuDeviceGetAttribute)(int*, int, CUdevice);
  CUresult (*cuDevicePrimaryCtxRetain)(CUcontext*, CUdevice);
  CUresult (*cuCtxGetCurrent)(CUcontext*);
  CUresult (*cuCtxPushCurrent_v2)(CUcontext);
  CUresult (*cuCtxPopCurrent_v2)(CUcontext*);
  CUresult (*cuModuleLoadData)(CUmodule*, const void*);
  CUresult (*cuModuleGetFunction)(CUfunction*, CUmodule, const char*);
  CUresult (*cuFuncGetAttribute)(int*, int, CUfunction);
  CUresult (*cuFuncSetAttribute)(CUfunction, int, int);
  CUresult (*cuLaunchKernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, CUstream, void**, void**);
  CUresult (*cuLaunchKernelEx)(const LaunchConfig*, CUfunction, void**, void**);  // Or null.
  CUresult (*cuThreadExchangeStreamCaptureMode)(int*);
  CUresult (*cuGetErrorName)(CUresult, const char**);
  CUresult (*cuGetErrorString)(CUresult, const char**);
};

class CudaDriver final : public Driver {
 public:
  explicit CudaDriver(const Library& library) : path_(library.path()) {
    bind(library, "cuInit", api_.cuInit);
    bind(library, "cuDriverGetVersion", api_.cuDriverGetVersion);
    bind(library, "cuDeviceGetCount", api_.cuDeviceGetCount);
    bind(library, "cuDeviceGet", api_.cuDeviceGet);
    bind(library, "cuDeviceGetName", api_.cuDeviceGetName);
    bind(library, "cuDeviceGetAttribute", api_.cuDeviceGetAttribute);
    bind(library, "cuDevicePrimaryCtxRetain", api_.cuDevicePrimaryCtxRetain);
    bind(library, "cuCtxGetCurrent", api_.cuCtxGetCurrent);
    bind(library, "cuCtxPushCurrent_v2", api_.cuCtxPushCurrent_v2);
    bind(library, "cuCtxPopCurrent_v2", api_.cuCtxPopCurrent_v2);
    bind(library, "cuModuleLoadData", api_.cuModuleLoadData);
    bind(library, "cuModuleGetFunction", api_.cuModuleGetFunction);
    bind(library, "cuFuncGetAttribute", api_.cuFuncGetAttribute);
    bind(library, "cuFuncSetAttribute", api_.cuFuncSetAttribute);
    bind(library, "cuLaunchKernel", api_.cuLaunchKernel);
    api_.cuLaunchKernelEx =
        reinterpret_cast<decltype(api_.cuLaunchKernelEx)>(library.find("cuLaunchKernelEx"));
    bind(library, "cuThreadExchangeStreamCaptureMode", api_.cuThreadExchangeStreamCaptureMode);
    bind(library, "cuGetErrorName", api_.cuGetErrorName);
    bind(library, "cuGetErrorString", api_.cuGetErrorString);
    check(api_.cuInit(0), "cuInit");
  }

  std::string_view name() const override { return "CUDA"; }
  std::string library() const override { return path_; }

  int version() override {
    int value = 0;
    check(api_.cuDriverGetVersion(&value), "cuDriverGetVersion");
    return value;
  }

  int device_count() override {
    int count = 0;
    check(api_.cuDeviceGetCount(&count), "cuDeviceGetCount");
    return count;
  }

  std::string device_name(int device) override {
    std::array<char, 256> text{};
    check(api_.cuDeviceGetName(text.data(), static_cast<int>(text.size()), handle(device)),
          "cuDeviceGetName");
    return text.data();
  }

  DeviceFacts facts(int device) override {
    DeviceFacts facts;
    const int major = attribute(device, kComputeCapabilityMajor);
    const int minor = attribute(device, kComputeCapabilityMinor);
    facts.arch = "sm_" + std::to_string(major * 10 + minor);
    // Code for sm_90a may use all of a Hopper's instructions; later families spell theirs in more
    // than one way, and the portable kernels need none of them.
    if (major == 9) facts.arch += 'a';
    facts.multiprocessors = attribute(device, kMultiprocessorCount);
    facts.wave = attribute(device, kWarpSize);
    facts.max_shared_bytes = attribute(device, kMaxSharedMemoryPerBlock);
    facts.max_shared_bytes_opt_in = attribute(device, kMaxSharedMemoryPerBlockOptIn);
    return facts;
  }

  Function load(int device, const std::string& code, const char* kernel) override {
    const ContextGuard guard(*this, device);
    const CaptureModeGuard relaxed(*this);
    CUmodule module = nullptr;
    check(api_.cuModuleLoadData(&module, code.data()), "cuModuleLoadData");
    CUfunction function = nullptr;
    check(api_.cuModuleGetFunction(&function, module, kernel), "cuModuleGetFunction");
    Function result;
    result.handle = function;
    check(api_.cuFuncGetAttribute(&result.max_threads, kFunctionMaxThreadsPerBlock, function),
          "cuFuncGetAttribute");
    check(api_.cuFuncGetAttribute(&result.static_shared, kFunctionStaticSharedBytes, function),
          "cuFuncGetAttribute");
    return result;
  }

  void launch(int device, const Function& function, const Launch& launch, void* stream,
              void** parameters) override {
    const ContextGuard guard(*this, device);
    auto* handle = static_cast<CUfunction>(function.handle);
    if (launch.shared_bytes + static_cast<unsigned>(function.static_shared) > 48U << 10U) {
      opt_in(handle, static_cast<int>(launch.shared_bytes));
    }
    if (launch.starts_early && can_start_early(device)) {
      LaunchAttribute early{};
      early.id = kProgrammaticStreamSerialization;
      early.number = 1;
      const LaunchConfig config{launch.grid.x,
                                launch.grid.y,
                                launch.grid.z,
                                launch.block.x,
                                launch.block.y,
                                launch.block.z,
                                launch.shared_bytes,
                                static_cast<CUstream>(stream),
                                &early,
                                1};
      check(api_.cuLaunchKernelEx(&config, handle, parameters, nullptr), "cuLaunchKernelEx");
      return;
    }
    check(api_.cuLaunchKernel(handle, launch.grid.x, launch.grid.y, launch.grid.z, launch.block.x,
                              launch.block.y, launch.block.z, launch.shared_bytes,
                              static_cast<CUstream>(stream), parameters, nullptr),
          "cuLaunchKernel");
  }

 private:
  template <class Pointer>
  static void bind(const Library& library, const char* symbol, Pointer& pointer) {
    pointer = reinterpret_cast<Pointer>(library.require(symbol));
  }

  void check(CUresult result, const char* what) const {
    if (result == 0) return;
    const char* name = nullptr;
    const char* text = nullptr;
    api_.cuGetErrorName(result, &name);
    api_.cuGetErrorString(result, &text);
    throw Error(std::string(what) + " failed: " + (name != nullptr ? name : "CUDA error") + " (" +
                std::to_string(result) + (text != nullptr ? std::string(", ") + text : "") + ")" +
                words_if_forked(opened_in_));
  }

  CUdevice handle(int device) {
    CUdevice result = 0;
    check(api_.cuDeviceGet(&result, device), "cuDeviceGet");
    return result;
  }

  int attribute(int device, int which) {
    int value = 0;
    check(api_.cuDeviceGetAttribute(&value, which, handle(device)), "cuDeviceGetAttribute");
    return value;
  }

  /// The attribute is the kernel's, and the most that a launch may have. It only grows, since a
  /// launch of another thread may be under way; and none waits here for another's, which may take
  /// as long as a full stream.
  void opt_in(CUfunction function, int bytes) {
    const std::scoped_lock lock(opting_in_);
    int& most = opted_in_[function];
    if (bytes <= most) return;
    check(api_.cuFuncSetAttribute(function, kFunctionMaxDynamicSharedBytes, bytes),
          "cuFuncSetAttribute");
    most = bytes;
  }

  bool can_start_early(int device) {
    Context& context = contexts_[static_cast<std::size_t>(device)];
    std::call_once(context.early_once, [&] {
      context.can_start_early = api_.cuLaunchKernelEx != nullptr &&
                                version() >= kVersionForEarlyStart &&
                                attribute(device, kComputeCapabilityMajor) >= kMajorForEarlyStart;
    });
    return context.can_start_early;
  }

  /// PyTorch works in the primary context; it is retained once and never released, since kernels
  /// stay loaded in it.
  CUcontext primary_context(int device) {
    if (device < 0 || static_cast<std::size_t>(device) >= contexts_.size()) {
      throw Error("device index " + std::to_string(device) + " is outside 0..63");
    }
    Context& context = contexts_[static_cast<std::size_t>(device)];
    std::call_once(context.once, [&] {
      check(api_.cuDevicePrimaryCtxRetain(&context.handle, handle(device)),
            "cuDevicePrimaryCtxRetain");
    });
    return context.handle;
  }

  /// Makes the device's primary context current; costs one driver call when it already is.
  class ContextGuard {
   public:
    ContextGuard(CudaDriver& driver, int device) : driver_(driver) {
      CUcontext wanted = driver.primary_context(device);
      CUcontext current = nullptr;
      driver.check(driver.api_.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
      if (current == wanted) return;
      driver.check(driver.api_.cuCtxPushCurrent_v2(wanted), "cuCtxPushCurrent");
      pushed_ = true;
    }
    ~ContextGuard() {
      CUcontext popped = nullptr;
      if (pushed_) driver_.api_.cuCtxPopCurrent_v2(&popped);
    }
    ContextGuard(const ContextGuard&) = delete;
    ContextGuard& operator=(const ContextGuard&) = delete;

   private:
    CudaDriver& driver_;
    bool pushed_ = false;
  };

  /// Loading a module allocates, which a capture in the default mode forbids; it is harmless, as
  /// the allocation does not belong to the captured stream.
  class CaptureModeGuard {
   public:
    explicit CaptureModeGuard(CudaDriver& driver) : driver_(driver) {
      driver.check(driver.api_.cuThreadExchangeStreamCaptureMode(&mode_),
                   "cuThreadExchangeStreamCaptureMode");
    }
    ~CaptureModeGuard() { driver_.api_.cuThreadExchangeStreamCaptureMode(&mode_); }
    CaptureModeGuard(const CaptureModeGuard&) = delete;
    CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

   private:
    CudaDriver& driver_;
    int mode_ = kCaptureModeRelaxed;
  };

  struct Context {
    std::once_flag once;
    CUcontext handle = nullptr;
    std::once_flag early_once;
    bool can_start_early = false;
  };

  std::string path_;
  std::int64_t opened_in_ = ::getpid();
  Api api_{};
  std::array<Context, 64> contexts_;
  std::mutex opting_in_;
  std::unordered_map<CUfunction, int> opted_in_;
};

}  // namespace

std::unique_ptr<Driver> open_cuda_driver() {
  const std::optional<Library> library = Library::open({"libcuda.so.1", "libcuda.so"});
  if (!library) return nullptr;
  return std::make_unique<CudaDriver>(*library);
}

}  // namespace truefuse::gpu
