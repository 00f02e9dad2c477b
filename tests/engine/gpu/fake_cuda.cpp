// A libcuda.so.1 for tests: two devices, a stack of contexts, and a record of what was asked.

#include <mutex>
#include <sched.h>
#include <unistd.h>

#include "fake_driver.h"

namespace {

FakeState state;
FakeState* const fake = &state;
std::mutex asking;  // Threads launch at the same time.
int contexts[2];
thread_local void* stack[8];
thread_local int depth = 0;
int initialised_in = 0;

}  // namespace

extern "C" {

FakeState* fake_state() { return fake; }

int cuInit(unsigned) {
  initialised_in = getpid();
  return 0;
}
int cuDriverGetVersion(int* version) {
  *version = fake->version;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
int cuDeviceGet(int* device, int index) {
  *device = index;
  return index < 2 ? 0 : 101;
}
int cuDeviceGetName(char* text, int size, int device) {
  snprintf(text, static_cast<std::size_t>(size), "Fake %d", device);
  return 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16:
      *value = 132;
      return 0;
    case 10:
      *value = 32;
      return 0;
    case 8:
      *value = 49152;
      return 0;
    case 97:
      *value = 232448;
      return 0;
    case 75:
      *value = fake->major;
      return 0;
    case 76:
      *value = 0;
      return 0;
    default:
      return 1;
  }
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &contexts[device];
  ++fake->retained;
  return 0;
}
int cuCtxGetCurrent(void** context) {
  if (getpid() != initialised_in) return 3;  // As in any process that was forked afterwards.
  *context = depth > 0 ? stack[depth - 1] : nullptr;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) {
  stack[depth++] = context;
  return 0;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = stack[--depth];
  return 0;
}
int cuModuleLoadData(void** module, const void* image) {
  fake->capture_mode_at_load = fake->capture_mode;
  fake->device_at_load = depth > 0 && stack[depth - 1] == &contexts[1] ? 1 : 0;
  *module = fake;
  return std::strncmp(static_cast<const char*>(image), "cubin", 5) == 0 ? 0 : 209;
}
int cuModuleGetFunction(void** function, void*, const char* name) {
  *function = fake;
  return std::strcmp(name, "present") == 0 ? 0 : 500;
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  *value = attribute == 1 ? fake->static_shared : 128;
  return 0;
}
int cuFuncSetAttribute(void*, int, int value) {
  {
    const std::scoped_lock lock(asking);
    fake->dynamic_shared = value;
  }
  sched_yield();  // Another thread's turn, if it may have one.
  return 0;
}
int cuLaunchKernel(void*, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned,
                   unsigned shared, void* stream, void** parameters, void**) {
  const std::scoped_lock lock(asking);
  const int most = fake->dynamic_shared > 0 ? fake->dynamic_shared : 49152 - fake->static_shared;
  if (static_cast<int>(shared) > most) return 1;
  fake->record(gx, bx, shared, stream, parameters);
  return fake->launch_result;
}
struct Config {
  unsigned gx, gy, gz, bx, by, bz, shared;
  void* stream;
  const unsigned* attributes;
  unsigned attribute_count;
};
int cuLaunchKernelEx(const Config* config, void* function, void** parameters, void** extra) {
  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, and its value behind 8 bytes.
  if (config->attribute_count == 1 && config->attributes[0] == 6 && config->attributes[2] == 1) {
    ++fake->early_launches;
  }
  return cuLaunchKernel(function, config->gx, config->gy, config->gz, config->bx, config->by,
                        config->bz, config->shared, config->stream, parameters, extra);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  const int previous = fake->capture_mode;
  fake->capture_mode = *mode;
  *mode = previous;
  return 0;
}
int cuGetErrorName(int error, const char** text) {
  *text = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
          : error == 3 ? "CUDA_ERROR_NOT_INITIALIZED"
                       : "CUDA_ERROR_OTHER";
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "as the driver words it";
  return 0;
}

int fake_depth() { return depth; }

}  // extern "C"
