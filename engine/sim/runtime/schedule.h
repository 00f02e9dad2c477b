#pragma once

#include "truefuse/sim/fiber.h"
#include "truefuse/sim/lane.h"
#include "truefuse/sim/memory.h"
#include "truefuse/sim/race.h"
#include "truefuse/sim/report.h"

#include <stdlib.h>
#include <string.h>

// Runs the blocks of a grid, a few at a time. In each round every block gets one phase: each of its
// ready lanes, in the chosen order, runs until it waits or returns; then whatever is complete is
// released: the exchange of a wave, the barrier of the block. What can never complete is reported.

namespace tf_sim {

struct Block;

enum class Wait { none, exchange, barrier, returned };

struct LaneState : Lane {
  Fiber fiber;
  Block* owner = nullptr;
  u32 number = 0;  ///< Linear in the block.
  Wait wait = Wait::returned;
  Site site = {"", 0};
  // An exchange in progress.
  int kind = 0, width = 0, operand = 0;
  u64 bits = 0, result = 0;
};

constexpr int kMaxStaticShared = 64;

struct Block {
  LaneState* lanes = nullptr;
  u32* order = nullptr;
  u32 live = 0;  ///< Lanes that have not returned.
  bool in_use = false;
  u64 linear = 0;
  u32 phase = 0;  ///< Barriers passed.
  Region dynamic_region;
  Region static_regions[kMaxStaticShared];
  const void* identities[kMaxStaticShared];
  int static_count = 0;
};

inline const Kernel* kernel;
inline void** arguments;
inline u32 lanes_per_block;
inline Block* blocks;
inline u64 block_total, blocks_started;
inline u64* block_sequence;  ///< Only for a random order.
inline u64 random_state;

inline u64 next_random() {  // splitmix64
  u64 z = (random_state += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <class T>
void shuffle_sequence(T* values, u64 count) {
  for (u64 i = count; i > 1; --i) {
    const u64 k = next_random() % i;
    const T other = values[k];
    values[k] = values[i - 1];
    values[i - 1] = other;
  }
}

inline LaneState* running() { return static_cast<LaneState*>(current_lane); }

inline void lane_main() {
  fiber_entered();
  LaneState* const self = running();
  for (;;) {  // Each turn is the lane of another block.
    kernel->call(arguments);
    self->wait = Wait::returned;
    --self->owner->live;
    switch_fiber(&self->fiber, &main_fiber);
  }
}

inline void wait_for(Wait wait, Site site) {
  LaneState* const self = running();
  self->wait = wait;
  self->site = site;
  switch_fiber(&self->fiber, &main_fiber);
}

[[noreturn]] __attribute__((format(printf, 4, 5))) inline void fail_at(const LaneState& lane,
                                                                       Fault fault,
                                                                       const Site* other,
                                                                       const char* format, ...) {
  va_list list;
  va_start(list, format);
  char text[sizeof control->report.message];
  vsnprintf(text, sizeof text, format, list);
  set_running(lane);
  fail(fault, lane.site, other, "%s", text);
}

// --- exchanges -----------------------------------------------------------------------------------

inline const char* name_of_exchange(int kind) {
  static const char* const names[] = {"shuffle_xor", "shuffle_down", "shuffle"};
  return names[kind];
}

inline bool same_exchange(const LaneState& a, const LaneState& b) {
  return a.site.line == b.site.line && strcmp(a.site.file, b.site.file) == 0 && a.kind == b.kind &&
         a.width == b.width;
}

/// The lane of the wave that `lane` (at `position` of it) reads from.
inline u32 source_of(const LaneState& lane, u32 position) {
  const u32 width = static_cast<u32>(lane.width);
  const u32 operand = static_cast<u32>(lane.operand);
  if (lane.operand < 0 || (lane.kind != 1 && operand >= width)) {
    fail_at(lane, Fault::operand_out_of_range, nullptr,
            "%s over subgroups of %d lanes is called with %d", name_of_exchange(lane.kind),
            lane.width, lane.operand);
  }
  const u32 in_group = position & (width - 1);
  if (lane.kind == 0) return position ^ operand;
  if (lane.kind == 1) return in_group + operand < width ? position + operand : position;
  return position - in_group + operand;
}

/// The first lane of a wave that waits in an exchange is given.
inline void release_exchange(LaneState* lanes, u32 count, const LaneState& first) {
  for (u32 i = 0; i < count; ++i) {
    const LaneState& lane = lanes[i];
    if (lane.wait == Wait::returned) continue;
    if (lane.wait == Wait::barrier) {
      fail_at(first, Fault::divergent_collective, &lane.site,
              "lane %u of the block waits in %s for its wave, while lane %u waits at the block's "
              "barrier",
              first.number, name_of_exchange(first.kind), lane.number);
    }
    if (!same_exchange(first, lane)) {
      fail_at(first, Fault::divergent_collective, &lane.site,
              "lane %u of the block is in %s<%d>, lane %u of the same wave in %s<%d> elsewhere",
              first.number, name_of_exchange(first.kind), first.width, lane.number,
              name_of_exchange(lane.kind), lane.width);
    }
  }
  for (u32 i = 0; i < count; ++i) {
    LaneState& lane = lanes[i];
    if (lane.wait == Wait::returned) continue;
    const u32 source = source_of(lane, i);
    if (source >= count || lanes[source].wait == Wait::returned) {
      fail_at(lane, Fault::exited_lane_read, nullptr,
              "%s<%d>: lane %u of the block reads lane %u, which %s", name_of_exchange(lane.kind),
              lane.width, lane.number, lanes[0].number + source,
              source >= count ? "the block does not have" : "has returned");
    }
    lane.result = lanes[source].bits;
  }
  for (u32 i = 0; i < count; ++i) {
    if (lanes[i].wait == Wait::exchange) lanes[i].wait = Wait::none;
  }
}

inline void release_exchanges(Block& block) {
  const u32 wave_size = static_cast<u32>(wave);
  for (u32 begin = 0; begin < lanes_per_block; begin += wave_size) {
    const u32 left = lanes_per_block - begin;
    const u32 count = left < wave_size ? left : wave_size;
    LaneState* const lanes = block.lanes + begin;
    for (u32 i = 0; i < count; ++i) {
      if (lanes[i].wait == Wait::exchange) {
        release_exchange(lanes, count, lanes[i]);
        break;
      }
    }
  }
}

// --- barriers ------------------------------------------------------------------------------------

inline void release_barrier(Block& block) {
  const LaneState* waiting = nullptr;
  const LaneState* returned = nullptr;
  u32 count = 0;
  for (u32 i = 0; i < lanes_per_block; ++i) {
    const LaneState& lane = block.lanes[i];
    if (lane.wait == Wait::returned && returned == nullptr) returned = &lane;
    if (lane.wait != Wait::barrier) continue;
    ++count;
    if (waiting == nullptr) waiting = &lane;
    if (lane.site.line != waiting->site.line || strcmp(lane.site.file, waiting->site.file) != 0) {
      fail_at(*waiting, Fault::divergent_barrier, &lane.site,
              "lane %u of the block waits at one barrier, lane %u at another", waiting->number,
              lane.number);
    }
  }
  if (waiting == nullptr) return;
  if (returned != nullptr) {
    fail_at(*waiting, Fault::exited_lane_at_barrier, nullptr,
            "lane %u of the block waits at a barrier that lane %u, which has returned, never "
            "reached",
            waiting->number, returned->number);
  }
  if (count < lanes_per_block) return;
  for (u32 i = 0; i < lanes_per_block; ++i) block.lanes[i].wait = Wait::none;
  ++block.phase;
}

// --- blocks --------------------------------------------------------------------------------------

inline void begin_block(Block& block) {
  u64 linear = blocks_started++;
  if (control->block_order == Order::reverse) linear = block_total - 1 - linear;
  if (control->block_order == Order::random) linear = block_sequence[linear];
  const u32* const grid = control->grid;
  const Index index = {static_cast<u32>(linear % grid[0]),
                       static_cast<u32>(linear / grid[0] % grid[1]),
                       static_cast<u32>(linear / grid[0] / grid[1])};
  block.in_use = true;
  block.linear = linear;
  block.phase = 0;
  block.live = lanes_per_block;
  block.static_count = 0;
  block.dynamic_region = make_shared(control->shared_bytes);
  race_begin_shared(block.dynamic_region);
  for (u32 i = 0; i < lanes_per_block; ++i) {
    block.lanes[i].block = index;
    block.lanes[i].wait = Wait::none;
  }
}

inline void end_block(Block& block) {
  block.in_use = false;
  race_end_shared(block.dynamic_region);
  free(block.dynamic_region.allocation);
  for (int i = 0; i < block.static_count; ++i) {
    race_end_shared(block.static_regions[i]);
    free(block.static_regions[i].allocation);
  }
}

inline void run_phase(Block& block) {
  if (control->lane_order == Order::random) shuffle_sequence(block.order, lanes_per_block);
  for (u32 i = 0; i < lanes_per_block; ++i) {
    LaneState& lane = block.lanes[block.order[i]];
    if (lane.wait != Wait::none) continue;
    current_lane = &lane;
    set_running(lane);
    race_lane(block.linear, lane.number, block.phase);
    ++control->lane_switches;
    switch_fiber(&main_fiber, &lane.fiber);
  }
  release_exchanges(block);
  release_barrier(block);
  if (block.live == 0) end_block(block);
}

inline void make_block(Block& block) {
  block.lanes = new LaneState[lanes_per_block];
  block.order = new u32[lanes_per_block];
  const u32* const dim = control->block_dim;
  const u32* const grid = control->grid;
  for (u32 i = 0; i < lanes_per_block; ++i) {
    LaneState& lane = block.lanes[i];
    lane.thread = {i % dim[0], i / dim[0] % dim[1], i / dim[0] / dim[1]};
    lane.block_dim = {dim[0], dim[1], dim[2]};
    lane.grid_dim = {grid[0], grid[1], grid[2]};
    lane.owner = &block;
    lane.number = i;
    make_fiber(&lane.fiber, lane_main);
    block.order[i] = control->lane_order == Order::reverse ? lanes_per_block - 1 - i : i;
  }
}

inline void run_grid() {
  random_state = control->seed;
  const u32* const dim = control->block_dim;
  const u32* const grid = control->grid;
  lanes_per_block = dim[0] * dim[1] * dim[2];
  block_total = u64{grid[0]} * grid[1] * grid[2];
  if (control->block_order == Order::random) {
    block_sequence = new u64[block_total];
    for (u64 i = 0; i < block_total; ++i) block_sequence[i] = i;
    shuffle_sequence(block_sequence, block_total);
  }
  const u64 wanted = control->resident_blocks;
  const u32 resident = static_cast<u32>(wanted < block_total ? wanted : block_total);
  blocks = new Block[resident];
  u32* const turns = new u32[resident];
  for (u32 i = 0; i < resident; ++i) {
    make_block(blocks[i]);
    turns[i] = i;
  }
  for (bool is_working = true; is_working;) {
    is_working = false;
    if (control->block_order == Order::random) shuffle_sequence(turns, resident);
    for (u32 i = 0; i < resident; ++i) {
      Block& block = blocks[turns[i]];
      if (!block.in_use && blocks_started < block_total) begin_block(block);
      if (!block.in_use) continue;
      is_working = true;
      run_phase(block);
    }
  }
}

}  // namespace tf_sim
