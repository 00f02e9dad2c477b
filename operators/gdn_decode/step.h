#pragma once

// What the parts of the kernel share: types, sizes and the places of things. The constants are
// described in kernel.hip.

#include "truefuse/device.h"

namespace {

template <int Code>
struct TypeOf {
  using type = float;
};
template <>
struct TypeOf<1> {
  using type = tf::f16;
};
template <>
struct TypeOf<2> {
  using type = tf::bf16;
};
using Row = TypeOf<TF_ROW>::type;
using State = TypeOf<TF_STATE>::type;
using ALog = TypeOf<TF_A_LOG>::type;
using DtBias = TypeOf<TF_DT_BIAS>::type;
using Norm = TypeOf<TF_NORM>::type;

// Threads of a block; where a block streams (stream.h), those that take in inputs and write
// outputs.
constexpr int kThreads = TF_STREAM ? 128 : 256;
constexpr int kHeadValues = TF_V / TF_SPLIT;  // Of each value head in this block.
constexpr bool kOneToken = TF_TOKENS == 1;    // Else the launch says how many.

// Shared memory of one token: q [K], k [K] (not normalised), v and then the core [G, values],
// decay [G], beta [G].
constexpr int kCore = 2 * TF_K;
constexpr int kChannels = kCore + TF_G * kHeadValues;
constexpr int kDecay = kChannels;
constexpr int kToken = kDecay + 2 * TF_G;

// Of activations and beta: to 2^-21 where rows are of a half type, which keeps 2^-11 of it at most.
TF_DEVICE float sigmoid(float x) {
  if constexpr (sizeof(Row) == 2) {
    constexpr float kLog2E = 1.44269504f;
    return tf::reciprocal_fast(1.0f + tf::exp2_fast(-kLog2E * x));
  }
  return 1.0f / (1.0f + tf::exp(-x));
}
TF_DEVICE float silu(float x) {
  return sizeof(Row) == 2 ? x * sigmoid(x) : x / (1.0f + tf::exp(-x));
}

// What a token leaves of the state, in (0, 1], kept as its distance from the nearer one of 0 and 1:
// a decay of 0.999 is then as exact as what it takes away, which is what a thousand steps add up.
// Where it is counted from 1 its sign is set, at 1 itself, too.
TF_DEVICE float decay_of(float exponent) {
  return exponent < 0.69f ? tf::expm1(-exponent) : tf::exp(-exponent);
}
struct Decay {
  float whole, part;

  TF_DEVICE explicit Decay(float kept)
      : whole(tf::bit_cast<tf::i32>(kept) < 0 ? 1.0f : 0.0f), part(kept) {}
  TF_DEVICE float of(float x) const { return tf::fma(part, x, whole * x); }
};

// A rounding point of transformers.
TF_DEVICE float stored(float x) {
#if TF_TRANSFORMERS
  return tf::to_float(tf::from_float<Row>(x));
#else
  return x;
#endif
}

// int32 or int64 data [batch] or [batch, columns].
struct Index {
  tf::i64 batch_stride;
  tf::i32 column_stride, is_64;
};
TF_DEVICE tf::i64 index_at(const void* data, const Index& index, tf::i64 sequence, tf::i32 column) {
  const tf::i64 i = sequence * index.batch_stride + column * index.column_stride;
  return index.is_64 ? static_cast<const tf::i64*>(data)[i] : static_cast<const tf::i32*>(data)[i];
}

// A sequence's first index as it lies in memory, so that nothing waits for it before it is used.
class AskedIndex {
 public:
  TF_DEVICE AskedIndex(const void* data, const Index& index, tf::i64 sequence)
      : is_64_(index.is_64), low_(0), high_(0) {
    if (!data) return;
    const tf::i64 i = sequence * index.batch_stride;
    const tf::u32* const words = static_cast<const tf::u32*>(data) + (is_64_ ? 2 * i : i);
    low_ = words[0];
    if (is_64_) high_ = words[1];
  }
  TF_DEVICE tf::i64 value() const {
    return is_64_ ? static_cast<tf::i64>(static_cast<tf::u64>(high_) << 32 | low_)
                  : static_cast<tf::i32>(low_);
  }

 private:
  tf::i32 is_64_;
  tf::u32 low_, high_;
};

struct RowStrides {
  tf::i64 batch;
  tf::i32 token;
};

// What changes from call to call; see problem.h. Strides are in elements. Offsets from the
// beginning of a slot or a row fit in 32 bits; those of slots need not.
struct Sizes {
  tf::i64 slots, state_slot, conv_slot;
  tf::i32 history, tokens;
  tf::i32 conv_channel, conv_column;
  tf::i32 weight_channel, weight_tap, bias_channel;
  tf::i32 a_log, dt_bias, norm;
  tf::i32 speculative, zero_is_padding, index_columns;
  tf::i32 tasks;  // Sequences times key heads.
  float norm_eps;
};

// A slot, or -1 for padding and what is outside the pool.
TF_DEVICE tf::i64 slot_of(const Sizes& sizes, tf::i64 index) {
  return index >= sizes.slots || index < (sizes.zero_is_padding ? 1 : 0) ? -1 : index;
}

// The parameters of a launch.
struct Step {
  Row* out;
  const Row *qkv, *z, *b, *a;
  Row* conv_state;
  State* state;
  const Row *conv_weight, *conv_bias;
  const ALog* a_log;
  const DtBias* dt_bias;
  const Norm* norm_weight;
  const void *read_index, *write_index, *accepted;
  RowStrides qkv_strides, z_strides, b_strides, a_strides;
  Index read_strides, write_strides, accepted_strides;
  Sizes sizes;
};

// A key head of a sequence, or a part of its values, and the slots that it reads and writes, once
// find_slots has asked for them.
struct Task {
  int head, part;
  tf::i64 sequence;
  tf::i64 read;        // -1: padding.
  tf::i64 conv_write;  // -1: none.
  tf::i64 conv_read;
  tf::i32 window;  // The first column of conv_state that the convolution looks at.
};
TF_DEVICE Task task_number(const Step& step, tf::u32 number, int part) {
  const Sizes& sizes = step.sizes;
  const tf::i64 sequence = number / TF_H;
  return {static_cast<int>(number % TF_H), part, sequence, sequence, sequence, sequence,
          sizes.history - (TF_TAPS - 1)};
}
// `read` and `write`: the sequence's first indices.
TF_DEVICE void find_slots(Task& task, const Step& step, tf::i64 read, tf::i64 write) {
  const Sizes& sizes = step.sizes;
  const tf::i64 sequence = task.sequence;
  task.read = task.conv_read = slot_of(sizes, read);
  task.conv_write = slot_of(sizes, write);
  if (sizes.speculative && task.read >= 0) {
    const tf::i64 count = index_at(step.accepted, step.accepted_strides, sequence, 0);
    const bool fits =
        count >= 1 && count <= sizes.index_columns && count + TF_TAPS - 2 <= sizes.history;
    task.window = static_cast<tf::i32>(count) - 1;
    task.read =
        fits ? slot_of(sizes, index_at(step.read_index, step.read_strides, sequence, task.window))
             : -1;
  }
}
TF_DEVICE Task task_with_slots(const Step& step, tf::u32 number) {
  Task task = task_number(step, number, 0);
  if (!step.read_index) return task;
  find_slots(task, step, index_at(step.read_index, step.read_strides, task.sequence, 0),
             index_at(step.write_index, step.write_strides, task.sequence, 0));
  return task;
}

// The task's state in a slot, or null if there is none.
TF_DEVICE State* state_in(const Step& step, const Task& task, tf::i64 slot) {
  if (slot < 0) return nullptr;
  return step.state + slot * step.sizes.state_slot +
         static_cast<tf::i64>(task.head) * (TF_G * TF_K * TF_V);
}
// Where it goes after token `t`.
TF_DEVICE State* state_after(const Step& step, const Task& task, int t) {
  const Sizes& sizes = step.sizes;
  if (!sizes.speculative && t + 1 < (kOneToken ? 1 : sizes.tokens)) return nullptr;
  const tf::i64 slot = step.write_index
                           ? slot_of(sizes, index_at(step.write_index, step.write_strides,
                                                     task.sequence, sizes.speculative ? t : 0))
                           : task.sequence;
  return state_in(step, task, slot);
}
// The outputs of token `t`, group `g`, from the task's first value on.
TF_DEVICE Row* output_of(const Step& step, const Task& task, int t, int g) {
  const int tokens = kOneToken ? 1 : step.sizes.tokens;
  return step.out + (((task.sequence * tokens + t) * TF_H + task.head) * TF_G + g) * TF_V +
         task.part * kHeadValues;
}

}  // namespace
