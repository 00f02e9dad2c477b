#pragma once

#include "truefuse/sim/memory.h"
#include "truefuse/sim/report.h"

#include <stdlib.h>

// Finds accesses to the same bytes that nothing orders, and reads of shared memory that nobody
// wrote. The kernel is compiled with -fsanitize=thread, but linked with the functions below instead
// of that library: the compiler calls them before every access. Two accesses, at least one of them
// a write, are ordered if the same lane makes them or if a barrier of their block lies between
// them. Writing the same value twice counts as a race.

namespace tf_sim {

#if defined(TF_SIM_RACE)

struct Access {
  bool is_set = false;
  u64 block = 0;
  u32 lane = 0, phase = 0;
  const void* pc = nullptr;
};

/// Of one byte. Two readers that differ are enough to find one that a later writer is not.
struct Shadow {
  Access write, reads[2];
};

struct Watched {
  Region region;
  Shadow* shadow = nullptr;
  bool is_shared = false;
};

constexpr int kMaxWatched = 4096;
inline Watched watched[kMaxWatched];
inline int watched_count;
inline Access now;  ///< Who is running.

inline void watch(const Region& region, bool is_shared) {
  if (region.size == 0) return;
  if (watched_count == kMaxWatched) refuse("too many arrays in shared memory to watch for races");
  Shadow* const shadow = static_cast<Shadow*>(calloc(region.size, sizeof(Shadow)));
  if (shadow == nullptr) refuse("no memory to watch %zu bytes for races", region.size);
  watched[watched_count++] = {region, shadow, is_shared};
}

inline void race_begin_shared(const Region& region) { watch(region, true); }

inline void race_end_shared(const Region& region) {
  for (int i = 0; i < watched_count; ++i) {
    if (watched[i].region.begin != region.begin || region.size == 0) continue;
    free(watched[i].shadow);
    watched[i] = watched[--watched_count];
    return;
  }
}

inline void race_begin_buffers() {
  for (u32 i = 0; i < control->buffer_count; ++i) watch(buffers[i], false);
}

inline void race_lane(u64 block, u32 lane, u32 phase) { now = {true, block, lane, phase, nullptr}; }

inline bool is_ordered(const Access& before) {
  return !before.is_set ||
         (before.block == now.block && (before.lane == now.lane || before.phase != now.phase));
}

inline void describe_bytes(const Watched& memory, size_t offset, char (&text)[96]) {
  if (memory.is_shared) {
    snprintf(text, sizeof text, "byte %zu of an array of %zu bytes in shared memory", offset,
             memory.region.size);
  } else {
    snprintf(text, sizeof text, "byte %zu of buffer %u (%zu bytes)", offset, memory.region.buffer,
             memory.region.size);
  }
}

[[noreturn]] inline void fail_race(const Watched& memory, size_t offset, const Access& before,
                                   bool before_wrote, bool writes) {
  char bytes[96];
  describe_bytes(memory, offset, bytes);
  control->report.where.pc = reinterpret_cast<u64>(now.pc);
  control->report.other.pc = reinterpret_cast<u64>(before.pc);
  fail(Fault::race, {"", 0}, nullptr,
       "%s: lane %u of block %llu %s it and lane %u of block %llu %s it; nothing orders the two",
       bytes, before.lane, before.block, before_wrote ? "writes" : "reads", now.lane, now.block,
       writes ? "writes" : "reads");
}

inline void check_byte(const Watched& memory, size_t offset, bool writes) {
  Shadow& shadow = memory.shadow[offset];
  if (!is_ordered(shadow.write)) fail_race(memory, offset, shadow.write, true, writes);
  if (writes) {
    for (const Access& read : shadow.reads) {
      if (!is_ordered(read)) fail_race(memory, offset, read, false, true);
    }
    shadow.write = now;
    shadow.reads[0] = shadow.reads[1] = Access{};
    return;
  }
  if (memory.is_shared && !shadow.write.is_set) {
    char bytes[96];
    describe_bytes(memory, offset, bytes);
    control->report.where.pc = reinterpret_cast<u64>(now.pc);
    fail(Fault::shared_read_uninitialised, {"", 0}, nullptr, "%s is read but was never written",
         bytes);
  }
  shadow.reads[shadow.reads[0].is_set && !is_ordered(shadow.reads[0]) ? 1 : 0] = now;
}

inline void check_access(const void* address, size_t size, bool writes, const void* pc) {
  if (!now.is_set) return;  // Before the first lane.
  const char* const first = static_cast<const char*>(address);
  for (int i = 0; i < watched_count; ++i) {
    const Watched& memory = watched[i];
    if (first < memory.region.begin || first >= memory.region.begin + memory.region.size) continue;
    now.pc = static_cast<const char*>(pc) - 1;  // Inside the call, not behind it.
    const size_t offset = static_cast<size_t>(first - memory.region.begin);
    for (size_t k = 0; k < size && offset + k < memory.region.size; ++k) {
      check_byte(memory, offset + k, writes);
    }
    return;
  }
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

#else

inline void race_begin_shared(const Region&) {}
inline void race_end_shared(const Region&) {}
inline void race_begin_buffers() {}
inline void race_lane(u64, u32, u32) {}

#endif

}  // namespace tf_sim
