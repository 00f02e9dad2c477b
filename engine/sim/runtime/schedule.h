#pragma once

#include "truefuse/sim/block.h"
#include "truefuse/sim/collective.h"
#include "truefuse/sim/race.h"

#include <stdlib.h>
#include <string.h>

// Runs the blocks of a grid, a few at a time. In each round every ready lane of a block, in the
// chosen order, runs until it waits, gives way or returns; then whatever is complete is released:
// the collectives of a wave, the barrier of the block. What can never complete is reported.

namespace tf_sim {

inline void** arguments;
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
  for (u32 i = 0; i < lanes_per_block; ++i) {
    LaneState& lane = block.lanes[i];
    lane.wait = Wait::none;
    block.known.add(lane.known);
    lane.known.clear();
  }
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
  block.known.clear();
  block.dynamic_region = make_shared(control->shared_bytes);
  race_begin_shared(block.dynamic_region);
  for (u32 i = 0; i < lanes_per_block; ++i) {
    LaneState& lane = block.lanes[i];
    lane.block = index;
    lane.wait = Wait::none;
    lane.has_waited = false;
    lane.known.clear();
    lane.seen.clear();
    lane.announced.clear();
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

inline void run_lane(LaneState& lane) {
  if (lane.wait != Wait::none) return;
  current_lane = &lane;
  set_running(lane);
  race_lane(lane);
  ++control->lane_switches;
  switch_fiber(&main_fiber, &lane.fiber);
}

inline void begin_round(Block& block) {
  if (!block.in_use && blocks_started < block_total) begin_block(block);
  if (block.in_use && control->lane_order == Order::random) {
    shuffle_sequence(block.order, lanes_per_block);
  }
}

inline void end_round(Block& block) {
  release_collectives(block);
  release_barrier(block);
  if (block.live == 0) end_block(block);
}

inline void make_block(Block& block) {
  block.lanes = new LaneState[lanes_per_block];
  block.wave_phases = new u32[lanes_per_block / static_cast<u32>(wave) + 1]();
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
  const bool is_interleaved = control->block_order == Order::interleaved;
  for (bool is_working = true; is_working;) {
    is_working = false;
    if (control->block_order == Order::random) shuffle_sequence(turns, resident);
    // All blocks of a group get a lane's turn before the next lane does.
    const u32 group = is_interleaved ? resident : 1;
    for (u32 first = 0; first < resident; first += group) {
      for (u32 i = first; i < first + group; ++i) begin_round(blocks[turns[i]]);
      for (u32 lane = 0; lane < lanes_per_block; ++lane) {
        for (u32 i = first; i < first + group; ++i) {
          Block& block = blocks[turns[i]];
          if (block.in_use) run_lane(block.lanes[block.order[lane]]);
        }
      }
      for (u32 i = first; i < first + group; ++i) {
        Block& block = blocks[turns[i]];
        if (!block.in_use) continue;
        is_working = true;
        end_round(block);
      }
    }
  }
}

}  // namespace tf_sim
