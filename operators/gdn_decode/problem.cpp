#include <algorithm>
#include <string>
#include <vector>

#include <truefuse/core/error.h>
#include <truefuse/operators/gdn_decode/operator.h>
#include <truefuse/operators/gdn_decode/problem.h>

namespace truefuse::gdn_decode {
namespace {

[[noreturn]] void fail(const std::string& sentence) { throw Error("gdn_decode: " + sentence); }

std::string number(std::int64_t value) { return std::to_string(value); }

std::string list(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values) text += (text.empty() ? "" : ", ") + number(value);
  return '[' + text + ']';
}

const TensorView* tensor_or_null(const Call& call, Position i) {
  return std::get_if<TensorView>(&call.arguments[i]);
}

std::optional<std::string_view> text_or_none(const Call& call, Position i) {
  const auto* text = std::get_if<std::string_view>(&call.arguments[i]);
  return text == nullptr ? std::nullopt : std::optional(*text);
}

bool given(const Call& call, Position i) {
  return !std::holds_alternative<std::monostate>(call.arguments[i]);
}

std::int64_t integer(const Call& call, Position i) {
  return std::get<std::int64_t>(call.arguments[i]);
}

IndexView index_view(const TensorView* tensor) {
  if (tensor == nullptr) return {};
  return {tensor->data, tensor->dtype == DType::i64, stride_of(*tensor, 0),
          tensor->sizes.size() > 1 ? stride_of(*tensor, 1) : 0};
}

/// Arguments that only make sense together.
void check_pairs(const Call& call) {
  struct Pair {
    Position first;
    std::string_view first_name;
    Position second;
    std::string_view second_name;
    std::string_view advice;
  };
  constexpr Pair kPairs[] = {
      {kBa, "ba", kBaLayout, "ba_layout",
       "A tensor of rows needs its layout, and a layout its tensor."},
      {kZ, "z", kZLayout, "z_layout",
       "A tensor of rows needs its layout, and a layout its tensor."},
      {kA, "a", kALayout, "a_layout",
       "A tensor of rows needs its layout, and a layout its tensor."},
      {kNormWeight, "norm_weight", kNormEps, "norm_eps",
       "The gated norm needs both; without either, the output is the core."},
      {kNormWeight, "norm_weight", kGateActivation, "gate_activation",
       "Say \"silu\" or \"sigmoid\" for the gate of the norm; without a norm there is no gate."},
      {kStateIndices, "state_indices", kPadding, "padding",
       "Say which indices are padding, \"negative\" or \"nonpositive\" (slot 0 is nobody's); "
       "without indices there is none."},
  };
  for (const Pair& pair : kPairs) {
    const bool first = given(call, pair.first);
    if (first == given(call, pair.second)) continue;
    fail(std::string(first ? pair.first_name : pair.second_name) + " is given, and " +
         std::string(first ? pair.second_name : pair.first_name) + " is not. " +
         std::string(pair.advice));
  }
}

void check_rows(const Call& call, Problem& p) {
  constexpr std::array<Position, kRowTensors> kTensors{kQkvz, kBa, kZ, kA};
  constexpr std::array<Position, kRowTensors> kLayouts{kQkvzLayout, kBaLayout, kZLayout, kALayout};
  const TensorView& qkvz = call.tensor(kQkvz);
  const std::size_t rank = qkvz.sizes.size();
  if (rank != 2 && rank != 3) {
    fail("qkvz is " + list(qkvz.sizes) +
         "; rows are [batch, columns] for one token, or [batch, tokens, columns].");
  }
  p.batch = qkvz.sizes[0];
  p.tokens = rank == 3 ? qkvz.sizes[1] : 1;

  LayoutTexts texts;
  for (std::size_t t = 0; t < kRowTensors; ++t) texts[t] = text_or_none(call, kLayouts[t]);
  p.layouts = row_layouts(texts, p.heads);
  for (std::uint8_t t = 0; t < kRowTensors; ++t) {
    const TensorView* view = tensor_or_null(call, kTensors[t]);
    if (view == nullptr) continue;
    if (view->sizes.back() != p.layouts.columns[t]) {
      refuse_columns(static_cast<RowTensor>(t), *texts[t], p.heads, view->sizes.back());
    }
    p.rows[t] = {view, stride_of(*view, 0), rank == 3 ? stride_of(*view, 1) : 0};
  }
  // q, k and v are in qkvz, whose columns lie one after the other.
  Place* const z = p.layouts.z ? &*p.layouts.z : nullptr;
  for (Place* place : {&p.layouts.b, &p.layouts.a, z}) {
    if (place == nullptr) continue;
    const std::int64_t step = stride_of(*p.rows[place->tensor].view, rank - 1);
    place->base *= step;
    place->head *= step;
    place->group *= step;
    place->inner *= step;
  }
}

void check_norm(const Call& call, Problem& p) {
  p.norm_weight = tensor_or_null(call, kNormWeight);
  if (p.norm_weight == nullptr) {
    if (p.rows[kRowZ].view != nullptr) {
      fail(
          "z is given, and norm_weight is not, so nothing would read it. Pass the norm's weight, "
          "or leave z out.");
    }
    return;
  }
  if (!p.layouts.z) {
    fail(
        "norm_weight is given, and no layout names z, which gates the norm. Name it in the layout "
        "of the rows that hold it, or pass z and z_layout.");
  }
  const Argument& eps = call.arguments[kNormEps];
  const auto* whole = std::get_if<std::int64_t>(&eps);
  p.norm_eps = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(eps);
  p.gate_is_sigmoid = call.text(kGateActivation) == "sigmoid";
}

void check_state(const Call& call, Problem& p) {
  p.state = &call.tensor(kState);
  p.slots = p.state->sizes[0];
  p.keys_are_last = call.text(kStateLayout) == "[HV,V,K]";
  const std::int64_t rows = p.keys_are_last ? p.heads.V : p.heads.K;
  const std::int64_t columns = p.keys_are_last ? p.heads.K : p.heads.V;
  if (p.state->sizes[2] != rows || p.state->sizes[3] != columns) {
    const bool is_other = p.state->sizes[2] == columns && p.state->sizes[3] == rows;
    fail("state is " + list(p.state->sizes) + "; as \"" + std::string(call.text(kStateLayout)) +
         "\" with head_k_dim " + number(p.heads.K) + " and head_v_dim " + number(p.heads.V) +
         " it must be " + list(std::array{p.slots, p.value_heads(), rows, columns}) + "." +
         (is_other ? " Is it \"" + std::string(p.keys_are_last ? "[HV,K,V]" : "[HV,V,K]") + "\"?"
                   : ""));
  }
}

void check_convolution(const Call& call, Problem& p) {
  p.conv_state = &call.tensor(kConvState);
  p.conv_weight = &call.tensor(kConvWeight);
  p.conv_bias = tensor_or_null(call, kConvBias);
  p.taps = p.conv_weight->sizes[1];
  p.history = p.conv_state->sizes[2];
  if (p.conv_weight->sizes[0] != p.channels()) {
    fail("conv_weight has " + number(p.conv_weight->sizes[0]) + " channels; with num_k_heads " +
         number(p.heads.H) + ", num_v_heads " + number(p.value_heads()) + ", head_k_dim " +
         number(p.heads.K) + " and head_v_dim " + number(p.heads.V) + " there are " +
         number(p.channels()) + ": [q heads | k heads | v heads].");
  }
  if (p.taps < 2 || p.taps > 8) {
    fail("conv_weight is " + list(p.conv_weight->sizes) +
         "; the convolution has 2 to 8 taps (its last dimension).");
  }
  const std::int64_t needed = p.taps - 1 + (p.speculative ? p.tokens - 1 : 0);
  if (p.history < needed) {
    fail("conv_state holds " + number(p.history) + " inputs of each channel; " +
         (p.speculative ? number(p.tokens) + " speculative tokens and " : "") + number(p.taps) +
         " taps need " + number(needed) + ".");
  }
}

void check_indices(const Call& call, Problem& p) {
  const TensorView* read = tensor_or_null(call, kStateIndices);
  const TensorView* write = tensor_or_null(call, kWriteIndices);
  const TensorView* accepted = tensor_or_null(call, kNumAccepted);
  if (read == nullptr) {
    if (write != nullptr) fail("write_indices are given, and state_indices are not. Pass both.");
    if (p.slots < p.batch) {
      fail("state has " + number(p.slots) + " slots for " + number(p.batch) +
           " sequences. Without state_indices, sequence b has slot b.");
    }
  } else {
    const std::size_t rank = read->sizes.size();
    if ((rank != 1 && rank != 2) || read->sizes[0] != p.batch) {
      fail("state_indices is " + list(read->sizes) +
           "; it must be [batch], or [batch, tokens] for "
           "speculative decoding, and the batch is " +
           number(p.batch) + ".");
    }
    p.speculative = rank == 2;
    p.index_columns = p.speculative ? read->sizes[1] : 1;
    if (p.speculative && p.index_columns < p.tokens) {
      fail("state_indices is " + list(read->sizes) + "; it must have a slot for each of the " +
           number(p.tokens) + " tokens.");
    }
    p.zero_is_padding = call.text(kPadding) == "nonpositive";
  }
  if ((accepted != nullptr) != p.speculative) {
    fail(p.speculative ? "state_indices is [batch, tokens], and num_accepted is not given: it says "
                         "which of the last call's tokens were accepted (1: the first only)."
                       : "num_accepted is given; it needs state_indices of shape [batch, tokens], "
                         "whose slots keep the state after each token.");
  }
  if (accepted != nullptr && accepted->sizes[0] != p.batch) {
    fail("num_accepted has " + number(accepted->sizes[0]) + " elements; the batch is " +
         number(p.batch) + ".");
  }
  p.read_index = index_view(read);
  p.write_index = write != nullptr ? index_view(write) : p.read_index;
  p.accepted = index_view(accepted);
}

bool means_padding(const Problem& p, std::int64_t index) {
  return index < 0 || (index == 0 && p.zero_is_padding);
}

std::int64_t checked_slot(const Problem& p, const IndexView& view, std::string_view name,
                          std::int64_t sequence, std::int64_t column) {
  const std::int64_t index = view.at(sequence, column);
  if (means_padding(p, index)) return SequenceSlots::kNone;
  if (index < p.slots) return index;
  const std::string where =
      p.speculative ? number(sequence) + ", " + number(column) : number(sequence);
  fail(std::string(name) + "[" + where + "] is " + number(index) + "; the pool has " +
       number(p.slots) + " slots, 0 to " + number(p.slots - 1) + ".");
}

}  // namespace

std::int64_t stride_of(const TensorView& tensor, std::size_t dimension) {
  return tensor.sizes[dimension] > 1 ? tensor.strides[dimension] : 0;
}

Problem::Problem(const Call& call) {
  check_pairs(call);
  heads.H = integer(call, kNumKHeads);
  heads.K = integer(call, kHeadKDim);
  heads.V = integer(call, kHeadVDim);
  const std::int64_t value_head_count = integer(call, kNumVHeads);
  if (value_head_count % heads.H != 0) {
    fail("num_v_heads is " + number(value_head_count) + "; it must be a multiple of num_k_heads, " +
         number(heads.H) + ".");
  }
  heads.G = value_head_count / heads.H;
  rounds_as_transformers = call.text(kRounding) == "transformers";
  a_log = &call.tensor(kALog);
  dt_bias = &call.tensor(kDtBias);
  if (!call.outputs.empty()) out = &call.outputs[0];
  check_rows(call, *this);
  check_norm(call, *this);
  check_state(call, *this);
  check_indices(call, *this);
  check_convolution(call, *this);
}

SequenceSlots slots_of(const Problem& p, std::int64_t sequence) {
  SequenceSlots slots;
  slots.window = p.history - (p.taps - 1);
  if (!p.read_index.given()) {
    slots.read = slots.conv_read = slots.conv_write = sequence;
    return slots;
  }
  const std::int64_t first = checked_slot(p, p.read_index, "state_indices", sequence, 0);
  if (first == SequenceSlots::kNone) return slots;
  std::int64_t column = 0;
  if (p.speculative) {
    const std::int64_t count = p.accepted.at(sequence, 0);
    const std::int64_t most = std::min(p.index_columns, p.history - p.taps + 2);
    if (count < 1 || count > most) {
      fail("num_accepted[" + number(sequence) + "] is " + number(count) + "; it must be 1 to " +
           number(most) + ", as many tokens as the last call can have had.");
    }
    slots.window = column = count - 1;
  }
  slots.read = checked_slot(p, p.read_index, "state_indices", sequence, column);
  if (slots.is_padding()) return slots;
  slots.conv_read = first;
  slots.conv_write = checked_slot(p, p.write_index, "write_indices", sequence, 0);
  return slots;
}

std::int64_t write_slot(const Problem& p, std::int64_t sequence, std::int64_t token) {
  if (!p.speculative && token + 1 != p.tokens) return SequenceSlots::kNone;
  if (!p.write_index.given()) return sequence;
  return checked_slot(p, p.write_index, "write_indices", sequence, p.speculative ? token : 0);
}

void check_arguments(const Call& call) { Problem{call}; }

void check_values(const Call& call) {
  const Problem p(call);
  if (!p.read_index.given() || p.empty()) return;
  struct Use {
    std::int64_t slot, sequence;
  };
  std::vector<Use> reads, writes;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const SequenceSlots slots = slots_of(p, b);
    if (slots.is_padding()) continue;
    reads.push_back({slots.read, b});
    reads.push_back({slots.conv_read, b});
    for (std::int64_t t = 0; t < p.tokens; ++t) {
      const std::int64_t slot = write_slot(p, b, t);
      if (slot != SequenceSlots::kNone) writes.push_back({slot, b});
    }
  }
  const auto by_slot = [](const Use& x, const Use& y) { return x.slot < y.slot; };
  std::sort(writes.begin(), writes.end(), by_slot);
  const auto twice = std::adjacent_find(
      writes.begin(), writes.end(), [](const Use& x, const Use& y) { return x.slot == y.slot; });
  if (twice != writes.end()) {
    fail("slot " + number(twice->slot) + " is written twice, for sequences " +
         number(twice[0].sequence) + " and " + number(twice[1].sequence) +
         ". Give every sequence (and every speculative token) a slot of its own.");
  }
  for (const Use& read : reads) {
    const auto found = std::lower_bound(writes.begin(), writes.end(), read, by_slot);
    if (found == writes.end() || found->slot != read.slot || found->sequence == read.sequence) {
      continue;
    }
    fail("slot " + number(read.slot) + " is read for sequence " + number(read.sequence) +
         " and written for sequence " + number(found->sequence) +
         ", and which comes first is not defined.");
  }
}

}  // namespace truefuse::gdn_decode
