// One decode step of a Gated DeltaNet layer, everything in one pass over the recurrent state.
//
// A block owns one key head of one sequence: its query and key channels, and the channels of its
// TF_G value heads. Nobody else reads or writes these channels of conv_state, so that it can be
// shifted in place without a race. The tokens of a call are walked inside the block, and the state
// is read and written once for all of them.
//
//   before the barrier   subgroups of 32 lanes each take one query, key or value vector of the
//   block:
//                        convolution, SiLU and q/k norm of every token, into shared memory
//   then                 subgroups of 8 lanes each take a unit of the state: a row of one value
//   (the
//                        state is [V, K]) or a few columns of values (it is [K, V]). A lane holds
//                        every eighth part of the keys. The next unit's loads are under way while
//                        this one is computed
//   after a barrier      subgroups of 32 lanes each take one value head of one token: norm and gate
//
// Constants: TF_H, TF_G, TF_K, TF_V, TF_TAPS; element types (0 f32, 1 f16, 2 bf16) TF_ROW,
// TF_STATE, TF_A_LOG, TF_DT_BIAS, TF_NORM (-1: no norm); TF_KEYS_LAST, TF_VECTOR (elements of the
// state in one access), TF_TRANSFORMERS (rounding), TF_SIGMOID; and where the segments of the rows
// are: TF_<segment>_BASE, _HEAD, _GROUP, _INNER for Q, K, V, Z, B and A.

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
constexpr int kLanes = 8;       // Share a unit of the state.
constexpr int kNormLanes = 32;  // Share a vector.
constexpr int kChannels = TF_K > TF_V ? TF_K : TF_V;
constexpr int kPerLane = (kChannels + kNormLanes - 1) / kNormLanes;
constexpr int kVector = TF_VECTOR;
// Accesses with which a lane covers its part of the keys, and the values in a unit.
constexpr int kAccesses = TF_KEYS_LAST ? (TF_K + kLanes * kVector - 1) / (kLanes * kVector)
                                       : (TF_K + kLanes - 1) / kLanes;
constexpr int kKeys = TF_KEYS_LAST ? kAccesses * kVector : kAccesses;
constexpr int kValues = TF_KEYS_LAST ? 1 : kVector;
constexpr int kUnits = TF_G * TF_V / kValues;

// Shared memory of one token: q [K], k [K], v and then the core [G V], decay [G], beta [G].
constexpr int kToken = 2 * TF_K + TF_G * TF_V + 2 * TF_G;
constexpr int kCore = 2 * TF_K;
constexpr int kDecay = kCore + TF_G * TF_V;

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

TF_DEVICE float softplus(float x) {
  // log1p(e^x) through log(1 + e^x), whose rounding is divided out again.
  if (x > 20.0f) return x;
  const float e = tf::exp(x);
  const float u = 1.0f + e;
  return u == 1.0f ? e : tf::log(u) * (e / (u - 1.0f));
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

// Vectors before the barrier: query, key, then the values of each head.
constexpr int kVectors = 2 + TF_G;
// Lanes of a wave exchange values together, so that all of them make the same number of rounds.
constexpr int kAtOnce = kThreads / kNormLanes;

struct Place {
  tf::i32 base, stride, count, channel, lane;
};
// Of vector `i`: where it is in a row, how many channels it has (none beyond the last vector), its
// first channel in conv_state, and its place in shared memory.
TF_DEVICE Place place_of(int i, tf::i32 head) {
  if (i >= kVectors) return {};
  if (i == 0) return {TF_Q_BASE + head * TF_Q_HEAD, TF_Q_INNER, TF_K, head * TF_K, 0};
  if (i == 1) {
    return {TF_K_BASE + head * TF_K_HEAD, TF_K_INNER, TF_K, (TF_H + head) * TF_K, TF_K};
  }
  const int group = i - 2;
  return {TF_V_BASE + head * TF_V_HEAD + group * TF_V_GROUP, TF_V_INNER, TF_V,
          2 * TF_H * TF_K + (head * TF_G + group) * TF_V, kCore + group * TF_V};
}

struct Unit {
  tf::i32 offset;  // Of the lane's first element from the beginning of the block's state.
  bool valid;
};
TF_DEVICE Unit unit_of(int unit, int lane) {
#if TF_KEYS_LAST
  return {unit * TF_K + lane * kVector, unit < kUnits};
#else
  const int head = unit * kValues / TF_V;
  return {head * TF_K * TF_V + lane * TF_V + unit * kValues % TF_V, unit < kUnits};
#endif
}
constexpr int kAccessStride = TF_KEYS_LAST ? kLanes * kVector : kLanes * TF_V;
constexpr bool kIsWhole = TF_K % (TF_KEYS_LAST ? kLanes * kVector : kLanes) == 0;

// Whether access `i` of a lane is inside the keys.
TF_DEVICE bool reaches(int i, int lane) {
  return kIsWhole || (i * kLanes + lane) * (TF_KEYS_LAST ? kVector : 1) < TF_K;
}
// Element `j` of access `i` is the lane's key_number(i, j)-th key and the unit's value_number(j)-th
// value.
TF_DEVICE constexpr int key_number(int i, int j) { return TF_KEYS_LAST ? i * kVector + j : i; }
TF_DEVICE constexpr int value_number(int j) { return TF_KEYS_LAST ? 0 : j; }
// The key of element `e` of a lane's keys.
TF_DEVICE int key_of(int e, int lane) {
  return TF_KEYS_LAST ? (e / kVector * kLanes + lane) * kVector + e % kVector : e * kLanes + lane;
}

struct Tile {
  tf::Vector<State, kVector> raw[kAccesses];
};
TF_DEVICE void load_tile(Tile& tile, const State* base, const Unit& unit, int lane) {
  TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
    if (unit.valid && reaches(i, lane)) {
      tile.raw[i] = tf::load_streaming<kVector>(base + unit.offset + i * kAccessStride);
    } else {
      TF_UNROLL for (int j = 0; j < kVector; ++j) tile.raw[i][j] = tf::from_float<State>(0.0f);
    }
  }
}

}  // namespace

TF_KERNEL(256)
void gdn_decode_step(Row* out, const Row* qkv, const Row* z_rows, const Row* b_rows,
                     const Row* a_rows, Row* conv_state, State* state, const Row* conv_weight,
                     const Row* conv_bias, const ALog* a_log, const DtBias* dt_bias,
                     const Norm* norm_weight, const void* read_index, const void* write_index,
                     const void* accepted, RowStrides qkv_strides, RowStrides z_strides,
                     RowStrides b_strides, RowStrides a_strides, Index read_strides,
                     Index write_strides, Index accepted_strides, Sizes sizes) {
  TF_SHARED_DYNAMIC(float, shared);
  const int thread = static_cast<int>(tf::thread_x());
  const int head = static_cast<int>(tf::block_x() % TF_H);
  const tf::i64 sequence = tf::block_x() / TF_H;
  const int tokens = sizes.tokens;
  Row* const own_out = out + (sequence * tokens * TF_H + head) * (TF_G * TF_V);

  // Where this sequence reads and writes.
  tf::i64 read = sequence, conv_read = sequence, conv_write = sequence;
  tf::i32 window = sizes.history - (TF_TAPS - 1);
  if (read_index) {
    read = conv_read = slot_of(sizes, index_at(read_index, read_strides, sequence, 0));
    conv_write = slot_of(sizes, index_at(write_index, write_strides, sequence, 0));
    if (sizes.speculative && read >= 0) {
      const tf::i64 count = index_at(accepted, accepted_strides, sequence, 0);
      const bool fits =
          count >= 1 && count <= sizes.index_columns && count + TF_TAPS - 2 <= sizes.history;
      window = static_cast<tf::i32>(count) - 1;
      read = fits ? slot_of(sizes, index_at(read_index, read_strides, sequence, window)) : -1;
    }
  }
  if (read < 0) {  // Padding: zeros, and nothing else is touched.
    for (int i = thread; i < tokens * TF_G * TF_V; i += kThreads) {
      own_out[i / (TF_G * TF_V) * (TF_H * TF_G * TF_V) + i % (TF_G * TF_V)] =
          tf::from_float<Row>(0.0f);
    }
    return;
  }

  // The state of the block's value heads lies in one piece; loads of the first unit go out first.
  const int lane = thread % kLanes;
  const int first_unit = thread / kLanes;
  constexpr int kStep = kThreads / kLanes;
  const tf::i64 own_state = static_cast<tf::i64>(head) * (TF_G * TF_K * TF_V);
  const State* const state_from = state + read * sizes.state_slot + own_state;
  Tile next;
  load_tile(next, state_from, unit_of(first_unit, lane), lane);

  const Row* const qkv_row = qkv + sequence * qkv_strides.batch;
  const int vector_lane = thread % kNormLanes;
  for (int round = 0; round < kVectors; round += kAtOnce) {
    const int vector = round + thread / kNormLanes;
    const Place place = place_of(vector, head);
    const Row* const history = conv_state + conv_read * sizes.conv_slot;
    Row* const target = conv_state + conv_write * sizes.conv_slot;
    // Everything that does not depend on the token; taps[i][w + 1] is the w-th input of the window.
    Row taps[kPerLane][TF_TAPS];
    float weights[kPerLane][TF_TAPS], bias[kPerLane];
    TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
      const int c = i * kNormLanes + vector_lane;
      if (c >= place.count) continue;
      const int channel = place.channel + c;
      TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) {
        taps[i][w + 1] = history[channel * sizes.conv_channel + (window + w) * sizes.conv_column];
      }
      TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
        weights[i][w] =
            tf::to_float(conv_weight[channel * sizes.weight_channel + w * sizes.weight_tap]);
      }
      bias[i] = conv_bias ? tf::to_float(conv_bias[channel * sizes.bias_channel]) : 0.0f;
    }
    // The raw inputs are kept. Speculative: from the window's second on, then every token. Else the
    // history moves on by as many columns as there are tokens; its last TF_TAPS - 1 are written
    // after the tokens, from registers, and what a longer buffer holds before them here, in
    // ascending order and so in place.
    if (conv_write >= 0) {
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int c = i * kNormLanes + vector_lane;
        if (c >= place.count) continue;
        const int channel = (place.channel + c) * sizes.conv_channel;
        if (sizes.speculative) {
          TF_UNROLL for (int w = 0; w < TF_TAPS - 2; ++w) {
            target[channel + w * sizes.conv_column] = taps[i][w + 2];
          }
          continue;
        }
        for (int column = 0; column < sizes.history - (TF_TAPS - 1); ++column) {
          const int from = column + tokens;
          target[channel + column * sizes.conv_column] =
              from < sizes.history ? history[channel + from * sizes.conv_column]
                                   : qkv_row[(from - sizes.history) * qkv_strides.token +
                                             place.base + c * place.stride];
        }
      }
    }
    for (int t = 0; t < tokens; ++t) {
      float* const token = shared + t * kToken + place.lane;
      float squares = 0.0f;
      float values[kPerLane];
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int c = i * kNormLanes + vector_lane;
        values[i] = 0.0f;
        if (c >= place.count) continue;
        TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) taps[i][w] = taps[i][w + 1];
        taps[i][TF_TAPS - 1] = qkv_row[t * qkv_strides.token + place.base + c * place.stride];
        if (sizes.speculative && conv_write >= 0) {
          target[(place.channel + c) * sizes.conv_channel + (TF_TAPS - 2 + t) * sizes.conv_column] =
              taps[i][TF_TAPS - 1];
        }
        float y = bias[i];
        TF_UNROLL for (int w = 0; w < TF_TAPS; ++w) {
          y = tf::fma(weights[i][w], tf::to_float(taps[i][w]), y);
        }
        values[i] = stored(silu(stored(y)));
        squares = tf::fma(values[i], values[i], squares);
      }
      float factor = 1.0f;
      if (vector < 2) {
        factor = tf::rsqrt(tf::subgroup_sum<kNormLanes>(squares) + 1e-6f);
        if (vector == 0) factor *= tf::rsqrt(static_cast<float>(TF_K));
      }
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int c = i * kNormLanes + vector_lane;
        if (c < place.count) token[c] = values[i] * factor;
      }
    }
    if (conv_write >= 0 && !sizes.speculative) {
      TF_UNROLL for (int i = 0; i < kPerLane; ++i) {
        const int c = i * kNormLanes + vector_lane;
        if (c >= place.count) continue;
        TF_UNROLL for (int w = 0; w < TF_TAPS - 1; ++w) {
          target[(place.channel + c) * sizes.conv_channel +
                 (sizes.history - (TF_TAPS - 1) + w) * sizes.conv_column] = taps[i][w + 1];
        }
      }
    }
  }

  for (int i = thread; i < tokens * TF_G; i += kThreads) {
    const int t = i / TF_G;
    const int g = i % TF_G;
    const float b = tf::to_float(b_rows[sequence * b_strides.batch + t * b_strides.token +
                                        TF_B_BASE + head * TF_B_HEAD + g * TF_B_GROUP]);
    const float a = tf::to_float(a_rows[sequence * a_strides.batch + t * a_strides.token +
                                        TF_A_BASE + head * TF_A_HEAD + g * TF_A_GROUP]);
    const int n = head * TF_G + g;
    const float x = a + tf::to_float(dt_bias[n * sizes.dt_bias]);
    const float rate = tf::exp(tf::to_float(a_log[n * sizes.a_log]));
    shared[t * kToken + kDecay + g] = tf::exp(-rate * softplus(x));
    shared[t * kToken + kDecay + TF_G + g] = stored(sigmoid(b));
  }
  tf::block_sync();

  // Every subgroup makes as many rounds: lanes exchange values in all of them.
  for (int first = 0; first < kUnits; first += kStep) {
    const int unit = first + first_unit;
    const Unit place = unit_of(unit, lane);
    float tile[kKeys][kValues];
    TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
      TF_UNROLL for (int j = 0; j < kVector; ++j) {
        tile[key_number(i, j)][value_number(j)] = tf::to_float(next.raw[i][j]);
      }
    }
    if (first + kStep < kUnits) load_tile(next, state_from, unit_of(unit + kStep, lane), lane);
    const int value_at = place.valid ? unit * kValues : 0;
    const int group = value_at / TF_V;

    for (int t = 0; t < tokens; ++t) {
      float* const token = shared + t * kToken;
      float q[kKeys], k[kKeys];
      TF_UNROLL for (int e = 0; e < kKeys; ++e) {
        const int key = key_of(e, lane);
        const bool inside = kIsWhole || key < TF_K;
        q[e] = inside ? token[key] : 0.0f;
        k[e] = inside ? token[TF_K + key] : 0.0f;
      }
      float kq = 0.0f, with_k[kValues], with_q[kValues];
      TF_UNROLL for (int v = 0; v < kValues; ++v) with_k[v] = with_q[v] = 0.0f;
      TF_UNROLL for (int e = 0; e < kKeys; ++e) {
        kq = tf::fma(k[e], q[e], kq);
        TF_UNROLL for (int v = 0; v < kValues; ++v) {
          with_k[v] = tf::fma(tile[e][v], k[e], with_k[v]);
          with_q[v] = tf::fma(tile[e][v], q[e], with_q[v]);
        }
      }
      kq = tf::subgroup_sum<kLanes>(kq);
      const float decay = token[kDecay + group];
      const float beta = token[kDecay + TF_G + group];
      TF_UNROLL for (int v = 0; v < kValues; ++v) {
        // One lane adds the value, because it is the one that puts the core in its place below.
        const float value = lane == 0 && place.valid ? token[kCore + value_at + v] : 0.0f;
        const float delta = beta * tf::subgroup_sum<kLanes>(tf::fma(-decay, with_k[v], value));
        with_q[v] = tf::subgroup_sum<kLanes>(with_q[v]);
        TF_UNROLL for (int e = 0; e < kKeys; ++e) {
          tile[e][v] = tf::fma(delta, k[e], decay * tile[e][v]);
        }
        with_q[v] = tf::fma(delta, kq, decay * with_q[v]);
      }
      if (lane == 0 && place.valid) {
        TF_UNROLL for (int v = 0; v < kValues; ++v) token[kCore + value_at + v] = with_q[v];
      }

      tf::i64 slot = -1;
      if (sizes.speculative || t + 1 == tokens) {
        slot = write_index ? slot_of(sizes, index_at(write_index, write_strides, sequence,
                                                     sizes.speculative ? t : 0))
                           : sequence;
      }
      State* const target = state + slot * sizes.state_slot + own_state + place.offset;
      TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
        tf::Vector<State, kVector> raw;
        TF_UNROLL for (int j = 0; j < kVector; ++j) {
          float& element = tile[key_number(i, j)][value_number(j)];
          raw[j] = tf::from_float<State>(element);
          element = tf::to_float(raw[j]);  // As if each token were a call.
        }
        if (slot >= 0 && place.valid && reaches(i, lane)) {
          tf::store_streaming(target + i * kAccessStride, raw);
        }
      }
    }
  }
  tf::block_sync();

  for (int round = 0; round < tokens * TF_G; round += kAtOnce) {
    const int i = round + thread / kNormLanes;
    const bool valid = i < tokens * TF_G;
    const int t = valid ? i / TF_G : 0;
    const int g = valid ? i % TF_G : 0;
    const float* const core = shared + t * kToken + kCore + g * TF_V;
    Row* const target = own_out + t * (TF_H * TF_G * TF_V) + g * TF_V;
    float squares = 0.0f;
    for (int c = vector_lane; c < TF_V; c += kNormLanes) {
      const float value = stored(core[c]);
      squares = tf::fma(value, value, squares);
    }
    const float factor =
        TF_NORM < 0 ? 1.0f
                    : tf::rsqrt(tf::subgroup_sum<kNormLanes>(squares) / TF_V + sizes.norm_eps);
    if (!valid) continue;
    for (int c = vector_lane; c < TF_V; c += kNormLanes) {
      float value = stored(core[c]);
#if TF_NORM >= 0
      value = stored(value * factor) * tf::to_float(norm_weight[c * sizes.norm]);
      if (TF_NORM == TF_ROW) value = stored(value);
      const float z =
          tf::to_float(z_rows[sequence * z_strides.batch + t * z_strides.token + TF_Z_BASE +
                              head * TF_Z_HEAD + g * TF_Z_GROUP + c * TF_Z_INNER]);
      value *= TF_SIGMOID ? sigmoid(z) : silu(z);
#endif
      target[c] = tf::from_float<Row>(value);
    }
  }
}
