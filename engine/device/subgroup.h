#pragma once

#include "truefuse/device/block.h"
#include "truefuse/device/index.h"
#include "truefuse/device/math.h"
#include "truefuse/device/types.h"

// Exchange between the lanes of a wave. A subgroup is a run of W consecutive lanes; W is a power of
// two that is at most 32, or TF_WAVE. All lanes of the wave that have not returned make the call
// together, and no lane reads from one that has returned. Values have 4 or 8 bytes.

namespace tf {

namespace detail {

// `ballot` and `sync` are no exchanges, but the simulator has them among the same collectives.
enum class Exchange { exclusive_or, down, index, up, ballot, sync };

#if defined(TF_PLATFORM_SIM)

template <Exchange Kind, int W, class Bits>
TF_DEVICE Bits exchange(Bits bits, int operand TF_SITE) {
  return static_cast<Bits>(::tf_sim::exchange(static_cast<int>(Kind), W, bits, operand, site));
}

#else

#if defined(TF_PLATFORM_CUDA)

template <Exchange Kind, int W>
TF_DEVICE u32 exchange(u32 bits, int operand) {
  if constexpr (Kind == Exchange::exclusive_or) return __shfl_xor_sync(~0u, bits, operand, W);
  if constexpr (Kind == Exchange::down) return __shfl_down_sync(~0u, bits, operand, W);
  if constexpr (Kind == Exchange::up) {
    return __shfl_up_sync(~0u, bits, static_cast<u32>(operand), W);
  }
  if constexpr (Kind == Exchange::index) return __shfl_sync(~0u, bits, operand, W);
}

#else

// Built on the permute instruction itself: HIP's own shuffles differ between releases.
template <Exchange Kind, int W>
TF_DEVICE u32 exchange(u32 bits, int operand) {
  int self = static_cast<int>(__builtin_amdgcn_mbcnt_lo(~0u, 0u));
#if TF_WAVE == 64
  self = static_cast<int>(__builtin_amdgcn_mbcnt_hi(~0u, static_cast<u32>(self)));
#endif
  int source = self;
  if constexpr (Kind == Exchange::exclusive_or) source = self ^ operand;
  if constexpr (Kind == Exchange::down) {
    source = (self & (W - 1)) + operand < W ? self + operand : self;
  }
  if constexpr (Kind == Exchange::up) source = (self & (W - 1)) >= operand ? self - operand : self;
  if constexpr (Kind == Exchange::index) source = (self & ~(W - 1)) + operand;
  return static_cast<u32>(__builtin_amdgcn_ds_bpermute(source * 4, static_cast<int>(bits)));
}

#endif

template <Exchange Kind, int W>
TF_DEVICE u64 exchange(u64 bits, int operand) {
  const u32 low = exchange<Kind, W>(static_cast<u32>(bits), operand);
  const u32 high = exchange<Kind, W>(static_cast<u32>(bits >> 32), operand);
  return low | static_cast<u64>(high) << 32;
}

#endif

template <Exchange Kind, int W, class T>
TF_DEVICE T shuffle(T value, int operand TF_SITE) {
  static_assert(W > 0 && (W & (W - 1)) == 0 && (W <= 32 || W == TF_WAVE),
                "the width of a subgroup is a power of two up to 32, or TF_WAVE");
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffled value has 4 or 8 bytes");
  if constexpr (sizeof(T) == 4) {
    return bit_cast<T>(exchange<Kind, W>(bit_cast<u32>(value), operand TF_PASS_SITE));
  } else {
    return bit_cast<T>(exchange<Kind, W>(bit_cast<u64>(value), operand TF_PASS_SITE));
  }
}

}  // namespace detail

/// The value of lane (own lane XOR mask); 0 <= mask < W.
template <int W, class T>
TF_DEVICE T shuffle_xor(T value, int mask TF_SITE) {
  return detail::shuffle<detail::Exchange::exclusive_or, W>(value, mask TF_PASS_SITE);
}

/// The value of the lane `delta` further on, or the lane's own where that leaves the subgroup;
/// delta >= 0.
template <int W, class T>
TF_DEVICE T shuffle_down(T value, int delta TF_SITE) {
  return detail::shuffle<detail::Exchange::down, W>(value, delta TF_PASS_SITE);
}

/// The value of the lane `delta` further back, or the lane's own where that leaves the subgroup;
/// delta >= 0.
template <int W, class T>
TF_DEVICE T shuffle_up(T value, int delta TF_SITE) {
  return detail::shuffle<detail::Exchange::up, W>(value, delta TF_PASS_SITE);
}

/// The value of lane `source` of the own subgroup; 0 <= source < W.
template <int W, class T>
TF_DEVICE T shuffle(T value, int source TF_SITE) {
  return detail::shuffle<detail::Exchange::index, W>(value, source TF_PASS_SITE);
}

namespace detail {

struct Sum {
  template <class T>
  static TF_DEVICE T of(T a, T b) {
    return a + b;
  }
};

struct Max {
  template <class T>
  static TF_DEVICE T of(T a, T b) {
    return max(a, b);
  }
};

template <class Combined, int W, class T>
TF_DEVICE T subgroup(T value TF_SITE) {
  TF_UNROLL for (int mask = W / 2; mask > 0; mask /= 2) {
    value = Combined::of(value, shuffle_xor<W>(value, mask TF_PASS_SITE));
  }
  return value;
}

template <class Combined, class T>
TF_DEVICE T block(T value TF_SITE) {
  TF_SHARED(T, partial, 1024 / TF_WAVE);
  value = subgroup<Combined, TF_WAVE>(value TF_PASS_SITE);
  if (lane() == 0) partial[wave()] = value;
  block_sync(TF_PASS_SITE_ONLY);
  const u32 waves = block_threads() / TF_WAVE;
  T all = partial[0];
  for (u32 i = 1; i < waves; ++i) all = Combined::of(all, partial[i]);
  block_sync(TF_PASS_SITE_ONLY);  // The next call writes the same memory.
  return all;
}

}  // namespace detail

/// The sum over the subgroup, the same bits in each of its lanes and in every run.
template <int W, class T>
TF_DEVICE T subgroup_sum(T value TF_SITE) {
  return detail::subgroup<detail::Sum, W>(value TF_PASS_SITE);
}

/// The largest value of the subgroup, by tf::max: a NaN counts only where all are NaN.
template <int W, class T>
TF_DEVICE T subgroup_max(T value TF_SITE) {
  return detail::subgroup<detail::Max, W>(value TF_PASS_SITE);
}

/// The sum over the block, the same bits in each thread and in every run; waves of 32 and of 64 may
/// round differently. Every thread of the block calls it, and the block is whole waves. Contains
/// two barriers: shared memory written before the call can be read after it.
template <class T>
TF_DEVICE T block_sum(T value TF_SITE) {
  return detail::block<detail::Sum>(value TF_PASS_SITE);
}

/// The largest value of the block, by tf::max: a NaN counts only where all are NaN. Called as
/// block_sum is.
template <class T>
TF_DEVICE T block_max(T value TF_SITE) {
  return detail::block<detail::Max>(value TF_PASS_SITE);
}

}  // namespace tf
