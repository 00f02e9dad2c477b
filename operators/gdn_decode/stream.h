#pragma once

// The form for many tasks on NVIDIA sm_90 and later: blocks that stay and walk over tasks, so that
// the memory never waits for a task's inputs or outputs. kStreamWarps warps do nothing but the
// recurrence: the copy engine brings chunks of the state into shared memory and takes them back,
// for each warp its own, across the borders between tasks. The other warps take in the next task's
// inputs and write the last one's outputs meanwhile. One token, a [V, K] state, a history that is
// no longer than the window and one more column.
//
// The blocks of a cluster share each key head, so that what is read and written at a time lies
// close together. Memory likes that: a plain update in place of 100 and 400 MB on an H200 took 1.13
// and 1.09 times as long as the best where each block walked over 192 KB of its own, 1.03 where it
// was 32 KB.

#include "inputs.h"
#include "output.h"
#include "state.h"

namespace {

constexpr int kStreamWarps = 8;
constexpr int kChunkRows = TF_CHUNK_ROWS;
constexpr int kChunkElements = kChunkRows * TF_K;
constexpr int kChunkBytes = kChunkElements * static_cast<int>(sizeof(State));
constexpr int kStages = 12288 / kChunkBytes;
constexpr int kChunks = TF_G * kHeadValues / kChunkRows;
constexpr int kOwnChunks = kChunks / kStreamWarps;
static_assert(TF_KEYS_LAST && kOneToken && kIsWhole, "the plan asks for nothing else");
static_assert(kHeadValues % kChunkRows == 0, "a chunk belongs to one value head");
static_assert(kChunks % kStreamWarps == 0, "each warp has as many chunks of a task");
static_assert(kChunkRows % (32 / kLanes) == 0, "a warp computes whole chunks");
static_assert(TF_SPLIT == 1 || 2 * TF_K <= kThreads * kTogether,
              "query and key are taken in by the first pass");

// What warps, and blocks of a cluster, give each other. Task n of a block uses buffer n % 2.
struct Exchange {
  tf::PhaseBarrier inputs[2];  // The buffer holds a task's inputs;
  tf::PhaseBarrier cores[2];   // its core is complete.
  tf::PhaseBarrier chunks[kStreamWarps * kStages];
#if TF_SPLIT > 1
  tf::PhaseBarrier histories;  // Every block has read the histories of query and key;
  tf::PhaseBarrier sums[2];    // has given its sums of squares.
  float squares[2][TF_SPLIT * TF_G];
#endif
};
constexpr int kBuffer = (kToken + 3) / 4 * 4;  // Of floats, so that what follows is aligned.

// A cluster's walk over the tasks, and the part of each that is this block's.
TF_DEVICE tf::u32 first_task() { return tf::block_x() / TF_SPLIT; }
TF_DEVICE tf::u32 task_stride() { return tf::grid_dim_x() / TF_SPLIT; }
TF_DEVICE int own_part() { return static_cast<int>(tf::block_x() % TF_SPLIT); }

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
  }

  TF_DEVICE void run() {
    asked_.task = first_task();
    find_slot();
    for (int i = 0; i < kStages - 1; ++i) ask();
    tf::u32 number = 0;
    tf::u32 computed = 0;  // Chunks.
    for (tf::u32 n = first_task(); n < tasks_; n += task_stride(), ++number) {
      float* const token = buffers_ + number % 2 * kBuffer;
      const Task task = task_number(step_, n, own_part());
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
            tf::bulk_store(target + offset_of_chunk(i), chunk, kChunkBytes);
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
    for (; asked_.task < tasks_; asked_.task += task_stride()) {
      asked_.read = task_number(step_, asked_.task, own_part()).read;
      if (asked_.read >= 0) return;
    }
  }
  TF_DEVICE void ask() {
    if (asked_.task >= tasks_) return;
    if (lane_ == 0) {
      const State* const from = step_.state + asked_.read * step_.sizes.state_slot +
                                static_cast<tf::i64>(asked_.task % TF_H) * (TF_G * TF_K * TF_V);
      const int stage = static_cast<int>(asked_.count % kStages);
      tf::bulk_load(stages_ + stage * kChunkElements, from + offset_of_chunk(asked_.chunk),
                    kChunkBytes, barriers_[stage]);
    }
    ++asked_.count;
    if (++asked_.chunk < kOwnChunks) return;
    asked_.chunk = 0;
    asked_.task += task_stride();
    find_slot();
  }

  // The warp's i-th chunk of a task: its first row among the block's, and where that is in the
  // task's state.
  TF_DEVICE int row_of_chunk(int i) const { return (warp_ + i * kStreamWarps) * kChunkRows; }
  TF_DEVICE tf::i32 offset_of_chunk(int i) const {
    const int row = row_of_chunk(i);
    return (row / kHeadValues * TF_V + own_part() * kHeadValues + row % kHeadValues) * TF_K;
  }

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
    for (tf::u32 n = first_task(); n < tasks; n += task_stride(), ++number) {
      const Task task = task_number(step_, n, own_part());
      Inputs inputs[kPassesAtOnce];
      if (task.read >= 0) take_in(inputs, step_, task, thread_, buffers_ + number % 2 * kBuffer);
      exchange_.inputs[number % 2].arrive();
#if TF_SPLIT > 1
      if (task.read >= 0) write_shared_history(task, inputs[0].window);
#endif
      if (number > 0) write(n - task_stride(), number - 1);
      // The next task's inputs go where these outputs came from.
      synchronise();
    }
    if (number > 0) write(first_task() + (number - 1) * task_stride(), number - 1);
  }

 private:
  static constexpr int kRounds = (TF_G + kHeadsAtOnce - 1) / kHeadsAtOnce;

  TF_DEVICE int head_of(int round) const { return round * kHeadsAtOnce + thread_ / 32; }
  TF_DEVICE static void synchronise() {
    asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory");
  }

  TF_DEVICE void write(tf::u32 n, tf::u32 number) {
    const Task task = task_number(step_, n, own_part());
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
      squares[round] = sum_of_squares(core + g * kHeadValues, lane);
    }
#if TF_SPLIT > 1 && TF_NORM >= 0
    if (!is_padding) add_other_blocks(squares);
#endif
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      const int g = head_of(round);
      if (g >= TF_G) continue;
      Row* const target = output_of(step_, task, 0, g);
      if (is_padding) {
        write_zeros(target, lane);
      } else {
        write_output(target, core + g * kHeadValues, inputs[round],
                     tf::rsqrt(squares[round] / TF_V + step_.sizes.norm_eps), lane);
      }
    }
  }

#if TF_SPLIT > 1
  // That of query and key, which all blocks read: each writes its share once they have.
  TF_DEVICE void write_shared_history(const Task& task, const Window& window) {
    synchronise();
    if (thread_ < TF_SPLIT) {
      tf::arrive_at_block(exchange_.histories, static_cast<tf::u32>(thread_));
    }
    tf::wait_for_cluster(exchange_.histories, histories_++ % 2);
    const int c = thread_ * kTogether;
    if (task.conv_write < 0 || c >= 2 * TF_K || c / (2 * TF_K / TF_SPLIT) != task.part) return;
    write_window(step_.conv_state + task.conv_write * step_.sizes.conv_slot +
                     channel_number(c, task).conv * step_.sizes.conv_channel,
                 window, step_.sizes);
  }

  TF_DEVICE void add_other_blocks(float (&squares)[kRounds]) {
    const int lane = thread_ % 32;
    tf::PhaseBarrier& barrier = exchange_.sums[sums_ % 2];
    float* const all = exchange_.squares[sums_ % 2];
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      const int g = head_of(round);
      if (g >= TF_G || lane >= TF_SPLIT) continue;
      tf::store_to_block(all + own_part() * TF_G + g, static_cast<tf::u32>(lane), squares[round]);
      tf::arrive_at_block(barrier, static_cast<tf::u32>(lane));
    }
    tf::wait_for_cluster(barrier, sums_ / 2 % 2);
    TF_UNROLL for (int round = 0; round < kRounds; ++round) {
      squares[round] = 0.0f;
      for (int part = 0; part < TF_SPLIT && head_of(round) < TF_G; ++part) {
        squares[round] += all[part * TF_G + head_of(round)];
      }
    }
    ++sums_;
  }

  tf::u32 histories_ = 0, sums_ = 0;  // Phases so far.
#endif

  const Step& step_;
  float* buffers_;
  Exchange& exchange_;
  int thread_;
};

TF_DEVICE void stream(const Step& step) {
  TF_SHARED_DYNAMIC(float, buffers);
  TF_SHARED(Exchange, exchange, 1);
  const int thread = static_cast<int>(tf::thread_x());
  if (thread == 0) {
    for (int i = 0; i < 2; ++i) {
      exchange[0].inputs[i].init(kThreads);
      exchange[0].cores[i].init(kStreamWarps);
    }
    for (tf::PhaseBarrier& barrier : exchange[0].chunks) barrier.init(1);
#if TF_SPLIT > 1
    exchange[0].histories.init(TF_SPLIT);
    for (tf::PhaseBarrier& barrier : exchange[0].sums) barrier.init(TF_SPLIT * TF_G);
#endif
  }
#if TF_SPLIT > 1
  // Before another block arrives at them.
  tf::cluster_arrive();
  tf::cluster_wait();
#else
  tf::block_sync();
#endif
  if (thread < kStreamWarps * 32) {
    Stream(step, buffers, exchange[0]).run();
  } else {
    Ends(step, buffers, exchange[0], thread - kStreamWarps * 32).run();
  }
#if TF_SPLIT > 1
  // No block ends while another may write into it. The branches come together first.
  __syncwarp();
  tf::cluster_arrive();
  tf::cluster_wait();
#endif
}

}  // namespace
