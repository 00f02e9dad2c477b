// One decode step of a Gated DeltaNet layer, everything in one pass over the recurrent state.
//
// A block owns one key head of one sequence: its query and key channels, and the channels of its
// TF_G value heads. Nobody else reads or writes these channels of conv_state, so that it can be
// shifted in place without a race. Where that makes too few blocks, TF_SPLIT of them, a cluster,
// share the key head: each has a part of the values, all read the history of query and key, and
// write their share of it only after the cluster's barrier, when all have read it. The tokens of a
// call are walked inside the block, and the state is read and written once for all of them.
//
//   before the barrier   the first loads of the state go out; every thread takes a few channels:
//                        convolution and SiLU (inputs.h)
//   then                 the recurrence, through registers (state.h) or the copy engine
//                        (state_bulk.h)
//   after a barrier      subgroups of 32 lanes each take one value head: norm and gate (output.h)
//
// Constants: TF_H, TF_G, TF_K, TF_V, TF_TAPS; element types (0 f32, 1 f16, 2 bf16) TF_ROW,
// TF_STATE, TF_A_LOG, TF_DT_BIAS, TF_NORM (-1: no norm); TF_KEYS_LAST; TF_TRANSFORMERS (rounding),
// TF_SIGMOID; where the segments of the rows are: TF_<segment>_BASE, _HEAD, _GROUP, _INNER for Q,
// K, V, Z, B, A. How it is done: TF_TOKENS (1, or 0: the launch says), TF_SPLIT, TF_BULK, TF_VECTOR
// (elements of the state in one access), TF_LANES and TF_DEPTH (state.h), TF_RESIDENT (blocks that
// should fit a multiprocessor at a time); and what lies together, aligned, so that it is accessed at
// once: TF_PAIRS, two channels in rows and weights, TF_CHANNELS_TOGETHER, in conv_state too;
// TF_OUTPUTS_TOGETHER, a lane's part of z and out.

#include "inputs.h"
#include "output.h"
#include "state_bulk.h"

#if TF_SPLIT > 1
#define TF_BLOCKS_OF_A_HEAD TF_CLUSTER(TF_SPLIT)
#else
#define TF_BLOCKS_OF_A_HEAD
#endif

TF_KERNEL_RESIDENT(256, TF_RESIDENT)
TF_BLOCKS_OF_A_HEAD void gdn_decode_step(
    Row* out, const Row* qkv, const Row* z_rows, const Row* b_rows, const Row* a_rows,
    Row* conv_state, State* state, const Row* conv_weight, const Row* conv_bias, const ALog* a_log,
    const DtBias* dt_bias, const Norm* norm_weight, const void* read_index, const void* write_index,
    const void* accepted, RowStrides qkv_strides, RowStrides z_strides, RowStrides b_strides,
    RowStrides a_strides, Index read_strides, Index write_strides, Index accepted_strides,
    Sizes sizes) {
  TF_SHARED_DYNAMIC(float, shared);
  const int thread = static_cast<int>(tf::thread_x());
  const Block block = block_here();
  const int head = block.head;
  const int tokens = kOneToken ? 1 : sizes.tokens;
  // Of [tokens, HV, V].
  Row* const own_out =
      out + (block.sequence * tokens * TF_H + head) * (TF_G * TF_V) + block.part * kHeadValues;

  // Where this sequence reads and writes.
  tf::i64 read = block.sequence, conv_read = block.sequence, conv_write = block.sequence;
  tf::i32 first = sizes.history - (TF_TAPS - 1);
  if (read_index) {
    read = conv_read = slot_of(sizes, index_at(read_index, read_strides, block.sequence, 0));
    conv_write = slot_of(sizes, index_at(write_index, write_strides, block.sequence, 0));
    if (sizes.speculative && read >= 0) {
      const tf::i64 count = index_at(accepted, accepted_strides, block.sequence, 0);
      const bool fits =
          count >= 1 && count <= sizes.index_columns && count + TF_TAPS - 2 <= sizes.history;
      first = static_cast<tf::i32>(count) - 1;
      read = fits ? slot_of(sizes, index_at(read_index, read_strides, block.sequence, first)) : -1;
    }
  }
  if (read < 0) {  // Padding: zeros, and nothing else is touched.
    for (int i = thread; i < tokens * TF_G * kHeadValues; i += kThreads) {
      own_out[i / (TF_G * kHeadValues) * (TF_H * TF_G * TF_V) + i / kHeadValues % TF_G * TF_V +
              i % kHeadValues] = tf::from_float<Row>(0.0f);
    }
    return;
  }
#if TF_SPLIT > 1
  TF_SHARED(float, squares_of, TF_SPLIT* TF_G);
  tf::cluster_arrive();  // Waited for before the first block writes into another.
#endif

  const tf::i64 own_state = static_cast<tf::i64>(head) * (TF_G * TF_K * TF_V);
  const State* const state_from = state + read * sizes.state_slot + own_state;
#if TF_BULK
  TF_SHARED(tf::BulkBarrier, barriers, kWarps * kStages);
  const BulkPipeline pipeline(reinterpret_cast<State*>(shared + (kToken + 3) / 4 * 4), barriers);
#else
  RegisterPipeline pipeline;
#endif
  pipeline.start(state_from, block.part);

  const Convolution conv = {qkv + block.sequence * qkv_strides.batch, qkv_strides.token,
                            conv_state + conv_read * sizes.conv_slot,
                            conv_write < 0 ? nullptr : conv_state + conv_write * sizes.conv_slot,
                            first};
  const int head_lane = thread % kHeadLanes;
  const int subgroup = thread / kHeadLanes;
  const auto read_gate = [&](int i) {  // Of token i / TF_G, head i % TF_G.
    GateInputs gate;
    const int t = i / TF_G;
    const int g = i % TF_G;
    const int n = head * TF_G + g;
    gate.a = a_rows[block.sequence * a_strides.batch + t * a_strides.token + TF_A_BASE +
                    head * TF_A_HEAD + g * TF_A_GROUP];
    gate.b = b_rows[block.sequence * b_strides.batch + t * b_strides.token + TF_B_BASE +
                    head * TF_B_HEAD + g * TF_B_GROUP];
    gate.a_log = a_log[n * sizes.a_log];
    gate.dt_bias = dt_bias[n * sizes.dt_bias];
    return gate;
  };
  const auto read_output_inputs = [&]([[maybe_unused]] int i) {
    OutputInputs inputs;
#if TF_NORM >= 0
    inputs.read(z_rows + block.sequence * z_strides.batch + i / TF_G * z_strides.token + TF_Z_BASE +
                    head * TF_Z_HEAD + i % TF_G * TF_Z_GROUP,
                norm_weight, block.part, head_lane, sizes);
#endif
    return inputs;
  };

  // Everything is asked for before the first of it is used.
  Inputs inputs[kPasses];
  TF_UNROLL for (int pass = 0; pass < kPasses; ++pass) {
    const int c = (pass * kThreads + thread) * kTogether;
    if (c < kChannels) {
      read_inputs(inputs[pass], conv, sizes, channel_number(c, block), conv_weight, conv_bias);
    }
  }
  // By the last threads, which have the fewest channels.
  const int first_gate = kThreads - 1 - thread;
  GateInputs gate = first_gate < tokens * TF_G ? read_gate(first_gate) : GateInputs{};
  OutputInputs output_inputs;
  if (kOneToken && subgroup < TF_G) output_inputs = read_output_inputs(subgroup);

  TF_UNROLL for (int pass = 0; pass < kPasses; ++pass) {
    const int c = (pass * kThreads + thread) * kTogether;
    if (c >= kChannels) continue;
    const Channel channel = channel_number(c, block);
    convolve(inputs[pass], conv, sizes, channel, shared + c);
    if (conv.target && !sizes.speculative && (TF_SPLIT == 1 || c >= 2 * TF_K)) {
      if (TF_SPLIT == 1) move_history(conv, channel, sizes);
      write_window(conv.target + channel.conv * sizes.conv_channel, inputs[pass].window, sizes);
    }
  }
  for (int i = first_gate; i < tokens * TF_G; i += kThreads) {
    if (i >= kThreads) gate = read_gate(i);
    float* const token = shared + i / TF_G * kToken;
    token[kDecay + i % TF_G] = gate.decay();
    token[kDecay + TF_G + i % TF_G] = gate.beta();
  }
  tf::block_sync();

  const auto target_after = [&](int t) -> State* {
    if (!sizes.speculative && t + 1 < tokens) return nullptr;
    const tf::i64 slot = write_index
                             ? slot_of(sizes, index_at(write_index, write_strides, block.sequence,
                                                       sizes.speculative ? t : 0))
                             : block.sequence;
    return slot < 0 ? nullptr : state + slot * sizes.state_slot + own_state;
  };
#if TF_BULK
  pipeline.run(state_from, target_after(0), shared, block.part);
#else
  pipeline.run(state_from, shared, tokens, block.part, target_after);
#endif
#if TF_SPLIT > 1
  tf::cluster_wait();
#endif
  tf::block_sync();

  for (int round = 0; round < tokens * TF_G; round += kHeadsAtOnce) {
    const int i = round + subgroup;
    const bool valid = i < tokens * TF_G;
    const int t = valid ? i / TF_G : 0;
    const int g = valid ? i % TF_G : 0;
    const float* const core = shared + t * kToken + kCore + g * kHeadValues;
    float squares = TF_NORM >= 0 ? sum_of_squares(core, head_lane) : 0.0f;
#if TF_SPLIT > 1
    if (valid && head_lane < TF_SPLIT) {
      tf::store_to_block(&squares_of[block.part * TF_G + g], static_cast<tf::u32>(head_lane),
                         squares);
    }
    tf::cluster_arrive();
    tf::cluster_wait();
    squares = 0.0f;
    for (int part = 0; part < TF_SPLIT; ++part) squares += squares_of[part * TF_G + g];
#endif
    if (!valid) continue;
    if (!kOneToken || round > 0) output_inputs = read_output_inputs(i);
    write_output(own_out + t * (TF_H * TF_G * TF_V) + g * TF_V, core, output_inputs,
                 tf::rsqrt(squares / TF_V + sizes.norm_eps), head_lane);
  }
#if TF_SPLIT > 1
  // Now every block of the cluster has read the history of query and key.
  TF_UNROLL for (int pass = 0; pass < kPasses; ++pass) {
    const int c = (pass * kThreads + thread) * kTogether;
    if (!conv.target || c >= 2 * TF_K || c / (2 * TF_K / TF_SPLIT) != block.part) continue;
    write_window(conv.target + channel_number(c, block).conv * sizes.conv_channel,
                 inputs[pass].window, sizes);
  }
#endif
#if TF_BULK
  pipeline.finish();
#endif
}
