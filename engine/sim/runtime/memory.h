#pragma once

#include "truefuse/sim/report.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Global buffers and shared memory: heap blocks of exactly the requested size, so that
// AddressSanitizer has its red zones right behind them.

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(const volatile void* address, size_t size);
#endif

namespace tf_sim {

constexpr unsigned char kPoison = 0xff;  ///< A NaN in every float format, -1 in every integer.
constexpr unsigned char kCanary = 0xa5;  ///< In front of a misaligned buffer.

struct Region {
  char* begin = nullptr;
  size_t size = 0;
  void* allocation = nullptr;
  u32 buffer = 0;  ///< Of a global buffer.
};

constexpr u32 kMaxBuffers = 256;
inline Region buffers[kMaxBuffers];

/// Without a byte to give, the end of a block is as good as a block.
inline Region allocate(size_t size, size_t alignment, size_t lead) {
  Region region;
  const size_t bytes = lead + size == 0 ? alignment : lead + size;
  if (posix_memalign(&region.allocation, alignment, bytes) != 0) {
    refuse("there is no memory for %zu bytes; take a smaller case", bytes);
  }
  region.begin = static_cast<char*>(region.allocation) + (lead + size == 0 ? alignment : lead);
  region.size = size;
  return region;
}

inline const Buffer* buffer_records() {
  return reinterpret_cast<const Buffer*>(reinterpret_cast<char*>(control) +
                                         control->buffers_offset);
}
inline char* stored_bytes(const Buffer& record) {
  return reinterpret_cast<char*>(control) + record.data_offset;
}

inline void make_buffers() {
  for (u32 i = 0; i < control->buffer_count; ++i) {
    const Buffer& record = buffer_records()[i];
    buffers[i] = allocate(record.bytes, 256, record.misalignment);
    buffers[i].buffer = i;
    memset(buffers[i].allocation, kCanary, record.misalignment);
#if defined(__SANITIZE_ADDRESS__)
    __asan_poison_memory_region(buffers[i].allocation, record.misalignment / 8 * 8);
#endif
    if (record.bytes > 0) memcpy(buffers[i].begin, stored_bytes(record), record.bytes);
  }
}

/// Gives the results back, after the checks that need no sanitizer.
inline void return_buffers() {
  const Site unknown = {"", 0};
  for (u32 i = 0; i < control->buffer_count; ++i) {
    const Buffer& record = buffer_records()[i];
    const Region& region = buffers[i];
    for (size_t k = record.misalignment / 8 * 8; k < record.misalignment; ++k) {
      if (static_cast<unsigned char*>(region.allocation)[k] != kCanary) {
        fail(Fault::global_write_out_of_bounds, unknown, nullptr,
             "the kernel wrote in front of buffer %u (%zu bytes)", i, region.size);
      }
    }
    if (record.bytes == 0) continue;
    if (record.is_writable != 0) {
      memcpy(stored_bytes(record), region.begin, record.bytes);
    } else if (memcmp(stored_bytes(record), region.begin, record.bytes) != 0) {
      fail(Fault::write_to_read_only, unknown, nullptr,
           "the kernel changed buffer %u (%zu bytes), which is read-only", i, region.size);
    }
  }
}

inline Region make_shared(size_t size) {
  Region region = allocate(size, 16, 0);
  memset(region.begin, kPoison, size);
  return region;
}

/// Distance of an address from a region; 0 inside.
inline size_t distance(const Region& region, const char* address) {
  if (region.begin == nullptr) return SIZE_MAX;
  if (address < region.begin) return static_cast<size_t>(region.begin - address);
  const char* const end = region.begin + region.size;
  return address < end ? 0 : static_cast<size_t>(address - end) + 1;
}

}  // namespace tf_sim
