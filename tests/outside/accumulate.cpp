// An outside operator that writes two of its arguments: total += scale * x, and count += 1 where it
// is given; returns the total's old value. Built like scaled_add.cpp.

#include <cstdint>
#include <string>

#include <truefuse/binding/registration.h>
#include <truefuse/operator/operator.h>

namespace {

using truefuse::Call;
using truefuse::TensorView;

constexpr const char* kKernelText = R"kernel(
#include "truefuse/device.h"

TF_KERNEL(128) void accumulate(float* out, float* total, const float* x, float* count, tf::i64 scale,
                               tf::i64 size) {
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * tf::block_dim_x();
  for (tf::i64 i = tf::i64(tf::block_x()) * tf::block_dim_x() + tf::thread_x(); i < size; i += step) {
    out[i] = total[i];
    total[i] += float(scale) * x[i];
    if (count && i == 0) count[0] += 1;
  }
}
)kernel";

void cpu(const Call& call) {
  const TensorView& total = call.tensor(0);
  const auto* x = static_cast<const float*>(call.tensor(1).data);
  auto* values = static_cast<float*>(total.data);
  const auto scale = static_cast<float>(std::get<std::int64_t>(call.arguments[3]));
  for (std::int64_t i = 0; i < total.sizes[0]; ++i) {
    static_cast<float*>(call.outputs[0].data)[i] = values[i];
    values[i] += scale * x[i];
  }
  if (const auto* count = std::get_if<TensorView>(&call.arguments[2])) {
    static_cast<float*>(count->data)[0] += 1;
  }
}

void plan(const Call& call, const truefuse::DeviceFacts&, truefuse::Plan& plan) {
  const auto* count = std::get_if<TensorView>(&call.arguments[2]);
  truefuse::Launch& launch = plan.add();
  launch.kernel = "accumulate";
  launch.block.x = 128;
  launch.parameters.add(call.outputs[0].data);
  launch.parameters.add(call.tensor(0).data);
  launch.parameters.add(call.tensor(1).data);
  launch.parameters.add(count == nullptr ? nullptr : count->data);
  launch.parameters.add(std::get<std::int64_t>(call.arguments[3]));
  launch.parameters.add(call.tensor(0).sizes[0]);
}

const truefuse::Operator& accumulate() {
  static const truefuse::Operator op = [] {
    truefuse::Operator description;
    description.name_space = "outside";
    description.name = "accumulate";
    description.schema =
        "accumulate(Tensor(a!) total, Tensor x, Tensor(b!)? count, *, int size) -> Tensor";
    description.contract = truefuse::Contract::parse(
        "total: f32 [n] contiguous mutated; x: like total [n] contiguous; "
        "count: like total [1] contiguous optional mutated; size: int [0, 100] "
        "-> out: like total [n] contiguous");
#ifdef WRONG_SCHEMA
    description.schema = "accumulate(Tensor total, Tensor x, Tensor? count, *, int size) -> Tensor";
#endif
    description.source = {"outside/accumulate.hip", {{"outside/accumulate.hip", kKernelText}}};
    description.plan = plan;
    return description;
  }();
  return op;
}

#ifdef TYPED
const auto registration =
    truefuse::binding::Registration::typed<accumulate, cpu,
                                           at::Tensor(const at::Tensor&, const at::Tensor&,
                                                      const std::optional<at::Tensor>&,
                                                      std::int64_t)>();
#else
const auto registration = truefuse::binding::Registration::boxed(accumulate(), cpu);
#endif

}  // namespace
