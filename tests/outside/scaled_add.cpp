// An operator that does not belong to truefuse: built by a user, in one file, against the installed
// headers and libraries. out = alpha * x + y, optionally clamped at zero; and its derivative, a
// second operator.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>

#include <ATen/ATen.h>

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

// ---- the derivative
// -------------------------------------------------------------------------------

constexpr const char* kBackwardText = R"kernel(
#include "truefuse/device.h"

TF_KERNEL(128) void scaled_add_backward(float* grad_x, float* grad_y, const float* grad_out,
                                        const float* x, const float* y, float alpha, tf::u32 relu,
                                        tf::i64 count) {
  const tf::i64 step = tf::i64(tf::grid_dim_x()) * tf::block_dim_x();
  for (tf::i64 i = tf::i64(tf::block_x()) * tf::block_dim_x() + tf::thread_x(); i < count; i += step) {
    const bool passes = !relu || alpha * x[i] + (y ? y[i] : 0.0f) > 0.0f;
    const float gradient = passes ? grad_out[i] : 0.0f;
    if (grad_x) grad_x[i] = alpha * gradient;
    if (grad_y) grad_y[i] = gradient;
  }
}
)kernel";

struct Gradients {
  explicit Gradients(const Call& call)
      : forward({call.arguments.subspan(1), call.outputs}),
        grad_out(static_cast<const float*>(call.tensor(0).data)) {
    if (call.flag(5)) x = static_cast<float*>(call.outputs[0].data);
    if (call.flag(6)) y = static_cast<float*>(call.outputs[1].data);
  }
  Operands forward;
  const float* grad_out;
  float* x = nullptr;
  float* y = nullptr;
};

void plan_backward(const Call& call, const truefuse::DeviceFacts&, truefuse::Plan& plan) {
  const Gradients gradients(call);
  const Operands& operands = gradients.forward;
  if (operands.count == 0) return;
  truefuse::Launch& launch = plan.add();
  launch.kernel = "scaled_add_backward";
  launch.grid.x =
      static_cast<std::uint32_t>(std::min<std::int64_t>((operands.count + 127) / 128, 1 << 16));
  launch.block.x = 128;
  launch.parameters.add(gradients.x);
  launch.parameters.add(gradients.y);
  launch.parameters.add(gradients.grad_out);
  launch.parameters.add(operands.x.data);
  launch.parameters.add(operands.y);
  launch.parameters.add(operands.alpha);
  launch.parameters.add(std::uint32_t{operands.relu});
  launch.parameters.add(operands.count);
}

std::atomic<int> backward_calls = 0;  // On the CPU.

void cpu_backward(const Call& call) {
  ++backward_calls;
  const Gradients gradients(call);
  const Operands& operands = gradients.forward;
  const auto* x = static_cast<const float*>(operands.x.data);
  for (std::int64_t i = 0; i < operands.count; ++i) {
    const float value = operands.alpha * x[i] + (operands.y != nullptr ? operands.y[i] : 0.0F);
    const float gradient = operands.relu && value <= 0 ? 0.0F : gradients.grad_out[i];
    if (gradients.x != nullptr) gradients.x[i] = operands.alpha * gradient;
    if (gradients.y != nullptr) gradients.y[i] = gradient;
  }
}

std::tuple<at::Tensor, at::Tensor> composite(const at::Tensor& grad_out, const at::Tensor& x,
                                             const std::optional<at::Tensor>& y, double alpha,
                                             bool relu, bool /*x_wanted*/, bool /*y_wanted*/) {
  at::Tensor gradient = grad_out;
  if (relu) {
    at::Tensor value = alpha * x;
    if (y.has_value()) value = value + *y;
    gradient = gradient * value.gt(0).to(gradient.dtype());
  }
  return {alpha * gradient, gradient};
}

const truefuse::Operator& scaled_add_backward() {
  static const truefuse::Operator op = [] {
    truefuse::Operator description;
    description.name_space = "outside";
    description.name = "scaled_add_backward";
    description.schema =
        "scaled_add_backward(Tensor grad_out, Tensor x, Tensor? y, float alpha, *, bool relu, "
        "bool x_wanted, bool y_wanted) -> (Tensor, Tensor)";
    description.contract = truefuse::Contract::parse(
        "grad_out: f32 [n.., d] contiguous; x: like grad_out [n.., d] contiguous; "
        "y: like grad_out [n.., d] contiguous optional; alpha: float [-8, 8]; relu: bool; "
        "x_wanted: bool; y_wanted: bool -> grad_x: like x [n.., d] contiguous if x_wanted; "
        "grad_y: like x [n.., d] contiguous if y_wanted");
    description.summary = "The gradients of scaled_add.";
    description.source = {"outside/backward.hip", {{"outside/backward.hip", kBackwardText}}};
    description.plan = plan_backward;
    truefuse::Operator::NamedVariant named;
    named.label = "f32";
    named.kernel = "scaled_add_backward";
    named.shown = true;
    named.block_threads = 128;
    description.variants.push_back(named);
    return description;
  }();
  return op;
}

using truefuse::binding::Derivative;
using truefuse::binding::Registration;
#ifdef TYPED
using OptionalTensor = std::optional<at::Tensor>;
const auto registration =
    Registration::typed<scaled_add, cpu,
                        at::Tensor(const at::Tensor&, const OptionalTensor&, double, bool)>(
        Derivative::by(scaled_add_backward()));
const auto backward_registration =
    Registration::typed<scaled_add_backward, cpu_backward,
                        std::tuple<at::Tensor, at::Tensor>(
                            const at::Tensor&, const at::Tensor&, const OptionalTensor&, double,
                            bool, bool, bool)>(Derivative::by_composite<composite>());
#else
const auto registration =
    Registration::boxed(scaled_add(), cpu, Derivative::by(scaled_add_backward()));
const auto backward_registration =
    Registration::boxed(scaled_add_backward(), cpu_backward, Derivative::by_composite<composite>());
#endif

}  // namespace

/// How often the CPU path of the backward operator ran.
extern "C" int outside_backward_calls() { return backward_calls; }
