#include <array>

#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse::swish {
namespace {

constexpr const char* kForward = "swish_forward";
constexpr const char* kBackward = "swish_backward";

void plan_kernel(const char* kernel, std::string_view op_name, const TensorView& out,
                 std::span<const common::Operand> operands, const DeviceFacts& device, Plan& plan) {
  const common::Space space(out.dtype, out.sizes, operands);
  if (space.elements() == 0) return;
  constexpr std::size_t kLoose = 1;  // The first input.
  const common::ElementwiseForm form =
      common::elementwise_form(op_name, space, operands.size() - 1, device, kLoose);
  Launch& launch = plan.add();
  launch.kernel = kernel;
  launch.variant = common::elementwise_variant(form);
  for (const common::Operand& operand : operands) launch.parameters.add(operand.data);
  common::add_elementwise_grid(op_name, space, form, kLoose, launch);
}

std::vector<Operator::NamedVariant> variants_of(const char* kernel, std::string_view op_name,
                                                std::size_t inputs, const DeviceFacts& device) {
  std::vector<Operator::NamedVariant> all;
  for (const common::ElementwiseForm& form : common::elementwise_forms(op_name, inputs, device)) {
    all.push_back({form.label(),
                   kernel,
                   common::elementwise_variant(form),
                   form.plain(),
                   form.policy.threads,
                   {}});
  }
  return all;
}

}  // namespace

void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  const std::array operands{common::Operand(call.outputs[0]), common::Operand(call.tensor(0))};
  plan_kernel(kForward, "swish", call.outputs[0], operands, device, plan);
}

void plan_backward(const Call& call, const DeviceFacts& device, Plan& plan) {
  if (!call.flag(kXWanted)) return;
  const std::array operands{common::Operand(call.outputs[0]), common::Operand(call.tensor(0)),
                            common::Operand(call.tensor(1))};
  plan_kernel(kBackward, "swish_backward", call.outputs[0], operands, device, plan);
}

std::vector<Operator::NamedVariant> variants(const DeviceFacts& device) {
  return variants_of(kForward, "swish", 1, device);
}
std::vector<Operator::NamedVariant> backward_variants(const DeviceFacts& device) {
  return variants_of(kBackward, "swish_backward", 2, device);
}

}  // namespace truefuse::swish
