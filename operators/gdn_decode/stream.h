#pragma once

// The form for many tasks on NVIDIA sm_90 and later: blocks that stay and walk over tasks, so that
// the memory never waits for a task's inputs or outputs. kStreamWarps warps do nothing but the
// recurrence: the copy engine brings chunks of the state into shared memory and takes them back,
// for each warp its own, across the borders between tasks. The other warps take in the next task's
// inputs and write the last one's outputs meanwhile. One token, a [V, K] state, a history that is
// no longer than the window and one more column.
//
// What bounds it is where the blocks are at a time: on an H200 a plain update in place of 100 and
// 400 MB takes 1.07 times the best time where each block walks over 192 KB of its own and all begin
// at the same place of them, 1.05 where each warp has a range of these and every block begins at
// another place of it.

#include "inputs.h"
#include "output.h"
#include "state.h"

namespace {

constexpr int kStreamWarps = 8;
constexpr int kChunkRows = TF_CHUNK_ROWS;
constexpr int kChunkElements = kChunkRows * TF_K;
constexpr int kChunkBytes = kChunkElements * static_cast<int>(sizeof(State));
constexpr int kStages = 12288 / kChunkBytes;
constexpr int kChunks = TF_G * TF_V / kChunkRows;
constexpr int kOwnChunks = kChunks / kStreamWarps;
constexpr tf::Eviction kOfLoads = TF_OVERFLOWS ? tf::Eviction::kLast : tf::Eviction::kNormal;
constexpr tf::Eviction kOfStores = TF_OVERFLOWS ? tf::Eviction::kFirst : tf::Eviction::kNormal;
static_assert(TF_KEYS_LAST && kOneToken && kIsWhole && TF_SPLIT == 1,
              "the plan asks for nothing else");
static_assert(TF_V % kChunkRows == 0, "a chunk belongs to one value head");
static_assert(kChunks % kStreamWarps == 0, "each warp has as many chunks of a task");
static_assert(kChunkRows % (32 / kLanes) == 0, "a warp computes whole chunks");

// What the two kinds of warps give each other. Task n of a block uses buffer n % 2.
struct Exchange {
  tf::PhaseBarrier inputs[2];  // The buffer holds a task's inputs;
  tf::PhaseBarrier cores[2];   // its core is complete.
  tf::PhaseBarrier chunks[kStreamWarps * kStages];
};
constexpr int kBuffer = (kToken + 3) / 4 * 4;  // Of floats, so that what follows is aligned.

class Stream {
 public:
  TF_DEVICE Stream(const Step& step, float* buffers, Exchange& exchange)
      : step_(step),
        tasks_(static_cast<tf::u32>(step.sizes.tasks)),
        buffers_(buffers),
        exchange_(exchange),
        warp_(static_cast<int>(tf::thread_x()) / 32),
        lane_(static_cast<int>(tf::thread_x()) % 32) {
    State* const stages = reinterpret_cast<State*>(buffers + 2 * kBuffer);
    stages_ = stages + warp_ * kStages * kChunkElements;
    barriers_ = exchange.chunks + warp_ * kStages;
    if (lane_ == 0) {
      for (int i = 0; i < kStages; ++i) barriers_[i].init(1);
    }
    __syncwarp();
    asked_.task = tf::block_x();
    find_slot();
    for (int i = 0; i < kStages - 1; ++i) ask();
  }

  TF_DEVICE void run() {
    tf::u32 number = 0;
    tf::u32 computed = 0;  // Chunks.
    for (tf::u32 n = tf::block_x(); n < tasks_; n += tf::grid_dim_x(), ++number) {
      float* const token = buffers_ + number % 2 * kBuffer;
      const Task task = task_with_slots(step_, n);
      State* const target = task.read < 0 ? nullptr : state_after(step_, task, 0);
      exchange_.inputs[number % 2].wait(number / 2 % 2);
      if (task.read >= 0) {
        const Keys keys = keys_of(token, lane_ % kLanes);
        for (int i = 0; i < kOwnChunks; ++i, ++computed) {
          // The stage of the chunk before this one is free once that chunk has been taken back.
          if (lane_ == 0) tf::bulk_wait_read();
          ask();
          const int stage = static_cast<int>(computed % kStages);
          State* const chunk = stages_ + stage * kChunkElements;
          barriers_[stage].wait(computed / kStages % 2);
          compute(chunk, keys, token, i);
          tf::bulk_fence();
          __syncwarp();
          if (lane_ == 0 && target) {
            tf::bulk_store<kOfStores>(target + offset_of_chunk(i), chunk, kChunkBytes);
          }
        }
      }
      __syncwarp();
      if (lane_ == 0) exchange_.cores[number % 2].arrive();
    }
    if (lane_ == 0) tf::bulk_wait_read();
  }

 private:
  // The chunk that is asked for next: kStages - 1 before the one that is computed, and so maybe of
  // a later task.
  struct Asked {
    tf::u32 task;
    tf::i64 read;  // Slot.
    int chunk = 0;
    tf::u32 count = 0;  // Chunks before it.
  };

  // Of the next task that is no padding.
  TF_DEVICE void find_slot() {
    for (; asked_.task < tasks_; asked_.task += tf::grid_dim_x()) {
      asked_.read = task_with_slots(step_, asked_.task).read;
      if (asked_.read >= 0) return;
    }
  }
  TF_DEVICE void ask() {
    if (asked_.task >= tasks_) return;
    if (lane_ == 0) {
      const State* const from = step_.state + asked_.read * step_.sizes.state_slot +
                                static_cast<tf::i64>(asked_.task % TF_H) * (TF_G * TF_K * TF_V);
      const int stage = static_cast<int>(asked_.count % kStages);
      tf::bulk_load<kOfLoads>(stages_ + stage * kChunkElements,
                              from + offset_of_chunk(asked_.chunk), kChunkBytes, barriers_[stage]);
    }
    ++asked_.count;
    if (++asked_.chunk < kOwnChunks) return;
    asked_.chunk = 0;
    asked_.task += tf::grid_dim_x();
    find_slot();
  }

  // The warp's i-th chunk of a task: its first row among the block's, and where that is in the
  // task's state.
  TF_DEVICE int row_of_chunk(int i) const {
    const int turned = static_cast<int>((static_cast<tf::u32>(i) + tf::block_x()) % kOwnChunks);
    return (warp_ * kOwnChunks + turned) * kChunkRows;
  }
  TF_DEVICE tf::i32 offset_of_chunk(int i) const { return row_of_chunk(i) * TF_K; }

  TF_DEVICE void compute(State* chunk, const Keys& keys, float* token, int i) const {
    const int own_lane = lane_ % kLanes;
    TF_UNROLL for (int first = 0; first < kChunkRows; first += 32 / kLanes) {
      const int row = first + lane_ / kLanes;
      State* const own = chunk + row * TF_K + own_lane * kVector;
      RawTile raw;
      load(raw, own, true, own_lane);
      Tile tile = widened(raw);
      apply(tile, keys, token, row_of_chunk(i) + row, true, own_lane);
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
  Asked asked_;
};

// The warps at both ends of the stream; `thread` of kThreads.
class Ends {
 public:
  TF_DEVICE Ends(const Step& step, float* buffers, Exchange& exchange, int thread)
      : step_(step), buffers_(buffers), exchange_(exchange), thread_(thread) {}

  TF_DEVICE void run() {
    const auto tasks = static_cast<tf::u32>(step_.sizes.tasks);
    tf::u32 number = 0;
    for (tf::u32 n = tf::block_x(); n < tasks; n += tf::grid_dim_x(), ++number) {
      // The whole block has taken in the first task's.
      if (number > 0) take_in_task(n, buffers_ + number % 2 * kBuffer);
      exchange_.inputs[number % 2].arrive();
      if (number > 0) write(n - tf::grid_dim_x(), number - 1);
      // The next task's inputs go where these outputs came from.
      asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
    }
    if (number > 0) write(tf::block_x() + (number - 1) * tf::grid_dim_x(), number - 1);
  }

 private:
  static constexpr int kRounds = (TF_G + kHeadsAtOnce - 1) / kHeadsAtOnce;

  TF_DEVICE int head_of(int round) const { return round * kHeadsAtOnce + thread_ / 32; }

  TF_DEVICE void take_in_task(tf::u32 n, float* token) const {
    const Task task = task_with_slots(step_, n);
    if (task.read < 0) return;
    Inputs inputs[1];  // There is time: pass after pass, for the sake of registers.
    TakeIn<kThreads, 1> take_in(inputs, step_, thread_);
    take_in.ask(task);
    take_in.finish(task, token);
  }

  TF_DEVICE void write(tf::u32 n, tf::u32 number) {
    const Task task = task_with_slots(step_, n);
    const int lane = thread_ % 32;
    const bool is_padding = task.read < 0;
    OutputInputs inputs[kRounds];
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      if (head_of(round) < TF_G) inputs[round].read(step_, task, head_of(round), lane);
    }
    exchange_.cores[number % 2].wait(number / 2 % 2);
    const float* const core = buffers_ + number % 2 * kBuffer + kCore;
    float squares[kRounds];
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      const int g = head_of(round);
      squares[round] = 0.0f;
      if (TF_NORM < 0 || g >= TF_G || is_padding) continue;
      squares[round] = sum_of_squares(core + g * TF_V, lane);
    }
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      const int g = head_of(round);
      if (g >= TF_G) continue;
      Row* const target = output_of(step_, task, 0, g);
      if (is_padding) {
        write_zeros(target, lane);
      } else {
        write_output(target, core + g * TF_V, inputs[round],
                     tf::rsqrt(squares[round] / TF_V + step_.sizes.norm_eps), lane);
      }
    }
  }

  const Step& step_;
  float* buffers_;
  Exchange& exchange_;
  int thread_;
};

// By all threads; the barriers are there for all of them afterwards, too.
TF_DEVICE void take_in_first_task(const Step& step, float* token) {
  constexpr int kAll = kStreamWarps * 32 + kThreads;
  const Task task = task_with_slots(step, tf::block_x());
  if (task.read >= 0) {
    Inputs inputs[passes(kAll)];
    TakeIn<kAll, passes(kAll)> take_in(inputs, step, static_cast<int>(tf::thread_x()));
    take_in.ask(task);
    take_in.finish(task, token);
  }
  tf::block_sync();
}

TF_DEVICE void stream(const Step& step) {
  TF_SHARED_DYNAMIC(float, buffers);
  TF_SHARED(Exchange, exchange, 1);
  const int thread = static_cast<int>(tf::thread_x());
  if (thread == 0) {
    for (int i = 0; i < 2; ++i) {
      exchange[0].inputs[i].init(kThreads);
      exchange[0].cores[i].init(kStreamWarps);
    }
  }
  if (thread < kStreamWarps * 32) {
    Stream stream(step, buffers, exchange[0]);
    take_in_first_task(step, buffers);
    stream.run();
  } else {
    take_in_first_task(step, buffers);
    Ends(step, buffers, exchange[0], thread - kStreamWarps * 32).run();
  }
}

}  // namespace
