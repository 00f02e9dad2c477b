#pragma once

#include "truefuse/sim/block.h"

#include <stdlib.h>

// Finds accesses to the same bytes that nothing orders, and reads of shared memory that nobody
// wrote. The kernel is compiled with -fsanitize=thread, but linked with the functions below instead
// of that library: the compiler calls them before every access. Two accesses, at least one of them
// a write and at least one of them not atomic, are ordered if the same lane makes them, if a
// barrier of their block or a wave_sync of their wave lies between them, or if what the first lane
// released by an ordering atomic (or a fence and an atomic) the second has acquired. Writing the
// same value twice counts as a race.

namespace tf_sim {

/// How a lane gives way in the interleaved order: others run before its next access.
inline void give_way() { switch_fiber(&running()->fiber, &main_fiber); }

inline void give_way_if_interleaved() {
  if (control->lane_order == Order::interleaved) give_way();
}

#if defined(TF_SIM_RACE)

struct Access {
  const void* pc;
  u64 block;
  u32 phase, wave_phase, epoch;
  unsigned short lane;
  bool is_set, is_atomic;
};

/// Of one byte: the last write, and the reads since then that are not ordered among themselves; of
/// the lanes of one block in one phase, two.
struct Shadow {
  Access write;
  Access* reads;
  u32 read_count, read_capacity;
};
constexpr u32 kMaxReads = 64;

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
    for (size_t k = 0; k < region.size; ++k) free(watched[i].shadow[k].reads);
    free(watched[i].shadow);
    watched[i] = watched[--watched_count];
    return;
  }
}

/// What is read-only is not watched: a write to it is a fault of its own.
inline void race_begin_buffers() {
  for (u32 i = 0; i < control->buffer_count; ++i) {
    if (buffer_records()[i].is_writable != 0) watch(buffers[i], false);
  }
}

inline void race_lane(const LaneState& lane) {
  const Block& block = *lane.owner;
  now = {nullptr,     block.linear,
         block.phase, block.wave_phases[lane.number / static_cast<u32>(wave)],
         lane.epoch,  static_cast<unsigned short>(lane.number),
         true,        false};
}

inline bool is_known(const Knowledge& known, const Access& before) {
  if (known.empty()) return false;
  const u32 wave_number = before.lane / static_cast<u32>(wave);
  return known.end_of(block_key(before.block)) > before.phase ||
         known.end_of(wave_key(before.block, wave_number)) > before.wave_phase ||
         known.end_of(lane_key(before.block, before.lane)) > before.epoch;
}

inline bool is_ordered(const Access& before) {
  if (!before.is_set) return true;
  if (before.block == now.block) {
    if (before.lane == now.lane || before.phase != now.phase) return true;
    const u32 wave_size = static_cast<u32>(wave);
    if (before.lane / wave_size == now.lane / wave_size && before.wave_phase != now.wave_phase) {
      return true;
    }
  }
  return is_known(running()->known, before) || is_known(running()->owner->known, before);
}

inline bool may_follow(const Access& before) {
  return (before.is_atomic && now.is_atomic) || is_ordered(before);
}

inline void add_read(Shadow& shadow) {
  u32 kept = 0, alike = 0;
  for (u32 i = 0; i < shadow.read_count; ++i) {
    const Access& read = shadow.reads[i];
    if (is_ordered(read) && read.is_atomic == now.is_atomic) continue;
    if (read.block == now.block && read.phase == now.phase) ++alike;
    shadow.reads[kept++] = read;
  }
  shadow.read_count = kept;
  if (alike >= 2 || kept == kMaxReads) return;
  if (kept == shadow.read_capacity) {
    shadow.read_capacity = kept == 0 ? 1 : kept * 2;
    shadow.reads = static_cast<Access*>(realloc(shadow.reads, shadow.read_capacity * sizeof now));
    if (shadow.reads == nullptr) refuse("no memory to watch for races");
  }
  shadow.reads[shadow.read_count++] = now;
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

inline void check_byte(const Watched& memory, size_t offset, bool reads, bool writes) {
  Shadow& shadow = memory.shadow[offset];
  if (!may_follow(shadow.write)) fail_race(memory, offset, shadow.write, true, writes);
  if (reads && memory.is_shared && !shadow.write.is_set) {
    char bytes[96];
    describe_bytes(memory, offset, bytes);
    control->report.where.pc = reinterpret_cast<u64>(now.pc);
    fail(Fault::shared_read_uninitialised, {"", 0}, nullptr, "%s is read but was never written",
         bytes);
  }
  if (!writes) return add_read(shadow);
  for (u32 i = 0; i < shadow.read_count; ++i) {
    if (!may_follow(shadow.reads[i])) fail_race(memory, offset, shadow.reads[i], false, true);
  }
  shadow.write = now;
  shadow.read_count = 0;
}

inline void check_bytes(const void* address, size_t size, bool reads, bool writes, const void* pc) {
  const char* const first = static_cast<const char*>(address);
  for (int i = 0; i < watched_count; ++i) {
    const Watched& memory = watched[i];
    if (first < memory.region.begin || first >= memory.region.begin + memory.region.size) continue;
    now.pc = static_cast<const char*>(pc) - 1;  // Inside the call, not behind it.
    const size_t offset = static_cast<size_t>(first - memory.region.begin);
    for (size_t k = 0; k < size && offset + k < memory.region.size; ++k) {
      check_byte(memory, offset + k, reads, writes);
    }
    return;
  }
}

/// Before it has waited, a launch that starts early must not use what others may still write.
inline void check_waited(const void* address, const void* pc) {
  if (control->starts_early == 0 || running()->has_waited) return;
  const char* const first = static_cast<const char*>(address);
  for (u32 i = 0; i < control->buffer_count; ++i) {
    if (distance(buffers[i], first) > 0 || buffers[i].size == 0) continue;
    control->report.where.pc = reinterpret_cast<u64>(pc) - 1;
    fail(Fault::access_before_wait, {"", 0}, nullptr,
         "byte %zu of buffer %u is used before the lane has waited for the launches before this "
         "one, which starts early",
         static_cast<size_t>(first - buffers[i].begin), i);
  }
}

inline void race_access(const void* address, size_t size, bool writes, const void* pc) {
  if (!now.is_set) return;  // Before the first lane.
  check_waited(address, pc);
  give_way_if_interleaved();
  check_bytes(address, size, !writes, writes, pc);
}

inline void race_atomic(const void* address, size_t size, bool reads, bool writes, const void* pc) {
  check_waited(address, pc);
  now.is_atomic = true;
  check_bytes(address, size, reads, writes, pc);
  now.is_atomic = false;
}

inline void race_epoch(u32 epoch) { now.epoch = epoch; }

#else

inline void race_begin_shared(const Region&) {}
inline void race_end_shared(const Region&) {}
inline void race_begin_buffers() {}
inline void race_lane(const LaneState&) {}
inline void race_access(const void*, size_t, bool, const void*) {}
inline void race_atomic(const void*, size_t, bool, bool, const void*) {}
inline void race_epoch(u32) {}

#endif

}  // namespace tf_sim
