#pragma once

#include "truefuse/sim/block.h"

#include <string.h>

// What the lanes of a wave do together: all of them arrive, then all are released.

namespace tf_sim {

/// As tf::detail::Exchange numbers them.
enum Collective { kShuffleXor, kShuffleDown, kShuffle, kShuffleUp, kBallot, kWaveSync };

inline const char* name_of(int kind) {
  static const char* const names[] = {"shuffle_xor", "shuffle_down", "shuffle",
                                      "shuffle_up",  "ballot",       "wave_sync"};
  return names[kind];
}

inline bool same_collective(const LaneState& a, const LaneState& b) {
  return a.site.line == b.site.line && strcmp(a.site.file, b.site.file) == 0 && a.kind == b.kind &&
         a.width == b.width;
}

/// The lane of the wave that `lane` (at `position` of it) reads from.
inline u32 source_of(const LaneState& lane, u32 position) {
  const u32 width = static_cast<u32>(lane.width);
  const u32 operand = static_cast<u32>(lane.operand);
  const bool is_distance = lane.kind == kShuffleDown || lane.kind == kShuffleUp;
  if (lane.operand < 0 || (!is_distance && operand >= width)) {
    fail_at(lane, Fault::operand_out_of_range, nullptr,
            "%s over subgroups of %d lanes is called with %d", name_of(lane.kind), lane.width,
            lane.operand);
  }
  const u32 in_group = position & (width - 1);
  switch (lane.kind) {
    case kShuffleXor:
      return position ^ operand;
    case kShuffleDown:
      return in_group + operand < width ? position + operand : position;
    case kShuffleUp:
      return in_group >= operand ? position - operand : position;
    default:
      return position - in_group + operand;
  }
}

/// Lanes that have returned do not vote.
inline u64 votes_of(const LaneState* lanes, u32 count, const LaneState& lane, u32 position) {
  const u32 width = static_cast<u32>(lane.width);
  const u32 begin = position & ~(width - 1);
  u64 votes = 0;
  for (u32 i = 0; i < width && begin + i < count; ++i) {
    if (lanes[begin + i].wait != Wait::returned && lanes[begin + i].bits != 0) votes |= 1ull << i;
  }
  return votes;
}

/// From here on every lane of the wave knows what each of them knew.
inline void wave_meets(LaneState* lanes, u32 count) {
  ++lanes[0].owner->wave_phases[lanes[0].number / static_cast<u32>(wave)];
  for (u32 i = 1; i < count; ++i) lanes[0].known.add(lanes[i].known);
  for (u32 i = 1; i < count; ++i) lanes[i].known.add(lanes[0].known);
}

/// The first lane of a wave that waits in an exchange is given.
inline void release_collective(LaneState* lanes, u32 count, const LaneState& first) {
  for (u32 i = 0; i < count; ++i) {
    const LaneState& lane = lanes[i];
    if (lane.wait == Wait::returned) continue;
    if (lane.wait == Wait::none) return;  // It has given way and is still on its way here.
    if (lane.wait == Wait::barrier) {
      fail_at(first, Fault::divergent_collective, &lane.site,
              "lane %u of the block waits in %s for its wave, while lane %u waits at the block's "
              "barrier",
              first.number, name_of(first.kind), lane.number);
    }
    if (!same_collective(first, lane)) {
      fail_at(first, Fault::divergent_collective, &lane.site,
              "lane %u of the block is in %s<%d>, lane %u of the same wave in %s<%d> elsewhere",
              first.number, name_of(first.kind), first.width, lane.number, name_of(lane.kind),
              lane.width);
    }
  }
  for (u32 i = 0; i < count; ++i) {
    LaneState& lane = lanes[i];
    if (lane.wait == Wait::returned || lane.kind == kWaveSync) continue;
    if (lane.kind == kBallot) {
      lane.result = votes_of(lanes, count, lane, i);
      continue;
    }
    const u32 source = source_of(lane, i);
    if (source >= count || lanes[source].wait == Wait::returned) {
      fail_at(lane, Fault::exited_lane_read, nullptr,
              "%s<%d>: lane %u of the block reads lane %u, which %s", name_of(lane.kind),
              lane.width, lane.number, lanes[0].number + source,
              source >= count ? "the block does not have" : "has returned");
    }
    lane.result = lanes[source].bits;
  }
  if (first.kind == kWaveSync) wave_meets(lanes, count);
  for (u32 i = 0; i < count; ++i) {
    if (lanes[i].wait == Wait::exchange) lanes[i].wait = Wait::none;
  }
}

inline void release_collectives(Block& block) {
  const u32 wave_size = static_cast<u32>(wave);
  for (u32 begin = 0; begin < lanes_per_block; begin += wave_size) {
    const u32 left = lanes_per_block - begin;
    const u32 count = left < wave_size ? left : wave_size;
    LaneState* const lanes = block.lanes + begin;
    for (u32 i = 0; i < count; ++i) {
      if (lanes[i].wait == Wait::exchange) {
        release_collective(lanes, count, lanes[i]);
        break;
      }
    }
  }
}

}  // namespace tf_sim
