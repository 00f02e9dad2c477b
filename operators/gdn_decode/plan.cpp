#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include <truefuse/core/error.h>
#include <truefuse/operators/gdn_decode/choice.h>
#include <truefuse/operators/gdn_decode/operator.h>

namespace truefuse::gdn_decode {
namespace {

constexpr std::int64_t kHeadLanes = 32;            // Share the values of a head; see output.h.
constexpr std::int64_t kMostElementsPerLane = 32;  // Of the state, in registers.
// Of stream.h.
constexpr std::int64_t kStreamWarps = 8, kStageBytes = 12288;
constexpr std::int64_t kAccessBytes = 16;
constexpr std::int64_t kMost32 = (std::int64_t{1} << 31) - 1;

/// The structs of kernel.hip, member by member.
struct RowStrides {
  std::int64_t batch;
  std::int32_t token;
};
struct Index {
  std::int64_t batch_stride;
  std::int32_t column_stride, is_64;
};
struct Sizes {
  std::int64_t slots, state_slot, conv_slot;
  std::int32_t history, tokens;
  std::int32_t conv_channel, conv_column;
  std::int32_t weight_channel, weight_tap, bias_channel;
  std::int32_t a_log, dt_bias, norm;
  std::int32_t speculative, zero_is_padding, index_columns;
  std::int32_t tasks;
  float norm_eps;
};

/// What the kernel counts with 32 bits.
std::int32_t narrow(std::int64_t value, const char* what) {
  if (value <= kMost32) return static_cast<std::int32_t>(value);
  throw Error("gdn_decode: " + std::string(what) + " is " + std::to_string(value) +
              ", and one launch counts it with 32 bits. Pass smaller or denser tensors");
}

/// Elements of the state in one access: as many as 16 bytes hold, the alignment of every slot
/// allows, and, for [K, V], a lane's registers.
std::int64_t vector_of(const Choice& c, std::uintptr_t address, std::int64_t slot_stride) {
  const auto size = static_cast<std::int64_t>(size_of(c.state));
  const std::int64_t columns = c.keys_are_last ? c.heads.K : c.heads.V;
  const std::int64_t keys = (c.heads.K + c.lanes - 1) / c.lanes;
  for (std::int64_t vector = kAccessBytes / size; vector > 1; vector /= 2) {
    const bool is_aligned =
        address % static_cast<std::uintptr_t>(vector * size) == 0 && slot_stride % vector == 0;
    const bool fits = c.keys_are_last || keys * vector <= kMostElementsPerLane;
    if (is_aligned && fits && columns % vector == 0) return vector;
  }
  return 1;
}

/// Shared memory: q, k, the values and the gates of every token, then the stages of the copy
/// engine.
std::int64_t shared_bytes(const Choice& c, std::int64_t tokens) {
  const std::int64_t token = 2 * c.heads.K + c.heads.G * c.values() + 2 * c.heads.G;
  if (c.stream) return 2 * ((token + 3) / 4 * 16) + kStreamWarps * kStageBytes;
  return tokens * token * 4;
}

bool is_power_of_two(std::int64_t n) { return (n & (n - 1)) == 0; }

/// Whether `count` elements at any multiple of `count` of them, counted in these strides, can be
/// accessed at once.
bool lie_together(const void* data, DType dtype, std::int64_t count,
                  std::initializer_list<std::int64_t> strides) {
  const std::int64_t bytes =
      std::min<std::int64_t>(count * static_cast<std::int64_t>(size_of(dtype)), kAccessBytes);
  return is_power_of_two(count) &&
         reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(bytes) == 0 &&
         std::all_of(strides.begin(), strides.end(),
                     [&](std::int64_t stride) { return stride % count == 0; });
}

/// Whether `count` neighbours of a segment can be accessed at once.
bool lie_together(const Problem& p, const Place& place, std::int64_t count) {
  const Problem::Row& row = p.rows[place.tensor];
  return place.inner == 1 &&
         lie_together(row.view->data, row.view->dtype, count,
                      {place.base, place.head, place.group, row.batch_stride, row.token_stride});
}

/// TF_PAIRS, TF_CHANNELS_TOGETHER and TF_OUTPUTS_TOGETHER of kernel.hip.
void choose_accesses(const Problem& p, Choice& c) {
  c.pairs = c.heads.K % 2 == 0 && c.values() % 2 == 0 && lie_together(p, p.layouts.q, 2) &&
            lie_together(p, p.layouts.k, 2) && lie_together(p, p.layouts.v, 2) &&
            stride_of(*p.conv_weight, 1) == 1 && stride_of(*p.conv_weight, 0) == p.taps &&
            lie_together(p.conv_weight->data, c.row, 2 * p.taps, {});
  const TensorView& conv = *p.conv_state;
  c.channels_together = c.pairs && stride_of(conv, 1) == 1 &&
                        lie_together(conv.data, c.row, 2, {stride_of(conv, 0), stride_of(conv, 2)});
  const std::int64_t outputs = (c.values() + kHeadLanes - 1) / kHeadLanes;
  c.outputs_together = c.values() % outputs == 0 && lie_together(p.out->data, c.row, outputs, {}) &&
                       (p.norm_weight == nullptr || lie_together(p, *p.layouts.z, outputs));
}

/// Whether clusters and the copy engine of NVIDIA sm_90 and sm_100 are there.
bool has_clusters(const DeviceFacts& device) {
  return std::any_of(kWithClusters.begin(), kWithClusters.end(),
                     [&](const char* beginning) { return device.arch.starts_with(beginning); });
}

/// Rows of the state that the copy engine moves at a time, of 1 to 4 KiB together; 0: it cannot be
/// used. See stream.h.
std::int64_t chunk_rows(const Choice& c, const DeviceFacts& device) {
  const auto size = static_cast<std::int64_t>(size_of(c.state));
  const std::int64_t row_bytes = c.heads.K * size;
  if (!c.keys_are_last || c.vector * size != kAccessBytes ||
      c.heads.K % (c.lanes * c.vector) != 0 ||
      shared_bytes(c, 1) > device.max_shared_bytes_opt_in) {
    return 0;
  }
  for (std::int64_t rows = 4096 / row_bytes; rows * row_bytes >= 1024; rows /= 2) {
    if (kStageBytes % (rows * row_bytes) == 0 && rows % (32 / c.lanes) == 0 &&
        c.values() % rows == 0 && c.heads.G * c.values() / rows % kStreamWarps == 0) {
      return rows;
    }
  }
  return 0;
}

/// Blocks of a stream: two for each multiprocessor, or fewer if they then have as many tasks each.
std::int64_t tasks_of_a_block(std::int64_t tasks, const DeviceFacts& device) {
  const std::int64_t most = 2 * device.multiprocessors_or_one();
  return (tasks + most - 1) / most;
}
std::int64_t stream_blocks(std::int64_t tasks, const DeviceFacts& device) {
  const std::int64_t each = tasks_of_a_block(tasks, device);
  return (tasks + each - 1) / each;
}

/// A block for each key head, or several, or blocks that walk over key heads: measured on an H200
/// with 48 value heads of 128 x 128 in fp32 and batches of 1 to 128. With few key heads latency
/// decides, and they are shared among blocks; with many, the memory, and blocks stream.
void choose_form(const Problem& p, const DeviceFacts& device, Choice& c) {
  const bool simple = c.one_token && !p.speculative && p.history <= p.taps;
  if (!has_clusters(device) || !simple) return;
  const std::int64_t tasks = p.batch * p.heads.H;
  const std::int64_t unit = c.keys_are_last ? 1 : c.vector;
  for (const std::int64_t split : {8, 4, 2}) {
    if (tasks * split > device.multiprocessors_or_one() || c.heads.V % (split * unit) != 0 ||
        c.heads.K % split != 0 || c.heads.G > 8) {
      continue;
    }
    c.split = split;
    const std::int64_t units = c.heads.G * c.values() / unit;
    c.depth = std::clamp<std::int64_t>(units * c.lanes / kThreads, 1, 3);
    return;
  }
  Choice streaming = c;
  streaming.stream = true;
  streaming.chunk_rows = chunk_rows(streaming, device);
  // Hints to the cache: on an H200 slower by 4 % where each block has one task (50 MB), no faster
  // with two, and faster by 1 % with four and more.
  streaming.overflows = tasks_of_a_block(tasks, device) > 2;
  if (streaming.chunk_rows > 0) c = streaming;
}

void check_limits(const Problem& p, const DeviceFacts& device) {
  Choice one;
  one.heads = p.heads;
  const std::int64_t bytes = shared_bytes(one, p.tokens);
  if (bytes > device.max_shared_bytes) {
    throw Error("gdn_decode: " + std::to_string(p.tokens) + " tokens of " +
                std::to_string(p.heads.G) + " value heads for each key head need " +
                std::to_string(bytes) + " bytes of shared memory; a block has " +
                std::to_string(device.max_shared_bytes) + ". Make several calls of " +
                std::to_string(device.max_shared_bytes / shared_bytes(one, 1)) +
                " tokens or fewer");
  }
  const auto reach = [&](const TensorView& tensor, std::size_t first) {
    std::int64_t offset = 0;
    for (std::size_t d = first; d < tensor.sizes.size(); ++d) {
      offset += (tensor.sizes[d] - 1) * stride_of(tensor, d);
    }
    return offset;
  };
  narrow(reach(*p.conv_state, 1), "the reach of a slot of conv_state");
  narrow(reach(*p.conv_weight, 0), "the reach of conv_weight");
  for (const auto& [tensor, what] : {std::pair{p.conv_bias, "the reach of conv_bias"},
                                     {p.a_log, "the reach of A_log"},
                                     {p.dt_bias, "the reach of dt_bias"},
                                     {p.norm_weight, "the reach of norm_weight"}}) {
    if (tensor != nullptr) narrow(reach(*tensor, 0), what);
  }
  for (const IndexView* view : {&p.read_index, &p.write_index}) {
    narrow((p.index_columns - 1) * view->column_stride, "the reach of a sequence's indices");
  }
  narrow(p.tokens * p.value_heads() * p.heads.V, "the number of outputs of a sequence");
  narrow(p.batch * p.heads.H * kThreads / 2, "half the number of threads");
  for (const auto& row : p.rows) {
    if (row.view != nullptr) narrow(reach(*row.view, 1), "the reach of a sequence's rows");
  }
}

RowStrides strides_of(const Problem& p, RowTensor tensor) {
  return {p.rows[tensor].batch_stride, narrow(p.rows[tensor].token_stride, "a token's stride")};
}

Index index_of(const IndexView& view) {
  return {view.batch_stride, narrow(view.column_stride, "a stride of the indices"),
          view.is_64 ? 1 : 0};
}

const void* data_of(const TensorView* tensor) { return tensor == nullptr ? nullptr : tensor->data; }

std::int32_t stride_or_zero(const TensorView* tensor) {
  return tensor == nullptr ? 0 : narrow(stride_of(*tensor, 0), "the stride of a weight");
}

void add_parameters(const Problem& p, KernelParameters& parameters) {
  const RowTensor z = p.layouts.z ? p.layouts.z->tensor : kRowQkvz;
  const RowTensor b = p.layouts.b.tensor;
  const RowTensor a = p.layouts.a.tensor;
  const auto row_data = [&](RowTensor tensor) { return data_of(p.rows[tensor].view); };
  parameters.add(p.out->data);
  parameters.add(row_data(kRowQkvz));
  parameters.add(row_data(z));
  parameters.add(row_data(b));
  parameters.add(row_data(a));
  parameters.add(p.conv_state->data);
  parameters.add(p.state->data);
  parameters.add(data_of(p.conv_weight));
  parameters.add(data_of(p.conv_bias));
  parameters.add(data_of(p.a_log));
  parameters.add(data_of(p.dt_bias));
  parameters.add(data_of(p.norm_weight));
  parameters.add(p.read_index.data);
  parameters.add(p.write_index.data);
  parameters.add(p.accepted.data);
  for (const RowTensor tensor : {kRowQkvz, z, b, a}) parameters.add(strides_of(p, tensor));
  for (const IndexView* view : {&p.read_index, &p.write_index, &p.accepted}) {
    parameters.add(index_of(*view));
  }
  const auto stride = [](const TensorView& tensor, std::size_t dimension) {
    return narrow(stride_of(tensor, dimension), "a stride");
  };
  parameters.add(Sizes{
      p.slots, stride_of(*p.state, 0), stride_of(*p.conv_state, 0),
      narrow(p.history, "the history"), narrow(p.tokens, "the number of tokens"),
      stride(*p.conv_state, 1), stride(*p.conv_state, 2), stride(*p.conv_weight, 0),
      stride(*p.conv_weight, 1), stride_or_zero(p.conv_bias), stride_or_zero(p.a_log),
      stride_or_zero(p.dt_bias), stride_or_zero(p.norm_weight), p.speculative ? 1 : 0,
      p.zero_is_padding ? 1 : 0, narrow(p.index_columns, "the number of columns of state_indices"),
      static_cast<std::int32_t>(p.batch * p.heads.H), static_cast<float>(p.norm_eps)});
}

}  // namespace

void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  const Problem p(call);
  if (p.empty()) return;
  check_limits(p, device);
  Choice choice;
  choice.heads = p.heads;
  choice.taps = p.taps;
  choice.row = p.conv_state->dtype;
  choice.state = p.state->dtype;
  choice.a_log = p.a_log->dtype;
  choice.dt_bias = p.dt_bias->dtype;
  if (p.norm_weight != nullptr) choice.norm = p.norm_weight->dtype;
  choice.keys_are_last = p.keys_are_last;
  choice.rounds_as_transformers = p.rounds_as_transformers;
  choice.gate_is_sigmoid = p.gate_is_sigmoid;
  choice.one_token = p.tokens == 1;
  // Of a [K, V] state a lane holds several values for each of its keys.
  if (!choice.keys_are_last && choice.heads.K > 64) choice.lanes = 16;
  choice.vector =
      vector_of(choice, reinterpret_cast<std::uintptr_t>(p.state->data), stride_of(*p.state, 0));
  if (choice.keys_are_last && choice.heads.K >= 16 * choice.vector) choice.lanes = 16;
  choose_form(p, device, choice);
  choose_accesses(p, choice);

  Launch& launch = plan.add();
  launch.kernel = kKernel;
  launch.starts_early = true;
  launch.variant = variant_of(choice, p.layouts);
  const std::int64_t tasks = p.batch * p.heads.H;
  const std::int64_t blocks = choice.stream ? stream_blocks(tasks, device) : tasks * choice.split;
  launch.grid = {static_cast<std::uint32_t>(blocks), 1, 1};
  launch.block = {static_cast<std::uint32_t>(choice.stream ? kStreamThreads : kThreads), 1, 1};
  launch.shared_bytes = static_cast<std::uint32_t>(shared_bytes(choice, p.tokens));
  add_parameters(p, launch.parameters);
}

}  // namespace truefuse::gdn_decode
