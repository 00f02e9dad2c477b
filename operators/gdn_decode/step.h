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

constexpr int kThreads = 256;
constexpr int kHeadValues = TF_V / TF_SPLIT;  // Of each value head in this block.
constexpr bool kOneToken = TF_TOKENS == 1;    // Else the launch says how many.

// Shared memory of one token: q [K], k [K] (not normalised), v and then the core [G, values],
// decay [G], beta [G].
constexpr int kCore = 2 * TF_K;
constexpr int kChannels = kCore + TF_G * kHeadValues;
constexpr int kDecay = kChannels;
constexpr int kToken = kDecay + 2 * TF_G;

TF_DEVICE float sigmoid(float x) { return 1.0f / (1.0f + tf::exp(-x)); }
TF_DEVICE float silu(float x) { return x / (1.0f + tf::exp(-x)); }

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
  float norm_eps;
};

// A slot, or -1 for padding and what is outside the pool.
TF_DEVICE tf::i64 slot_of(const Sizes& sizes, tf::i64 index) {
  return index >= sizes.slots || index < (sizes.zero_is_padding ? 1 : 0) ? -1 : index;
}

// What this block works on, and who it is among those that share a key head.
struct Block {
  int head, part;
  tf::i64 sequence;
};
TF_DEVICE Block block_here() {
  const tf::u32 rest = tf::block_x() / TF_SPLIT;
  return {static_cast<int>(rest % TF_H), static_cast<int>(tf::block_x() % TF_SPLIT), rest / TF_H};
}

}  // namespace
