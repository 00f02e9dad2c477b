// A libgalaxyhip.so.5 for tests, as a DTK has it: the old structure of device properties, and none
// of the functions that came later.

#include "fake_driver.h"

namespace {

FakeState state;
int current = 0;

void put(char* properties, std::size_t offset, const void* value, std::size_t size) {
  std::memcpy(properties + offset, value, size);
}

}  // namespace

extern "C" {

FakeState* fake_state() { return &state; }
int fake_current_device() { return current; }

int hipInit(unsigned) { return 0; }
int hipDriverGetVersion(int* version) {
  *version = 60325211;
  return 0;
}
int hipGetDeviceCount(int* count) {
  *count = 2;
  return 0;
}
int hipGetDevice(int* device) {
  *device = current;
  return 0;
}
int hipSetDevice(int device) {
  current = device;
  return device < 2 ? 0 : 101;
}
int hipGetDeviceProperties(void* properties, int device) {
  auto* bytes = static_cast<char*>(properties);
  const char name[] = "BW1000";
  const char arch[] = "gfx936:sramecc+:xnack-";
  const std::size_t shared = 65536;
  const int wave = 64, multiprocessors = 80;
  put(bytes, 0, name, sizeof name);
  put(bytes, 264, &shared, sizeof shared);
  put(bytes, 276, &wave, sizeof wave);
  put(bytes, 336, &multiprocessors, sizeof multiprocessors);
  put(bytes, 396, arch, sizeof arch);
  return device < 2 ? 0 : 101;
}
int hipModuleLoadData(void** module, const void* image) {
  state.device_at_load = current;
  *module = &state;
  return std::strncmp(static_cast<const char*>(image), "\177ELF", 4) == 0 ? 0 : 218;
}
int hipModuleGetFunction(void** function, void*, const char*) {
  *function = &state;
  return 0;
}
int hipModuleLaunchKernel(void*, unsigned gx, unsigned, unsigned, unsigned bx, unsigned, unsigned,
                          unsigned shared, void* stream, void** parameters, void**) {
  state.device_at_launch = current;
  state.record(gx, bx, shared, stream, parameters);
  return state.launch_result;
}
const char* hipGetErrorName(int error) {
  return error == 218 ? "hipErrorInvalidKernelFile" : "hipErrorOther";
}
const char* hipGetErrorString(int) { return "invalid kernel file"; }

}  // extern "C"
