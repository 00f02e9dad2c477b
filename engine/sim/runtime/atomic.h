#pragma once

#include "truefuse/sim/block.h"
#include "truefuse/sim/race.h"
#include "truefuse/sim/trace.h"

#include <stdint.h>
#include <string.h>

// Atomics and fences. One thread runs all lanes, so the operations themselves are plain; a lane
// gives way before each, so that one that waits for another's does not wait for ever.

namespace tf_sim {

template <class T>
T value_of(u64 bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T changed(Atomic operation, T old, T operand, T compare) {
  switch (operation) {
    case Atomic::load:
      return old;
    case Atomic::add:
      return old + operand;
    case Atomic::min:
      return operand < old ? operand : old;
    case Atomic::max:
      return old < operand ? operand : old;
    case Atomic::compare_exchange:
      return old == compare ? operand : old;
    default:
      return operand;
  }
}

template <class T>
u64 apply(Atomic operation, void* address, u64 bits, u64 compare) {
  T* const place = static_cast<T*>(address);
  const T old = *place;
  T next;
  switch (operation) {
    case Atomic::bit_and:
      next = value_of<T>(static_cast<u64>(old) & bits);
      break;
    case Atomic::bit_or:
      next = value_of<T>(static_cast<u64>(old) | bits);
      break;
    case Atomic::bit_xor:
      next = value_of<T>(static_cast<u64>(old) ^ bits);
      break;
    default:
      next = changed<T>(operation, old, value_of<T>(bits), value_of<T>(compare));
  }
  if (operation != Atomic::load) *place = next;
  u64 result = 0;
  memcpy(&result, &old, sizeof old);
  return result;
}

inline u64 apply(Atomic operation, Number type, void* address, u64 bits, u64 compare) {
  switch (type) {
    case Number::i32:
      return apply<int>(operation, address, bits, compare);
    case Number::u64:
      return apply<u64>(operation, address, bits, compare);
    case Number::f32:
      return apply<float>(operation, address, bits, compare);
    default:
      return apply<u32>(operation, address, bits, compare);
  }
}

inline void check_alignment(const volatile void* address, size_t alignment, size_t size,
                            Site site) {
  const uintptr_t rest = reinterpret_cast<uintptr_t>(address) % alignment;
  if (rest == 0) return;
  fail(Fault::misaligned_access, site, nullptr,
       "an access of %zu bytes must lie at a multiple of %zu; this one is %zu bytes past one", size,
       alignment, static_cast<size_t>(rest));
}

u64 atomic(Atomic operation, Number type, void* address, u64 bits, u64 compare, Site site) {
  give_way();
  const size_t size = type == Number::u64 ? 8 : 4;
  check_alignment(address, size, size, site);
  const bool reads = operation != Atomic::store, writes = operation != Atomic::load;
  trace_vector(address, size, writes, site);
  race_atomic(address, size, reads, writes, __builtin_return_address(0));
  LaneState& lane = *running();
  if (Knowledge* const found = released.at(address, false)) {
    if (reads) {
      lane.seen.add(*found);
    } else {
      found->clear();
    }
  }
  if (writes && !lane.announced.empty()) released.at(address, true)->add(lane.announced);
  return apply(operation, type, address, bits, compare);
}

void fence() {
  LaneState& lane = *running();
  const Block& block = *lane.owner;
  lane.known.add(lane.seen);
  lane.seen.clear();
  const u32 wave_number = lane.number / static_cast<u32>(wave);
  lane.announced.add(lane.known);
  lane.announced.add(block.known);
  lane.announced.add(block_key(block.linear), block.phase);
  lane.announced.add(wave_key(block.linear, wave_number), block.wave_phases[wave_number]);
  lane.announced.add(lane_key(block.linear, lane.number), ++lane.epoch);
  race_epoch(lane.epoch);
}

}  // namespace tf_sim
