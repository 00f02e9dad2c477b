#include <array>

#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse::swish {
namespace {

constexpr const char* kForward = "swish_forward";
constexpr const char* kBackward = "swish_backward";

void plan_kernel(const char* kernel, std::string_view op_name, const TensorView& out,
                 std::span<const elementwise::Operand> operands, Plan& plan) {
  const elementwise::Space space(out.dtype, out.sizes, operands);
  if (space.elements() == 0) return;
  const elementwise::Shape shape = elementwise::shape_of(space, 1, true);
  Launch& launch = plan.add();
  launch.kernel = kernel;
  launch.variant = elementwise::variant_of(shape);
  for (const elementwise::Operand& operand : operands) launch.parameters.add(operand.data);
  elementwise::add_grid(op_name, space, 1, shape, launch);
}

std::vector<Operator::NamedVariant> variants_of(const char* kernel) {
  std::vector<Operator::NamedVariant> all;
  for (const elementwise::NamedShape& named : elementwise::shapes()) {
    all.push_back({named.label, kernel, elementwise::variant_of(named.shape), named.shown,
                   elementwise::kThreads});
  }
  return all;
}

}  // namespace

void plan(const Call& call, const DeviceFacts& /*device*/, Plan& plan) {
  const std::array operands{elementwise::Operand(call.outputs[0]),
                            elementwise::Operand(call.tensor(0))};
  plan_kernel(kForward, "swish", call.outputs[0], operands, plan);
}

void plan_backward(const Call& call, const DeviceFacts& /*device*/, Plan& plan) {
  const std::array operands{elementwise::Operand(call.outputs[0]),
                            elementwise::Operand(call.tensor(0)),
                            elementwise::Operand(call.tensor(1))};
  plan_kernel(kBackward, "swish_backward", call.outputs[0], operands, plan);
}

std::vector<Operator::NamedVariant> variants() { return variants_of(kForward); }
std::vector<Operator::NamedVariant> backward_variants() { return variants_of(kBackward); }

}  // namespace truefuse::swish
