#pragma once

#include <cstdint>
#include <optional>

#include <truefuse/operator/operator.h>
#include <truefuse/operators/gdn_decode/row_layouts.h>

namespace truefuse::gdn_decode {

/// The number of an element type in kernels and in tables of them: f32 0, f16 1, bf16 2.
constexpr std::uint8_t type_code(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 1;
    case DType::bf16:
      return 2;
    default:
      return 0;
  }
}

/// An integer tensor [batch] or [batch, columns], or none.
struct IndexView {
  const void* data = nullptr;
  bool is_64 = false;
  std::int64_t batch_stride = 0, column_stride = 0;

  bool given() const { return data != nullptr; }
  /// Only where the data are in host memory.
  std::int64_t at(std::int64_t sequence, std::int64_t column) const {
    const std::int64_t i = sequence * batch_stride + column * column_stride;
    return is_64 ? static_cast<const std::int64_t*>(data)[i]
                 : static_cast<const std::int32_t*>(data)[i];
  }
};

/// A call of gdn_decode whose arguments fit together, in the terms of its mathematics. Holds
/// pointers into the call.
struct Problem {
  /// Throws Error naming the argument for what the contract cannot say: columns against layouts,
  /// the state's order, channels, buffers too short for the tokens, arguments that belong together.
  explicit Problem(const Call& call);

  bool empty() const { return batch == 0 || tokens == 0; }
  std::int64_t value_heads() const { return heads.H * heads.G; }
  std::int64_t channels() const { return 2 * heads.H * heads.K + value_heads() * heads.V; }
  /// Row tensor of a segment, at [sequence, token].
  std::int64_t row_offset(RowTensor tensor, std::int64_t sequence, std::int64_t token) const {
    return sequence * rows[tensor].batch_stride + token * rows[tensor].token_stride;
  }

  HeadSizes heads;
  std::int64_t batch = 0, tokens = 1, slots = 0;
  std::int64_t taps = 4;     ///< W: of the convolution.
  std::int64_t history = 3;  ///< Columns of conv_state, at least W - 1.

  RowLayouts layouts;  ///< Strides between columns, where a tensor has them, multiplied in.
  struct Row {
    const TensorView* view = nullptr;
    std::int64_t batch_stride = 0, token_stride = 0;
  };
  std::array<Row, kRowTensors> rows;

  const TensorView* conv_state = nullptr;   ///< [slots, channels, history]
  const TensorView* state = nullptr;        ///< [slots, HV, V, K] or [slots, HV, K, V]
  const TensorView* conv_weight = nullptr;  ///< [channels, W]
  const TensorView* conv_bias = nullptr;    ///< [channels], or null
  const TensorView* a_log = nullptr;        ///< [HV]
  const TensorView* dt_bias = nullptr;      ///< [HV]
  const TensorView* norm_weight = nullptr;  ///< [V]; null: no norm, and out is the core
  const TensorView* out = nullptr;          ///< [batch, tokens, HV, V]; null while nothing runs

  bool keys_are_last = true;  ///< The state is [HV,V,K].
  bool rounds_as_transformers = false;
  bool gate_is_sigmoid = false;
  double norm_eps = 0;
  bool zero_is_padding = false;  ///< Index 0 means padding as negative ones do.

  // Without indices sequence b has slot b. Speculative: state_indices is [batch, columns].
  bool speculative = false;
  IndexView read_index, write_index, accepted;
  std::int64_t index_columns = 1;  ///< Of read_index.
};

/// Strides of a dimension of size 1 mean nothing: 0.
std::int64_t stride_of(const TensorView& tensor, std::size_t dimension);

/// Where one sequence reads and writes, from indices in host memory.
struct SequenceSlots {
  static constexpr std::int64_t kNone = -1;

  std::int64_t read = kNone;  ///< Of the recurrent state; kNone: the sequence is padding.
  std::int64_t conv_read = kNone;
  std::int64_t conv_write = kNone;  ///< kNone: not written.
  std::int64_t window = 0;          ///< First of the W - 1 columns that the convolution looks at.

  bool is_padding() const { return read == kNone; }
};

/// Throws Error for an index beyond the pool or a count of accepted tokens out of range.
SequenceSlots slots_of(const Problem& problem, std::int64_t sequence);

/// Where the state after `token` goes, or kNone. Without speculation only the last token's does.
std::int64_t write_slot(const Problem& problem, std::int64_t sequence, std::int64_t token);

}  // namespace truefuse::gdn_decode
