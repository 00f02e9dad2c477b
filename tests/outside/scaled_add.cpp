// An operator that does not belong to truefuse: built by a user, in one file, against the installed
// headers and libraries. out = alpha * x + y, optionally clamped at zero.

#include <algorithm>
#include <cstdint>
#include <string>

#include <truefuse/binding/registration.h>
#include <truefuse/operator/operator.h>

namespace {

using truefuse::Call;
using truefuse::DType;
using truefuse::TensorView;

constexpr const char* kKernelText = R"kernel(
#include "truefuse/device.h"

TF_KERNEL(128) void scaled_add(float* out, const float* x, const float* y, float alpha,
                               tf::i64 count) {
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * tf::block_dim_x();
  for (tf::i64 i = tf::i64(tf::block_x()) * tf::block_dim_x() + tf::thread_x(); i < count; i += step) {
    float value = alpha * x[i];
    if (y) value += y[i];
    out[i] = TF_RELU ? tf::max(value, 0.0f) : value;
  }
}
)kernel";

enum Position : std::size_t { kX, kY, kAlpha, kRelu };

struct Operands {
  explicit Operands(const Call& call)
      : x(call.tensor(kX)),
        alpha(static_cast<float>(std::get<double>(call.arguments[kAlpha]))),
        relu(std::get<bool>(call.arguments[kRelu])) {
    if (const auto* view = std::get_if<TensorView>(&call.arguments[kY])) {
      y = static_cast<const float*>(view->data);
    }
    for (const std::int64_t size : x.sizes) count *= size;
  }
  const TensorView& x;
  const float* y = nullptr;
  float alpha;
  bool relu;
  std::int64_t count = 1;
};

void plan(const Call& call, const truefuse::DeviceFacts&, truefuse::Plan& plan) {
  const Operands operands(call);
  if (operands.count == 0) return;
  truefuse::Launch& launch = plan.add();
  launch.kernel = "scaled_add";
  launch.variant.add(operands.relu ? 1 : 0);
  launch.grid.x =
      static_cast<std::uint32_t>(std::min<std::int64_t>((operands.count + 127) / 128, 1 << 16));
  launch.block.x = 128;
  launch.parameters.add(call.outputs[0].data);
  launch.parameters.add(operands.x.data);
  launch.parameters.add(operands.y);
  launch.parameters.add(operands.alpha);
  launch.parameters.add(operands.count);
}

void cpu(const Call& call) {
  const Operands operands(call);
  const auto* x = static_cast<const float*>(operands.x.data);
  auto* out = static_cast<float*>(call.outputs[0].data);
  for (std::int64_t i = 0; i < operands.count; ++i) {
    float value = operands.alpha * x[i];
    if (operands.y != nullptr) value += operands.y[i];
    out[i] = operands.relu ? std::max(value, 0.0F) : value;
  }
}

const truefuse::Operator& scaled_add() {
  static const truefuse::Operator op = [] {
    truefuse::Operator description;
    description.name_space = "outside";
    description.name = "scaled_add";
    description.schema = "scaled_add(Tensor x, Tensor? y, float alpha, *, bool relu) -> Tensor";
    description.contract = truefuse::Contract::parse(
        "x: f32 [n.., d] contiguous; y: like x [n.., d] contiguous optional; "
        "alpha: float [-8, 8]; relu: bool -> out: like x [n.., d] contiguous");
    description.summary = "alpha * x + y, optionally clamped at zero.";
    description.source = {"outside/scaled_add.hip", {{"outside/scaled_add.hip", kKernelText}}};
    description.constants = {"TF_RELU"};
    description.plan = plan;
    for (const int relu : {0, 1}) {
      truefuse::Operator::NamedVariant named;
      named.label = relu != 0 ? "relu" : "plain";
      named.kernel = "scaled_add";
      named.variant.add(relu);
      named.shown = true;
      named.block_threads = 128;
      description.variants.push_back(named);
    }
    return description;
  }();
  return op;
}

#ifdef TYPED
const auto registration = truefuse::binding::Registration::typed<
    scaled_add, cpu,
    at::Tensor(const at::Tensor&, const std::optional<at::Tensor>&, double, bool)>();
#else
const auto registration = truefuse::binding::Registration::boxed(scaled_add(), cpu);
#endif

}  // namespace
