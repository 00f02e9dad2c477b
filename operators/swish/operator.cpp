#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {

namespace operators {
const jit::Files& swish_files();  // This folder's kernel sources, embedded by the build.
}

const Operator& swish_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "swish";
    description.schema = "swish(Tensor x) -> Tensor";
    description.contract = Contract::parse(
        "x: f32|f64|f16|bf16 [shape..] strided "
        "-> out: like x [shape..] dense");
    description.summary =
        "x sigmoid(x) (SiLU) in one pass over memory, whatever the strides; half types are "
        "computed "
        "in fp32 and rounded once.";
    description.source = {"swish/kernel.hip", operators::swish_files()};
    description.constants = common::elementwise_constants();
    description.plan = swish::plan;
    description.variants = swish::variants({});
    description.variants_on = swish::variants;
    return description;
  }();
  return op;
}

const Operator& swish_backward_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "swish_backward";
    description.schema = "swish_backward(Tensor grad_out, Tensor x, *, bool x_wanted) -> Tensor";
    description.contract = Contract::parse(
        "grad_out: f32|f64|f16|bf16 [shape..] strided; "
        "x: like grad_out [shape..] strided; "
        "x_wanted: bool "
        "-> grad_x: like x [shape..] dense if x_wanted");
    description.summary = "The gradient of swish: grad_out sigmoid(x) (1 + x sigmoid(-x)).";
    description.source = {"swish/kernel.hip", operators::swish_files()};
    description.constants = common::elementwise_constants();
    description.plan = swish::plan_backward;
    description.variants = swish::backward_variants({});
    description.variants_on = swish::backward_variants;
    return description;
  }();
  return op;
}

}  // namespace truefuse
