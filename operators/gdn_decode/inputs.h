#pragma once

// From the rows to what the recurrence needs: convolution, SiLU, norms and gates.

#include "step.h"

namespace {

// A lane's channels are neighbours, so that they can be read together.
constexpr int kChannels = TF_K > kHeadValues ? TF_K : kHeadValues;
constexpr int kPerLane = (kChannels + kVectorLanes - 1) / kVectorLanes;
// Vectors: query, key, then the values of each head.
constexpr int kVectors = 2 + TF_G;

struct Vector {
  tf::i32 base, stride, count;  // In a row: count is 0 beyond the last vector.
  tf::i32 channel;              // Its first in conv_state.
  tf::i32 shared;               // Its place in a token's shared memory.
};
TF_DEVICE Vector vector_number(int i, const Block& block) {
  if (i >= kVectors) return {};
  if (i == 0) return {TF_Q_BASE + block.head * TF_Q_HEAD, TF_Q_INNER, TF_K, block.head * TF_K, 0};
  if (i == 1) {
    return {TF_K_BASE + block.head * TF_K_HEAD, TF_K_INNER, TF_K, (TF_H + block.head) * TF_K, TF_K};
  }
  const int group = i - 2;
  const int first = block.part * kHeadValues;
  return {TF_V_BASE + block.head * TF_V_HEAD + group * TF_V_GROUP + first * TF_V_INNER, TF_V_INNER,
          kHeadValues, 2 * TF_H * TF_K + (block.head * TF_G + group) * TF_V + first,
          kCore + group * kHeadValues};
}

// The raw inputs of a lane's channels, the newest last. Before the first token, taps[.][0] is unset.
struct Window {
  Row taps[kPerLane][TF_TAPS];
};

// Where the convolution reads and writes.
struct Convolution {
  const Row* row;       // Of the sequence's first token.
  tf::i64 token;        // From token to token.
  const Row* history;   // [channels, history] of the slot that is read
  Row* target;          // and of the one that is written; null: none.
  tf::i64 first;        // The window's first column.
};

// Of a lane's channels, element i lies at pointer + i * stride.
template <bool Together>
TF_DEVICE void read(Row (&values)[kPerLane], const Row* pointer, tf::i64 stride, int valid) {
  if constexpr (Together) {
    const auto all = tf::load<kPerLane>(pointer);
    TF_UNROLL for (int i = 0; i < kPerLane; ++i) values[i] = all[i];
  } else {
    TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
      if (i < valid) values[i] = pointer[i * stride];
    }
  }
}

TF_DEVICE void read_weights(float (&weights)[kPerLane][TF_TAPS], const Row* weight, int channel,
                            int valid, const Sizes& sizes) {
#if TF_ROWS_TOGETHER
  const auto all = tf::load<kPerLane * TF_TAPS>(weight + channel * TF_TAPS);
#endif
  TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
    TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
#if TF_ROWS_TOGETHER
      weights[i][w] = tf::to_float(all[i * TF_TAPS + w]);
#else
      weights[i][w] = 0.0f;
      if (i < valid) {
        weights[i][w] = tf::to_float(
            weight[(channel + i) * sizes.weight_channel + w * sizes.weight_tap]);
      }
#endif
    }
  }
}

TF_DEVICE void write_column(const Convolution& conv, const Sizes& sizes, int channel, int valid,
                            tf::i64 column, const Window& window, int tap) {
  Row* const target =
      conv.target + channel * sizes.conv_channel + column * sizes.conv_column;
#if TF_CHANNELS_TOGETHER
  tf::Vector<Row, kPerLane> all;
  TF_UNROLL for (int i = 0; i < kPerLane; ++i) all[i] = window.taps[i][tap];
  tf::store(target, all);
#else
  TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
    if (i < valid) target[i * sizes.conv_channel] = window.taps[i][tap];
  }
#endif
}

// The raw inputs are kept: the newest TF_TAPS of them, or as many as there are columns.
TF_DEVICE void write_window(const Convolution& conv, const Sizes& sizes, const Vector& vector,
                            int lane, const Window& window) {
  const int c = lane * kPerLane;
  const tf::i64 columns = tf::min(sizes.history, static_cast<tf::i64>(kOneToken ? TF_TAPS : TF_TAPS - 1));
  TF_UNROLL for (int tap = 0; tap < TF_TAPS; ++tap) {
    const tf::i64 column = sizes.history - TF_TAPS + tap;
    if (tap >= TF_TAPS - columns) {
      write_column(conv, sizes, vector.channel + c, vector.count - c, column, window, tap);
    }
  }
}

// Where the history is longer than the window: it moves on by as many columns as there are tokens.
// In ascending order, and so in place.
TF_DEVICE void move_history(const Convolution& conv, const Sizes& sizes, const Vector& vector,
                            int lane) {
  const tf::i64 kept = kOneToken ? TF_TAPS : TF_TAPS - 1;
  for (tf::i64 column = 0; column < sizes.history - kept; ++column) {
    const tf::i64 from = column + sizes.tokens;
    for (int c = lane * kPerLane; c < tf::min(vector.count, (lane + 1) * kPerLane); ++c) {
      const tf::i64 channel = (vector.channel + c) * sizes.conv_channel;
      conv.target[channel + column * sizes.conv_column] =
          from < sizes.history
              ? conv.history[channel + from * sizes.conv_column]
              : conv.row[(from - sizes.history) * conv.token + vector.base + c * vector.stride];
    }
  }
}

// Convolution, SiLU and, for query and key, the norm of every token, into shared memory. Leaves the
// last inputs in `window`. All lanes of a wave call it together.
TF_DEVICE void convolve(const Convolution& conv, const Sizes& sizes, const Vector& vector,
                        bool is_query, bool is_normalised, int lane, const Row* conv_weight,
                        const Row* conv_bias, float* shared, Window& window) {
  const int c = lane * kPerLane;
  const int valid = vector.count - c;  // At most 0: none.
  const int channel = vector.channel + c;
  float weights[kPerLane][TF_TAPS], bias[kPerLane];
  TF_UNROLL for (int i = 0; i < kPerLane; ++i) bias[i] = 0.0f;
  Row column[kPerLane];
  if (valid > 0) {
    TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) {
      read<TF_CHANNELS_TOGETHER>(column,
                                 conv.history + channel * sizes.conv_channel +
                                     (conv.first + w) * sizes.conv_column,
                                 sizes.conv_channel, valid);
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) window.taps[i][w + 1] = column[i];
    }
    read_weights(weights, conv_weight, channel, valid, sizes);
    if (conv_bias) {
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        if (i < valid) bias[i] = tf::to_float(conv_bias[(channel + i) * sizes.bias_channel]);
      }
    }
    if (conv.target && sizes.speculative) {
      // From the window's second on, then every token.
      TF_UNROLL for (int w = 0; w < TF_TAPS - 2; ++w) {
        write_column(conv, sizes, channel, valid, w, window, w + 2);
      }
    } else if (conv.target && TF_SPLIT == 1) {
      move_history(conv, sizes, vector, lane);
    }
  }
  const int tokens = kOneToken ? 1 : static_cast<int>(sizes.tokens);
  for (int t = 0; t < tokens; ++t) {
    float values[kPerLane];
    float squares = 0.0f;
    TF_UNROLL for (int i = 0; i < kPerLane; ++i) values[i] = 0.0f;
    if (valid > 0) {
      read<TF_ROWS_TOGETHER>(column, conv.row + t * conv.token + vector.base + c * vector.stride,
                             vector.stride, valid);
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) window.taps[i][w] = window.taps[i][w + 1];
        window.taps[i][TF_TAPS - 1] = column[i];
        float y = bias[i];
        TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
          y = tf::fma(weights[i][w], tf::to_float(window.taps[i][w]), y);
        }
        if (i < valid) values[i] = stored(silu(stored(y)));
        squares = tf::fma(values[i], values[i], squares);
      }
      if (conv.target && sizes.speculative) {
        write_column(conv, sizes, channel, valid, TF_TAPS - 2 + t, window, TF_TAPS - 1);
      }
    }
    float factor = tf::rsqrt(tf::subgroup_sum<kVectorLanes>(squares) + 1e-6f);
    if (is_query) factor *= tf::rsqrt(static_cast<float>(TF_K));
    if (!is_normalised) factor = 1.0f;
    TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
      if (i < valid) shared[t * kToken + vector.shared + c + i] = values[i] * factor;
    }
  }
}

TF_DEVICE float softplus(float x) {
  // log1p(e^x) through log(1 + e^x), whose rounding is divided out again.
  if (x > 20.0f) return x;
  const float e = tf::exp(x);
  const float u = 1.0f + e;
  return u == 1.0f ? e : tf::log(u) * (e / (u - 1.0f));
}

TF_DEVICE void compute_gates(const Row* a_row, const Row* b_row, int value_head,
                             const ALog* a_log, const DtBias* dt_bias, const Sizes& sizes,
                             float& decay, float& beta) {
  const float x = tf::to_float(*a_row) + tf::to_float(dt_bias[value_head * sizes.dt_bias]);
  const float rate = tf::exp(tf::to_float(a_log[value_head * sizes.a_log]));
  decay = tf::exp(-rate * softplus(x));
  beta = stored(sigmoid(tf::to_float(*b_row)));
}

}  // namespace
