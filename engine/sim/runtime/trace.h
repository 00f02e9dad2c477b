#pragma once

#include "truefuse/sim/block.h"

#include <stdio.h>

// Writes down every access to a buffer: which lane, where, how many bytes, in which line. What
// tf::load and tf::store move is one access, or several of 16 bytes, whatever the compiler makes of
// it here. Shared memory is left out.

namespace tf_sim {

#if defined(TF_SIM_TRACE)

inline FILE* trace_file;

/// Bytes of a vector access that the compiler will report piece by piece.
struct Covered {
  const LaneState* lane;
  const char* begin;
  size_t size, left;
};
inline Covered covered;

inline void trace_begin() {
  if (control->trace[0] == 0) return;
  trace_file = fopen(control->trace, "wb");
  if (trace_file == nullptr) refuse("the trace %s cannot be written", control->trace);
}

inline void trace_end() {
  if (trace_file != nullptr && fclose(trace_file) != 0) refuse("the trace cannot be written");
}

inline void trace_write(const void* address, size_t size, bool writes, u32 line, const void* pc) {
  const char* const first = static_cast<const char*>(address);
  for (u32 i = 0; i < control->buffer_count; ++i) {
    const Region& region = buffers[i];
    if (first < region.begin || first >= region.begin + region.size) continue;
    const LaneState& lane = *running();
    const Transaction transaction = {lane.owner->linear,
                                     static_cast<u64>(first - region.begin),
                                     reinterpret_cast<u64>(pc),
                                     i,
                                     lane.number,
                                     static_cast<u32>(size),
                                     line,
                                     writes ? 1u : 0u};
    fwrite(&transaction, sizeof transaction, 1, trace_file);
    return;
  }
}

inline void trace_vector(const void* address, size_t size, bool writes, Site site) {
  if (trace_file == nullptr) return;
  const char* const first = static_cast<const char*>(address);
  const size_t step = size < 16 ? size : 16;
  for (size_t at = 0; at < size; at += step) {
    trace_write(first + at, step, writes, static_cast<u32>(site.line), nullptr);
  }
  covered = {running(), first, size, size};
}

inline void trace_access(const void* address, size_t size, bool writes, const void* pc) {
  if (trace_file == nullptr || current_lane == nullptr) return;
  const char* const first = static_cast<const char*>(address);
  const bool is_covered = covered.left >= size && covered.lane == running() &&
                          first >= covered.begin && first + size <= covered.begin + covered.size;
  if (is_covered) {
    covered.left -= size;
    return;
  }
  trace_write(address, size, writes, 0, static_cast<const char*>(pc) - 1);
}

#else

inline void trace_begin() {}
inline void trace_end() {}
inline void trace_vector(const void*, size_t, bool, Site) {}
inline void trace_access(const void*, size_t, bool, const void*) {}

#endif

}  // namespace tf_sim
