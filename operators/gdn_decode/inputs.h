#pragma once

// From the rows to what the recurrence needs: convolution, SiLU and gates.

#include "step.h"

namespace {

// Neighbouring channels that a thread takes together; query, key and values of a block follow each
// other, and thread after thread takes its own until all are taken.
constexpr int kTogether = TF_PAIRS ? 2 : 1;
// Of a channel's taps, with room up to a whole vector.
constexpr int kWeights = TF_TAPS <= 2 ? 2 : TF_TAPS <= 4 ? 4 : 8;
// Channels of a block, numbered as they lie in shared memory.
struct Channel {
  tf::i32 column;  // In a row.
  tf::i32 stride;  // From channel to channel there.
  tf::i32 conv;    // In conv_state.
};
TF_DEVICE Channel channel_number(int c, const Task& task) {
  if (c < TF_K) {
    return {TF_Q_BASE + task.head * TF_Q_HEAD + c * TF_Q_INNER, TF_Q_INNER, task.head * TF_K + c};
  }
  if (c < 2 * TF_K) {
    c -= TF_K;
    return {TF_K_BASE + task.head * TF_K_HEAD + c * TF_K_INNER, TF_K_INNER,
            (TF_H + task.head) * TF_K + c};
  }
  c -= 2 * TF_K;
  const int group = c / kHeadValues;
  const int value = task.part * kHeadValues + c % kHeadValues;
  return {TF_V_BASE + task.head * TF_V_HEAD + group * TF_V_GROUP + value * TF_V_INNER, TF_V_INNER,
          2 * TF_H * TF_K + (task.head * TF_G + group) * TF_V + value};
}

// The raw inputs of a thread's channels, the newest last. Before the first token, taps[.][0] is
// unset.
struct Window {
  Row taps[kTogether][TF_TAPS];
};

// Where the convolution reads and writes.
struct Convolution {
  const Row* row;      // Of the sequence's first token,
  tf::i32 token;       // and from token to token.
  const Row* history;  // [channels, history] of the slot that is read,
  Row* target;         // and of the one that is written; null: none.
  tf::i32 first;       // The window's first column.
};
TF_DEVICE Convolution convolution_of(const Step& step, const Task& task) {
  const Sizes& sizes = step.sizes;
  return {step.qkv + task.sequence * step.qkv_strides.batch, step.qkv_strides.token,
          step.conv_state + task.conv_read * sizes.conv_slot,
          task.conv_write < 0 ? nullptr : step.conv_state + task.conv_write * sizes.conv_slot,
          task.window};
}

// A thread's neighbours, `stride` apart: 1 where pairs are taken.
TF_DEVICE void read(Row (&values)[kTogether], const Row* pointer) {
  const auto all = tf::load<kTogether>(pointer);
  TF_UNROLL for (int i = 0; i < kTogether; ++i) values[i] = all[i];
}
TF_DEVICE void read_column(Row (&values)[kTogether], const Row* column, const Sizes& sizes) {
#if TF_CHANNELS_TOGETHER
  read(values, column);
#else
  TF_UNROLL for (int i = 0; i < kTogether; ++i) values[i] = column[i * sizes.conv_channel];
#endif
}
TF_DEVICE void write_column(Row* column, const Window& window, int tap, const Sizes& sizes) {
#if TF_CHANNELS_TOGETHER
  tf::Vector<Row, kTogether> all;
  TF_UNROLL for (int i = 0; i < kTogether; ++i) all[i] = window.taps[i][tap];
  tf::store(column, all);
#else
  TF_UNROLL for (int i = 0; i < kTogether; ++i) column[i * sizes.conv_channel] =
      window.taps[i][tap];
#endif
}

// The raw inputs are kept: the newest TF_TAPS of them (TF_TAPS - 1 after several tokens, when the
// window holds no more), or as many as there are columns. `target`: the channel's first column.
TF_DEVICE void write_window(Row* target, const Window& window, const Sizes& sizes) {
  const int most = kOneToken ? TF_TAPS : TF_TAPS - 1;
  TF_UNROLL for (int tap = 0; tap < TF_TAPS; ++tap) {
    const int column = sizes.history - TF_TAPS + tap;
    if (column < 0 || tap < TF_TAPS - most) continue;
    write_column(target + column * sizes.conv_column, window, tap, sizes);
  }
}

// A history that is longer than the window moves on by as many columns as there are tokens. In
// ascending order, and so in place.
TF_DEVICE void move_history(const Convolution& conv, const Channel& channel, const Sizes& sizes) {
  const int kept = kOneToken ? TF_TAPS : TF_TAPS - 1;
  for (int column = 0; column < sizes.history - kept; ++column) {
    const int from = column + sizes.tokens;
    TF_UNROLL for (int i = 0; i < kTogether; ++i) {
      const int at = (channel.conv + i) * sizes.conv_channel;
      conv.target[at + column * sizes.conv_column] =
          from < sizes.history
              ? conv.history[at + from * sizes.conv_column]
              : conv.row[(from - sizes.history) * conv.token + channel.column + i * channel.stride];
    }
  }
}

// What a thread needs for its channels, read before anything is written: a compiler has to assume
// that what is written is what would be read next.
struct Inputs {
  Window window;
  tf::Vector<Row, kTogether * kWeights> weights;  // TF_TAPS for each channel.
  Row bias[kTogether];
  Row first_token[kTogether];
};
TF_DEVICE void read_history(Inputs& inputs, const Convolution& conv, const Sizes& sizes,
                            const Channel& channel) {
  const Row* const history = conv.history + channel.conv * sizes.conv_channel;
  Row column[kTogether];
  TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) {
    read_column(column, history + (conv.first + w) * sizes.conv_column, sizes);
    TF_UNROLL for (int i = 0; i < kTogether; ++i) inputs.window.taps[i][w + 1] = column[i];
  }
}
// What does not depend on a slot.
TF_DEVICE void read_row(Inputs& inputs, const Step& step, const Task& task,
                        const Channel& channel) {
  const Sizes& sizes = step.sizes;
#if TF_PAIRS
  inputs.weights = tf::load<kTogether * TF_TAPS>(step.conv_weight + channel.conv * TF_TAPS);
#else
  TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
    inputs.weights[w] =
        step.conv_weight[channel.conv * sizes.weight_channel + w * sizes.weight_tap];
  }
#endif
  TF_UNROLL for (int i = 0; i < kTogether; ++i) {
    inputs.bias[i] = step.conv_bias ? step.conv_bias[(channel.conv + i) * sizes.bias_channel]
                                    : tf::from_float<Row>(0.0f);
  }
  read(inputs.first_token, step.qkv + task.sequence * step.qkv_strides.batch + channel.column);
}

// Convolution and SiLU of every token, into shared memory. With speculation, keeps the raw inputs;
// without, `window` holds the last ones afterwards.
TF_DEVICE void convolve(Inputs& inputs, const Convolution& conv, const Sizes& sizes,
                        const Channel& channel, float* shared) {
  Window& window = inputs.window;
  Row* const target = conv.target + channel.conv * sizes.conv_channel;
  const bool keeps = sizes.speculative && conv.target;
  if (keeps) {  // From the window's second on, then every token.
    TF_UNROLL for (int w = 0; w < TF_TAPS - 2; ++w) {
      write_column(target + w * sizes.conv_column, window, w + 2, sizes);
    }
  }
  Row token[kTogether];
  TF_UNROLL for (int i = 0; i < kTogether; ++i) token[i] = inputs.first_token[i];
  for (int t = 0; t < (kOneToken ? 1 : sizes.tokens); ++t) {
    if (t > 0) read(token, conv.row + t * conv.token + channel.column);
    TF_UNROLL for (int i = 0; i < kTogether; ++i) {
      TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) window.taps[i][w] = window.taps[i][w + 1];
      window.taps[i][TF_TAPS - 1] = token[i];
      float y = tf::to_float(inputs.bias[i]);
      TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
        y = tf::fma(tf::to_float(inputs.weights[i * TF_TAPS + w]), tf::to_float(window.taps[i][w]),
                    y);
      }
      shared[t * kToken + i] = stored(silu(stored(y)));
    }
    if (keeps) {
      write_column(target + (TF_TAPS - 2 + t) * sizes.conv_column, window, TF_TAPS - 1, sizes);
    }
  }
}

TF_DEVICE float softplus(float x) {
  if (x > 20.0f) return x;
  // log1p(e^x) as log(u), u = 1 + e^x, and what was lost when u was rounded.
  const float e = tf::exp(x);
  const float u = 1.0f + e;
  return tf::fma(e - (u - 1.0f), tf::reciprocal_fast(u), tf::log(u));
}

// Decay and beta of one value head, read before they are computed.
struct GateInputs {
  Row a, b;
  ALog a_log;
  DtBias dt_bias;

  // Of token i / TF_G, group i % TF_G.
  TF_DEVICE void read(const Step& step, const Task& task, int i) {
    const int t = i / TF_G;
    const int g = i % TF_G;
    const int n = task.head * TF_G + g;
    a = step.a[task.sequence * step.a_strides.batch + t * step.a_strides.token + TF_A_BASE +
               task.head * TF_A_HEAD + g * TF_A_GROUP];
    b = step.b[task.sequence * step.b_strides.batch + t * step.b_strides.token + TF_B_BASE +
               task.head * TF_B_HEAD + g * TF_B_GROUP];
    a_log = step.a_log[n * step.sizes.a_log];
    dt_bias = step.dt_bias[n * step.sizes.dt_bias];
  }
  TF_DEVICE float decay() const {
    const float rate = tf::exp(tf::to_float(a_log));
    return decay_of(rate * softplus(tf::to_float(a) + tf::to_float(dt_bias)));
  }
  TF_DEVICE float beta() const { return stored(sigmoid(tf::to_float(b))); }
};

// Passes of `threads` threads over a task's channels.
TF_DEVICE constexpr int passes(int threads) {
  return (kChannels + threads * kTogether - 1) / (threads * kTogether);
}

// Everything that a task's inputs become, into shared memory; the history moves on, except for that
// of query and key where blocks share them: `inputs` holds their windows. By the `Threads` threads
// that count from 0; `AtOnce` passes have their loads under way together.
template <int Threads, int AtOnce>
class TakeIn {
 public:
  TF_DEVICE TakeIn(Inputs (&inputs)[AtOnce], const Step& step, int thread)
      : inputs_(inputs), step_(step), thread_(thread) {}

  // Asks for what does not depend on the slots, and so before they are known.
  TF_DEVICE void ask(const Task& task, int first = 0) {
    if (first == 0 && first_gate() < gates()) gate_.read(step_, task, first_gate());
    TF_UNROLL for (int pass = 0; pass < AtOnce; ++pass) {
      const int c = channel_of(first + pass);
      if (c < kChannels) read_row(inputs_[pass], step_, task, channel_number(c, task));
    }
  }

  // After ask(task): the rest.
  TF_DEVICE void finish(const Task& task, float* shared) {
    const Sizes& sizes = step_.sizes;
    const Convolution conv = convolution_of(step_, task);
    for (int first = 0; first < passes(Threads); first += AtOnce) {
      // Everything is asked for before the first of it is used.
      if (first > 0) ask(task, first);
      TF_UNROLL for (int pass = 0; pass < AtOnce; ++pass) {
        const int c = channel_of(first + pass);
        if (c < kChannels) read_history(inputs_[pass], conv, sizes, channel_number(c, task));
      }
      if (first == 0) find_gates(task, shared);  // Their inputs came first.
      TF_UNROLL for (int pass = 0; pass < AtOnce; ++pass) {
        const int c = channel_of(first + pass);
        if (c >= kChannels) continue;
        const Channel channel = channel_number(c, task);
        convolve(inputs_[pass], conv, sizes, channel, shared + c);
        if (conv.target && !sizes.speculative && (TF_SPLIT == 1 || c >= 2 * TF_K)) {
          if (TF_SPLIT == 1) move_history(conv, channel, sizes);
          write_window(conv.target + channel.conv * sizes.conv_channel, inputs_[pass].window,
                       sizes);
        }
      }
    }
  }

 private:
  TF_DEVICE int channel_of(int pass) const { return (pass * Threads + thread_) * kTogether; }
  // By the last threads, which have the fewest channels.
  TF_DEVICE int first_gate() const { return Threads - 1 - thread_; }
  TF_DEVICE int gates() const { return (kOneToken ? 1 : step_.sizes.tokens) * TF_G; }
  TF_DEVICE void find_gates(const Task& task, float* shared) {
    for (int i = first_gate(); i < gates(); i += Threads) {
      if (i >= Threads) gate_.read(step_, task, i);
      float* const token = shared + i / TF_G * kToken;
      token[kDecay + i % TF_G] = gate_.decay();
      token[kDecay + TF_G + i % TF_G] = gate_.beta();
    }
  }

  Inputs (&inputs_)[AtOnce];
  const Step& step_;
  int thread_;
  GateInputs gate_;
};

}  // namespace
