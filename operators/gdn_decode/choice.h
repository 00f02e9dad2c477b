#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include <truefuse/operators/gdn_decode/problem.h>

namespace truefuse::gdn_decode {

inline constexpr const char* kKernel = "gdn_decode_step";
inline constexpr std::int64_t kThreads = 256, kStreamThreads = 384;  // Of a block; see stream.h.
inline constexpr std::array<const char*, 2> kWithClusters = {"sm_90", "sm_10"};

/// What a variant is made of.
struct Choice {
  HeadSizes heads;
  std::int64_t taps = 4;
  DType row = DType::bf16, state = DType::f32, a_log = DType::f32, dt_bias = DType::bf16;
  std::optional<DType> norm;
  bool keys_are_last = true, rounds_as_transformers = false, gate_is_sigmoid = false;
  // How it is done: see kernel.hip.
  bool one_token = true, stream = false, overflows = false;
  bool pairs = false, channels_together = false, outputs_together = false;
  std::int64_t split = 1, vector = 1, lanes = 8, depth = 1, chunk_rows = 0;

  std::int64_t values() const { return heads.V / split; }  ///< Of each value head in a block.
};

/// The constants of kernel.hip, in the order of constant_names().
Variant variant_of(const Choice& choice, const RowLayouts& rows);

}  // namespace truefuse::gdn_decode
