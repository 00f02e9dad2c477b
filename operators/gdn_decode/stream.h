#pragma once

// The form for many tasks on NVIDIA sm_90 and later: blocks that stay and walk over tasks, so that
// the memory never waits for a task's inputs or outputs. kStreamWarps warps do nothing but the
// recurrence: the copy engine brings chunks of the state into shared memory and takes them back,
// for each warp its own, across the borders between tasks. The other warps take in the next task's
// inputs and write the last one's outputs meanwhile. One token, a [V, K] state, a history that is
// no longer than the window and one more column.

#include "inputs.h"
#include "output.h"
#include "state.h"

namespace {

constexpr int kStreamWarps = 8;
constexpr int kStages = 3;
constexpr int kChunkRows = 4096 / (TF_K * static_cast<int>(sizeof(State)));
constexpr int kChunkElements = kChunkRows * TF_K;
constexpr int kChunkBytes = kChunkElements * static_cast<int>(sizeof(State));
constexpr int kChunks = TF_G * TF_V / kChunkRows;
constexpr int kOwnChunks = kChunks / kStreamWarps;
static_assert(TF_KEYS_LAST && kOneToken && kIsWhole && TF_SPLIT == 1);
static_assert(TF_V % kChunkRows == 0, "a chunk belongs to one value head");
static_assert(kChunks % kStreamWarps == 0, "each warp has as many chunks of a task");
static_assert(kChunkRows % (32 / kLanes) == 0, "a warp computes whole chunks");

// What the two kinds of warps give each other; task n of a block uses buffer n % 2.
struct Exchange {
  tf::PhaseBarrier inputs[2];  // The buffer holds a task's inputs;
  tf::PhaseBarrier cores[2];   // its core is complete.
  tf::PhaseBarrier chunks[kStreamWarps * kStages];
};
constexpr int kBuffer = (kToken + 3) / 4 * 4;  // Of floats, so that what follows is aligned.

// The chunks of one warp, task after task. Two of these walk over the same chunks: one asks for
// them, the other computes.
struct ChunkWalk {
  tf::u32 task;         // Number of the task,
  tf::i64 read;         // the slot that it reads,
  int chunk = 0;        // which of the warp's chunks of it is next;
  tf::u32 counter = 0;  // how many chunks came before.

  TF_DEVICE bool has_more(tf::u32 tasks) const { return task < tasks; }
  TF_DEVICE int stage() const { return static_cast<int>(counter % kStages); }
};

class Stream {
 public:
  TF_DEVICE Stream(const Step& step, tf::u32 tasks, float* buffers, Exchange& exchange)
      : step_(step),
        tasks_(tasks),
        buffers_(buffers),
        exchange_(exchange),
        warp_(static_cast<int>(tf::thread_x()) / 32),
        lane_(static_cast<int>(tf::thread_x()) % 32) {
    State* const stages = reinterpret_cast<State*>(buffers + 2 * kBuffer);
    stages_ = stages + warp_ * kStages * kChunkElements;
    barriers_ = exchange.chunks + warp_ * kStages;
  }

  TF_DEVICE void run() {
    ChunkWalk asked = first_task();
    for (int i = 0; i < kStages - 1; ++i) ask(asked);
    tf::u32 number = 0;
    tf::u32 computed = 0;  // Chunks.
    for (tf::u32 n = tf::block_x(); n < tasks_; n += tf::grid_dim_x(), ++number) {
      float* const token = buffers_ + number % 2 * kBuffer;
      const Task task = task_number(step_, n, 0);
      State* const target = task.read < 0 ? nullptr : state_after(step_, task, 0);
      exchange_.inputs[number % 2].wait(number / 2 % 2);
      if (task.read >= 0) {
        const Keys keys = keys_of(token, lane_ % kLanes);
        for (int i = 0; i < kOwnChunks; ++i, ++computed) {
          // The stage of the chunk before this one is free once that chunk has been taken back.
          if (lane_ == 0) tf::bulk_wait_read();
          ask(asked);
          const int stage = static_cast<int>(computed % kStages);
          barriers_[stage].wait(computed / kStages % 2);
          compute(stages_ + stage * kChunkElements, keys, token, i);
          tf::bulk_fence();
          __syncwarp();
          if (lane_ == 0 && target) {
            tf::bulk_store(target + offset_of_chunk(i), stages_ + stage * kChunkElements,
                           kChunkBytes);
          }
        }
      }
      __syncwarp();
      if (lane_ == 0) exchange_.cores[number % 2].arrive();
    }
    if (lane_ == 0) tf::bulk_wait_read();
  }

 private:
  TF_DEVICE ChunkWalk first_task() const {
    ChunkWalk walk;
    walk.task = tf::block_x();
    settle(walk);
    return walk;
  }
  // Finds the slot of the walk's task, or of the next one that is no padding.
  TF_DEVICE void settle(ChunkWalk& walk) const {
    for (; walk.has_more(tasks_); walk.task += tf::grid_dim_x()) {
      walk.read = task_number(step_, walk.task, 0).read;
      if (walk.read >= 0) return;
    }
  }
  // Of the warp's i-th chunk of a task, from the beginning of the task's state.
  TF_DEVICE tf::i32 offset_of_chunk(int i) const {
    return (warp_ + i * kStreamWarps) * kChunkElements;
  }
  TF_DEVICE void ask(ChunkWalk& walk) const {
    if (!walk.has_more(tasks_)) return;
    if (lane_ == 0) {
      const State* const from = step_.state + walk.read * step_.sizes.state_slot +
                                static_cast<tf::i64>(walk.task % TF_H) * (TF_G * TF_K * TF_V);
      tf::bulk_load(stages_ + walk.stage() * kChunkElements, from + offset_of_chunk(walk.chunk),
                    kChunkBytes, barriers_[walk.stage()]);
    }
    ++walk.counter;
    if (++walk.chunk < kOwnChunks) return;
    walk.chunk = 0;
    walk.task += tf::grid_dim_x();
    settle(walk);
  }
  TF_DEVICE void compute(State* chunk, const Keys& keys, float* token, int i) const {
    const int own_lane = lane_ % kLanes;
    TF_UNROLL for (int first = 0; first < kChunkRows; first += 32 / kLanes) {
      const int row = first + lane_ / kLanes;
      State* const own = chunk + row * TF_K + own_lane * kVector;
      RawTile raw;
      load(raw, own, true, own_lane);
      Tile tile = widened(raw);
      apply(tile, keys, token, (warp_ + i * kStreamWarps) * kChunkRows + row, true, own_lane);
      raw = narrowed(tile);
      TF_UNROLL for (int access = 0; access < kAccesses; ++access) {
        tf::store(own + access * kAccessStride, raw.raw[access]);
      }
    }
  }

  const Step& step_;
  tf::u32 tasks_;
  float* buffers_;
  Exchange& exchange_;
  int warp_, lane_;
  State* stages_;
  tf::PhaseBarrier* barriers_;
};

// The warps at both ends of the stream; `thread` of kThreads.
class Ends {
 public:
  TF_DEVICE Ends(const Step& step, tf::u32 tasks, float* buffers, Exchange& exchange, int thread)
      : step_(step), tasks_(tasks), buffers_(buffers), exchange_(exchange), thread_(thread) {}

  TF_DEVICE void run() {
    tf::u32 number = 0;
    for (tf::u32 n = tf::block_x(); n < tasks_; n += tf::grid_dim_x(), ++number) {
      const Task task = task_number(step_, n, 0);
      Inputs inputs[kPassesAtOnce];
      if (task.read >= 0) take_in(inputs, step_, task, thread_, buffers_ + number % 2 * kBuffer);
      exchange_.inputs[number % 2].arrive();
      if (number > 0) write(n - tf::grid_dim_x(), number - 1);
      // The next task's inputs go where these outputs came from.
      asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
    }
    if (number > 0) write(tf::block_x() + (number - 1) * tf::grid_dim_x(), number - 1);
  }

 private:
  static constexpr int kRoundsOfHeads = (TF_G + kHeadsAtOnce - 1) / kHeadsAtOnce;

  TF_DEVICE int head_of(int round) const { return round * kHeadsAtOnce + thread_ / 32; }

  TF_DEVICE void write(tf::u32 n, tf::u32 number) const {
    const Task task = task_number(step_, n, 0);
    const int lane = thread_ % 32;
    OutputInputs inputs[kRoundsOfHeads];
    TF_UNROLL for (int round = 0; round < kRoundsOfHeads; ++round) {
      if (head_of(round) < TF_G) inputs[round].read(step_, task, head_of(round), lane);
    }
    exchange_.cores[number % 2].wait(number / 2 % 2);
    const float* const token = buffers_ + number % 2 * kBuffer;
    TF_UNROLL for (int round = 0; round < kRoundsOfHeads; ++round) {
      const int g = head_of(round);
      if (g >= TF_G) continue;
      Row* const target = output_of(step_, task, 0, g);
      if (task.read < 0) {
        write_zeros(target, lane);
        continue;
      }
      const float* const core = token + kCore + g * TF_V;
      const float squares = TF_NORM >= 0 ? sum_of_squares(core, lane) : 0.0f;
      write_output(target, core, inputs[round], tf::rsqrt(squares / TF_V + step_.sizes.norm_eps),
                   lane);
    }
  }

  const Step& step_;
  tf::u32 tasks_;
  float* buffers_;
  Exchange& exchange_;
  int thread_;
};

TF_DEVICE void stream(const Step& step, tf::u32 tasks) {
  TF_SHARED_DYNAMIC(float, buffers);
  TF_SHARED(Exchange, exchange, 1);
  const int thread = static_cast<int>(tf::thread_x());
  if (thread == 0) {
    for (int i = 0; i < 2; ++i) {
      exchange[0].inputs[i].init(kThreads);
      exchange[0].cores[i].init(kStreamWarps);
    }
    for (tf::PhaseBarrier& barrier : exchange[0].chunks) barrier.init(1);
  }
  tf::block_sync();
  if (thread < kStreamWarps * 32) {
    Stream(step, tasks, buffers, exchange[0]).run();
  } else {
    Ends(step, tasks, buffers, exchange[0], thread - kStreamWarps * 32).run();
  }
}

}  // namespace
