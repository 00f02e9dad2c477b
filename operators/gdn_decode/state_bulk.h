#pragma once

// The recurrence of one token over a [V, K] state by the copy engine of sm_90: each warp walks over
// chunks of rows of its own, with kStages of them in shared memory: one computed in place, the
// others on their way in or out. No barrier of the block, and few registers.

#include "state.h"

#if TF_BULK
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kStages = 3;
constexpr int kChunkRows = 4096 / (TF_K * static_cast<int>(sizeof(State)));
constexpr int kChunkElements = kChunkRows * TF_K;
constexpr int kChunkBytes = kChunkElements * static_cast<int>(sizeof(State));
constexpr int kChunks = TF_G * kHeadValues / kChunkRows;
static_assert(TF_KEYS_LAST && kOneToken && kIsWhole, "the plan asks for nothing else");
static_assert(kHeadValues % kChunkRows == 0, "a chunk belongs to one value head");
static_assert(kChunkRows % (32 / kLanes) == 0, "a warp computes whole chunks");

struct BulkPipeline {
  State* stages;  // Of this warp, in shared memory: [kStages][kChunkElements]
  tf::BulkBarrier* barriers;
  int warp, lane;

  // `memory`: kWarps * kStages chunks; `all_barriers`: as many barriers.
  TF_DEVICE BulkPipeline(State* memory, tf::BulkBarrier* all_barriers)
      : warp(static_cast<int>(tf::thread_x()) / 32), lane(static_cast<int>(tf::thread_x()) % 32) {
    stages = memory + warp * kStages * kChunkElements;
    barriers = all_barriers + warp * kStages;
  }

  // The i-th chunk of this warp, from the beginning of the key head's state.
  TF_DEVICE tf::i32 chunk_offset(int i, int part) const {
    const int row = (warp + i * kWarps) * kChunkRows;
    return (row / kHeadValues * TF_V + part * kHeadValues + row % kHeadValues) * TF_K;
  }
  TF_DEVICE bool has(int i) const { return warp + i * kWarps < kChunks; }
  TF_DEVICE State* stage(int i) const { return stages + i % kStages * kChunkElements; }

  TF_DEVICE void load_chunk(int i, const State* from, int part) const {
    tf::bulk_load(stage(i), from + chunk_offset(i, part), kChunkBytes, barriers[i % kStages]);
  }

  TF_DEVICE void start(const State* from, int part) const {
    if (lane == 0) {
      for (int i = 0; i < kStages; ++i) barriers[i].init();
      for (int i = 0; i < kStages - 1; ++i) {
        if (has(i)) load_chunk(i, from, part);
      }
    }
    __syncwarp();
  }

  TF_DEVICE void run(const State* from, State* to, float* shared, int part) const {
    const Keys keys = keys_of(shared, lane % kLanes);
    const int own_lane = lane % kLanes;
    for (int i = 0; has(i); ++i) {
      if (lane == 0 && has(i + kStages - 1)) {
        // The chunk before this one was stored from that stage.
        tf::bulk_wait_read();
        load_chunk(i + kStages - 1, from, part);
      }
      barriers[i % kStages].wait(static_cast<tf::u32>(i / kStages & 1));
      State* const chunk = stage(i);
      TF_UNROLL for (int first = 0; first < kChunkRows; first += 32 / kLanes) {
        const int row = first + lane / kLanes;
        State* const own = chunk + row * TF_K + own_lane * kVector;
        RawTile raw;
        load(raw, own, true, own_lane);
        Tile tile = widened(raw);
        apply(tile, keys, shared, (warp + i * kWarps) * kChunkRows + row, true, own_lane);
        raw = narrowed(tile);
        TF_UNROLL for (int a = 0; a < kAccesses; ++a) {
          tf::store(own + a * kAccessStride, raw.raw[a]);
        }
      }
      tf::bulk_fence();
      __syncwarp();
      if (lane == 0 && to) tf::bulk_store(to + chunk_offset(i, part), chunk, kChunkBytes);
    }
  }

  // Before the block ends: its shared memory must have been read.
  TF_DEVICE void finish() const {
    if (lane == 0) tf::bulk_wait_read();
  }
};

}  // namespace
#endif
