#pragma once

// From the core to the output: gated RMSNorm over the values of a head, and the gate.

#include "step.h"

namespace {

constexpr int kHeadLanes = 32;  // Share the values of a head,
constexpr int kHeadsAtOnce = kThreads / kHeadLanes;
constexpr int kOutputs = (kHeadValues + kHeadLanes - 1) / kHeadLanes;  // neighbours per lane.
// Elements of the vector that has room for them.
constexpr int kOutputVector = kOutputs <= 2 ? kOutputs : kOutputs <= 4 ? 4 : 8;

// What a lane needs besides the core, for one head of one token.
struct OutputInputs {
  Row z[kOutputs];
  Norm weight[kOutputs];

  // Of token i / TF_G, group i % TF_G.
  TF_DEVICE void read([[maybe_unused]] const Step& step, [[maybe_unused]] const Task& task,
                      [[maybe_unused]] int i, [[maybe_unused]] int lane) {
#if TF_NORM >= 0
    const int c = lane * kOutputs;
    if (c >= kHeadValues) return;
    const int e = task.part * kHeadValues + c;
    const Row* const head = step.z + task.sequence * step.z_strides.batch +
                            i / TF_G * step.z_strides.token + TF_Z_BASE + task.head * TF_Z_HEAD +
                            i % TF_G * TF_Z_GROUP;
#if TF_OUTPUTS_TOGETHER
    const auto all = tf::load<kOutputs>(head + e);
#endif
    TF_UNROLL for (int j = 0; j < kOutputs; ++j) {
      if (c + j >= kHeadValues) continue;
#if TF_OUTPUTS_TOGETHER
      z[j] = all[j];
#else
      z[j] = head[(e + j) * TF_Z_INNER];
#endif
      weight[j] = step.norm_weight[(e + j) * step.sizes.norm];
    }
#endif
  }
};

TF_DEVICE float sum_of_squares(const float* core, int lane) {
  float squares = 0.0f;
  TF_UNROLL for (int i = 0; i < kOutputs; ++i) {
    const int c = lane * kOutputs + i;
    const float value = c < kHeadValues ? stored(core[c]) : 0.0f;
    squares = tf::fma(value, value, squares);
  }
  return tf::subgroup_sum<kHeadLanes>(squares);
}

// `target`: the head's outputs, from this block's first value on.
TF_DEVICE void write_output(Row* target, const float* core,
                            [[maybe_unused]] const OutputInputs& inputs,
                            [[maybe_unused]] float factor, int lane) {
  const int c = lane * kOutputs;
  if (c >= kHeadValues) return;
  tf::Vector<Row, kOutputVector> all;
  TF_UNROLL for (int i = 0; i < kOutputs; ++i) {
    if (c + i >= kHeadValues) continue;
    float value = stored(core[c + i]);
#if TF_NORM >= 0
    value = stored(value * factor) * tf::to_float(inputs.weight[i]);
    if (TF_NORM == TF_ROW) value = stored(value);
    const float z = tf::to_float(inputs.z[i]);
    value *= TF_SIGMOID ? sigmoid(z) : silu(z);
#endif
    all[i] = tf::from_float<Row>(value);
  }
#if TF_OUTPUTS_TOGETHER
  tf::store(target + c, all);
#else
  TF_UNROLL for (int i = 0; i < kOutputs; ++i) {
    if (c + i < kHeadValues) target[c + i] = all[i];
  }
#endif
}

// Of padding.
TF_DEVICE void write_zeros(Row* target, int lane) {
  for (int c = lane; c < kHeadValues; c += kHeadLanes) target[c] = tf::from_float<Row>(0.0f);
}

}  // namespace
