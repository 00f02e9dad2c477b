#pragma once

#include "truefuse/sim/race.h"
#include "truefuse/sim/trace.h"

// What a kernel compiled with -fsanitize=thread calls before every access.

#if defined(TF_SIM_RACE) || defined(TF_SIM_TRACE)

namespace tf_sim {

inline void check_access(const void* address, size_t size, bool writes, const void* pc) {
  race_access(address, size, writes, pc);
  trace_access(address, size, writes, pc);
}

#define TF_SIM_ACCESS(bytes)                                          \
  extern "C" void __tsan_read##bytes(void* address) {                 \
    check_access(address, bytes, false, __builtin_return_address(0)); \
  }                                                                   \
  extern "C" void __tsan_write##bytes(void* address) {                \
    check_access(address, bytes, true, __builtin_return_address(0));  \
  }                                                                   \
  extern "C" void __tsan_unaligned_read##bytes(void* address) {       \
    check_access(address, bytes, false, __builtin_return_address(0)); \
  }                                                                   \
  extern "C" void __tsan_unaligned_write##bytes(void* address) {      \
    check_access(address, bytes, true, __builtin_return_address(0));  \
  }
TF_SIM_ACCESS(1)
TF_SIM_ACCESS(2)
TF_SIM_ACCESS(4)
TF_SIM_ACCESS(8)
TF_SIM_ACCESS(16)
#undef TF_SIM_ACCESS

extern "C" void __tsan_read_range(void* address, unsigned long size) {
  check_access(address, size, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* address, unsigned long size) {
  check_access(address, size, true, __builtin_return_address(0));
}
extern "C" void __tsan_init() {}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}

}  // namespace tf_sim

#endif
