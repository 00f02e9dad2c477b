// One decode step of a Gated DeltaNet layer, everything in one pass over the recurrent state.
//
// A block owns one key head of one sequence: its query and key channels, and the channels of its
// TF_G value heads. Nobody else reads or writes these channels of conv_state, so that it can be
// shifted in place without a race. Where that makes too few blocks, TF_SPLIT of them, a cluster,
// share the key head: each has a part of the values, all read the history of query and key, and
// write their share of it only after the cluster's barrier, when all have read it. The tokens of a
// call are walked inside the block, and the state is read and written once for all of them.
//
//   before the barrier   slots, rows and weights are asked for, then the state; every thread takes
//                        a few channels: convolution and SiLU (inputs.h)
//   then                 the recurrence (state.h)
//   after a barrier      subgroups of 32 lanes each take one value head: norm and gate (output.h)
//
// Constants: TF_H, TF_G, TF_K, TF_V, TF_TAPS; element types (0 f32, 1 f16, 2 bf16) TF_ROW,
// TF_STATE, TF_A_LOG, TF_DT_BIAS, TF_NORM (-1: no norm); TF_KEYS_LAST; TF_TRANSFORMERS (rounding),
// TF_SIGMOID; where the segments of the rows are: TF_<segment>_BASE, _HEAD, _GROUP, _INNER for Q,
// K, V, Z, B, A. How it is done: TF_TOKENS (1, or 0: the launch says), TF_SPLIT, TF_STREAM,
// TF_OVERFLOWS (the states of a call are more than the L2 cache holds), TF_VECTOR (elements of the
// state in one access), TF_LANES and TF_DEPTH (state.h), TF_RESIDENT (blocks that should fit a
// multiprocessor at a time); and what lies together, aligned, so that it is accessed at once:
// TF_PAIRS, two channels in rows and weights, TF_CHANNELS_TOGETHER, in conv_state too;
// TF_OUTPUTS_TOGETHER, a lane's part of z and out.

#include "inputs.h"
#include "output.h"
#include "state.h"
#if TF_STREAM
#include "stream.h"
#endif

#if TF_SPLIT > 1
#define TF_BLOCKS_OF_A_HEAD TF_CLUSTER(TF_SPLIT)
#else
#define TF_BLOCKS_OF_A_HEAD
#endif

namespace {

#if !TF_STREAM
TF_DEVICE void run(const Step& step) {
  TF_SHARED_DYNAMIC(float, shared);
  const Sizes& sizes = step.sizes;
  const int thread = static_cast<int>(tf::thread_x());
  const int head_lane = thread % kHeadLanes;
  const int subgroup = thread / kHeadLanes;
  const int tokens = kOneToken ? 1 : sizes.tokens;
  Task task =
      task_number(step, tf::block_x() / TF_SPLIT, static_cast<int>(tf::block_x() % TF_SPLIT));
  const AskedIndex read(step.read_index, step.read_strides, task.sequence);
  const AskedIndex write(step.write_index, step.write_strides, task.sequence);
  // All that can be asked for while the slots are on their way.
  Inputs inputs[passes(kThreads)];
  TakeIn<kThreads, passes(kThreads)> take_in(inputs, step, thread);
  take_in.ask(task);
  OutputInputs output_inputs;
  if (kOneToken && subgroup < TF_G) output_inputs.read(step, task, subgroup, head_lane);
  if (step.read_index) find_slots(task, step, read.value(), write.value());
  if (task.read < 0) {  // Padding: zeros, and nothing else is touched.
    for (int i = subgroup; i < tokens * TF_G; i += kHeadsAtOnce) {
      write_zeros(output_of(step, task, i / TF_G, i % TF_G), head_lane);
    }
    return;
  }
#if TF_SPLIT > 1
  TF_SHARED(float, squares_of, TF_SPLIT* TF_G);
  tf::cluster_arrive();  // Waited for before the first block writes into another.
#endif

  const State* const state_from = state_in(step, task, task.read);
  RegisterPipeline pipeline;
  pipeline.start(state_from, task.part);
  take_in.finish(task, shared);
  tf::block_sync();

  pipeline.run(state_from, shared, tokens, task.part,
               [&](int t) { return state_after(step, task, t); });
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
      tf::store_to_block(&squares_of[task.part * TF_G + g], static_cast<tf::u32>(head_lane),
                         squares);
    }
    tf::cluster_arrive();
    tf::cluster_wait();
    squares = 0.0f;
    for (int part = 0; part < TF_SPLIT; ++part) squares += squares_of[part * TF_G + g];
#endif
    if (!valid) continue;
    if (!kOneToken || round > 0) output_inputs.read(step, task, i, head_lane);
    write_output(output_of(step, task, t, g), core, output_inputs,
                 tf::rsqrt(squares / TF_V + sizes.norm_eps), head_lane);
  }
#if TF_SPLIT > 1
  // Now every block of the cluster has read the history of query and key.
  if (task.conv_write < 0) return;
  Row* const history = step.conv_state + task.conv_write * sizes.conv_slot;
  TF_UNROLL for (int pass = 0; pass < passes(kThreads); ++pass) {
    const int c = (pass * kThreads + thread) * kTogether;
    if (c >= 2 * TF_K || c / (2 * TF_K / TF_SPLIT) != task.part) continue;
    write_window(history + channel_number(c, task).conv * sizes.conv_channel, inputs[pass].window,
                 sizes);
  }
#endif
}
#endif

}  // namespace

TF_KERNEL_RESIDENT(TF_STREAM ? 384 : 256, TF_RESIDENT)
TF_BLOCKS_OF_A_HEAD void gdn_decode_step(
    Row* out, const Row* qkv, const Row* z_rows, const Row* b_rows, const Row* a_rows,
    Row* conv_state, State* state, const Row* conv_weight, const Row* conv_bias, const ALog* a_log,
    const DtBias* dt_bias, const Norm* norm_weight, const void* read_index, const void* write_index,
    const void* accepted, RowStrides qkv_strides, RowStrides z_strides, RowStrides b_strides,
    RowStrides a_strides, Index read_strides, Index write_strides, Index accepted_strides,
    Sizes sizes) {
  tf::wait_for_earlier_launches();
  const Step step = {out,           qkv,
                     z_rows,        b_rows,
                     a_rows,        conv_state,
                     state,         conv_weight,
                     conv_bias,     a_log,
                     dt_bias,       norm_weight,
                     read_index,    write_index,
                     accepted,      qkv_strides,
                     z_strides,     b_strides,
                     a_strides,     read_strides,
                     write_strides, accepted_strides,
                     sizes};
#if TF_STREAM
  stream(step);
#else
  run(step);
#endif
}
