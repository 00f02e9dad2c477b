#pragma once

// The recurrence. Subgroups of TF_LANES lanes each take a unit of the state: a row of one value
// (the state is [V, K]) or a few columns of values (it is [K, V]). A lane holds every TF_LANES-th
// part of the keys.

#include "step.h"

namespace {

constexpr int kLanes = TF_LANES;
constexpr int kVector = TF_VECTOR;
// Accesses with which a lane covers its part of the keys, and the values in a unit.
constexpr int kAccesses = TF_KEYS_LAST ? (TF_K + kLanes * kVector - 1) / (kLanes * kVector)
                                       : (TF_K + kLanes - 1) / kLanes;
constexpr int kKeys = TF_KEYS_LAST ? kAccesses * kVector : kAccesses;
constexpr int kValues = TF_KEYS_LAST ? 1 : kVector;
constexpr int kUnits = TF_G * kHeadValues / kValues;
constexpr int kUnitsAtOnce = kThreads / kLanes;
constexpr int kRounds = (kUnits + kUnitsAtOnce - 1) / kUnitsAtOnce;
constexpr bool kIsWhole = TF_K % (TF_KEYS_LAST ? kLanes * kVector : kLanes) == 0;
constexpr int kAccessStride = TF_KEYS_LAST ? kLanes * kVector : kLanes * TF_V;

// Of the lane's first element from the beginning of the key head's state.
TF_DEVICE tf::i32 offset_of(int unit, int lane, int part) {
  const int group = unit * kValues / kHeadValues;
  const int value = part * kHeadValues + unit * kValues % kHeadValues;
  return group * TF_K * TF_V + (TF_KEYS_LAST ? value * TF_K + lane * kVector : lane * TF_V + value);
}
// Whether access `i` of a lane is inside the keys.
TF_DEVICE bool reaches(int i, int lane) {
  return kIsWhole || (i * kLanes + lane) * (TF_KEYS_LAST ? kVector : 1) < TF_K;
}
// Element `j` of access `i` is the lane's key_number(i, j)-th key and the unit's value_number(j)-th
// value.
TF_DEVICE constexpr int key_number(int i, int j) { return TF_KEYS_LAST ? i * kVector + j : i; }
TF_DEVICE constexpr int value_number(int j) { return TF_KEYS_LAST ? 0 : j; }

// A token's query and key, normalised, as far as a lane holds them.
struct Keys {
  float q[kKeys], k[kKeys];
  float kq;  // Their product over all keys.
};
TF_DEVICE Keys keys_of(const float* token, int lane) {
  Keys keys;
  float qq = 0.0f, kk = 0.0f, kq = 0.0f;
  TF_UNROLL for (int e = 0; e < kKeys; ++e) {
    const int key =
        TF_KEYS_LAST ? (e / kVector * kLanes + lane) * kVector + e % kVector : e * kLanes + lane;
    const bool inside = kIsWhole || key < TF_K;
    keys.q[e] = inside ? token[key] : 0.0f;
    keys.k[e] = inside ? token[TF_K + key] : 0.0f;
    qq = tf::fma(keys.q[e], keys.q[e], qq);
    kk = tf::fma(keys.k[e], keys.k[e], kk);
    kq = tf::fma(keys.k[e], keys.q[e], kq);
  }
  const float q_factor =
      tf::rsqrt(tf::subgroup_sum<kLanes>(qq) + 1e-6f) * tf::rsqrt(static_cast<float>(TF_K));
  const float k_factor = tf::rsqrt(tf::subgroup_sum<kLanes>(kk) + 1e-6f);
  TF_UNROLL for (int e = 0; e < kKeys; ++e) {
    keys.q[e] *= q_factor;
    keys.k[e] *= k_factor;
  }
  keys.kq = tf::subgroup_sum<kLanes>(kq) * (q_factor * k_factor);
  return keys;
}

// A unit, in the precision of the arithmetic.
struct Tile {
  float at[kKeys][kValues];
};

// S = decay S; d = beta (v - S k); S = S + d k'; core = S q, with both products taken of the old
// state. The core takes the value's place.
TF_DEVICE void apply(Tile& tile, const Keys& keys, float* token, int unit, bool valid, int lane) {
  const int value_at = valid ? unit * kValues : 0;
  const int group = value_at / kHeadValues;
  const Decay decay(token[kDecay + group]);
  const float beta = token[kDecay + TF_G + group];
  float* const value = token + kCore + value_at;
  TF_UNROLL for (int v = 0; v < kValues; ++v) {
    float with_k = 0.0f, with_q = 0.0f;
    TF_UNROLL for (int e = 0; e < kKeys; ++e) {
      with_k = tf::fma(tile.at[e][v], keys.k[e], with_k);
      with_q = tf::fma(tile.at[e][v], keys.q[e], with_q);
    }
    // The value is added by the lane that puts the core in its place below.
    const float own = lane == 0 && valid ? value[v] : 0.0f;
    const float delta = beta * tf::subgroup_sum<kLanes>(own - decay.of(with_k));
    with_q = tf::subgroup_sum<kLanes>(with_q);
    TF_UNROLL for (int e = 0; e < kKeys; ++e) {
      tile.at[e][v] = tf::fma(delta, keys.k[e], decay.of(tile.at[e][v]));
    }
    if (lane == 0 && valid) value[v] = tf::fma(delta, keys.kq, decay.of(with_q));
  }
}

// As it lies in memory.
struct RawTile {
  tf::Vector<State, kVector> raw[kAccesses];
};
TF_DEVICE void load(RawTile& tile, const State* from, bool valid, int lane) {
  TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
    if (valid && reaches(i, lane)) {
      tile.raw[i] = tf::load<kVector>(from + i * kAccessStride);
    } else {
      TF_UNROLL for (int j = 0; j < kVector; ++j) tile.raw[i][j] = tf::from_float<State>(0.0f);
    }
  }
}
TF_DEVICE Tile widened(const RawTile& raw) {
  Tile tile;
  TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
    TF_UNROLL for (int j = 0; j < kVector; ++j) {
      tile.at[key_number(i, j)][value_number(j)] = tf::to_float(raw.raw[i][j]);
    }
  }
  return tile;
}
// Rounds the tile to the state's type, so that the next token finds what another call would.
TF_DEVICE RawTile narrowed(Tile& tile) {
  RawTile raw;
  TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
    TF_UNROLL for (int j = 0; j < kVector; ++j) {
      float& element = tile.at[key_number(i, j)][value_number(j)];
      raw.raw[i][j] = tf::from_float<State>(element);
      element = tf::to_float(raw.raw[i][j]);
    }
  }
  return raw;
}

// The loads of the first TF_DEPTH rounds; called as early as the slot is known.
struct RegisterPipeline {
  RawTile tiles[TF_DEPTH];

  TF_DEVICE void load_round(int round, const State* from, int part) {
    const int lane = static_cast<int>(tf::thread_x()) % kLanes;
    const int unit = round * kUnitsAtOnce + static_cast<int>(tf::thread_x()) / kLanes;
    load(tiles[round % TF_DEPTH], from + offset_of(unit, lane, part), unit < kUnits, lane);
  }
  TF_DEVICE void start(const State* from, int part) {
    TF_UNROLL for (int round = 0; round < TF_DEPTH; ++round) {
      if (round < kRounds) load_round(round, from, part);
    }
  }

  // `slot_after(t)`: where the state after token t goes, from the beginning of the key head's
  // state, or null. Every subgroup makes as many rounds: lanes exchange values in all of them.
  template <class SlotAfter>
  TF_DEVICE void run(const State* from, float* shared, int tokens, int part, SlotAfter slot_after) {
    const int lane = static_cast<int>(tf::thread_x()) % kLanes;
    Keys keys = keys_of(shared, lane);
    State* target = slot_after(0);
    for (int first = 0; first < kRounds; first += TF_DEPTH) {
      TF_UNROLL for (int d = 0; d < TF_DEPTH; ++d) {
        const int round = first + d;
        if (round >= kRounds) break;
        const int unit = round * kUnitsAtOnce + static_cast<int>(tf::thread_x()) / kLanes;
        const bool valid = unit < kUnits;
        const tf::i32 offset = offset_of(unit, lane, part);
        Tile tile = widened(tiles[d]);
        if (round + TF_DEPTH < kRounds) {
          const int next = unit + TF_DEPTH * kUnitsAtOnce;
          load(tiles[d], from + offset_of(next, lane, part), next < kUnits, lane);
        }
        for (int t = 0; t < (kOneToken ? 1 : tokens); ++t) {
          if (!kOneToken) {
            keys = keys_of(shared + t * kToken, lane);
            target = slot_after(t);
          }
          apply(tile, keys, shared + t * kToken, unit, valid, lane);
          const RawTile raw = narrowed(tile);
          if (!target || !valid) continue;
          TF_UNROLL for (int i = 0; i < kAccesses; ++i) {
            if (!reaches(i, lane)) continue;
            // Few blocks: what is written should leave the cache at once.
            if (TF_SPLIT > 1) {
              tf::store_streaming(target + offset + i * kAccessStride, raw.raw[i]);
            } else {
              tf::store(target + offset + i * kAccessStride, raw.raw[i]);
            }
          }
        }
      }
    }
  }
};

}  // namespace
