#include <atomic>
#include <cstdint>
#include <dlfcn.h>
#include <string>

#include <truefuse/binding/stream.h>
#include <truefuse/core/error.h>

namespace truefuse::binding {
namespace {

// A C function of PyTorch since 2.4; its header hides it unless CUDA headers are there.
using GetStream = std::int32_t (*)(std::int32_t device, void** stream);

struct Source {
  GetStream function = nullptr;
  std::string method;
};

const Source& source() {
  static const Source found = [] {
    for (const char* library : {"libtorch_cuda.so", "libtorch_hip.so"}) {
      void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
      if (handle == nullptr) continue;
      constexpr const char* kSymbol = "aoti_torch_get_current_cuda_stream";
      if (auto* function = reinterpret_cast<GetStream>(dlsym(handle, kSymbol))) {
        return Source{function, std::string(kSymbol) + " in " + library};
      }
    }
    return Source{nullptr, "torch._C._cuda_getCurrentRawStream through Python"};
  }();
  return found;
}

std::atomic<void* (*)(int)> fallback{nullptr};

}  // namespace

void* current_stream(int device) {
  if (const GetStream function = source().function) {
    void* stream = nullptr;
    if (function(device, &stream) == 0) return stream;
    throw Error("PyTorch could not say its current stream of device " + std::to_string(device));
  }
  if (auto* function = fallback.load(std::memory_order_acquire)) return function(device);
  throw Error(
      "this PyTorch has no way to ask for its current stream: neither "
      "aoti_torch_get_current_cuda_stream (PyTorch 2.4 and later) nor "
      "torch._C._cuda_getCurrentRawStream. `truefuse doctor` shows what was found");
}

const char* current_stream_method() { return source().method.c_str(); }

void set_stream_fallback(void* (*function)(int device)) {
  fallback.store(function, std::memory_order_release);
}

}  // namespace truefuse::binding
