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
        "x sigmoid(x) (SiLU) in one pass over memory, whatever the strides; half types are computed "
        "in fp32 and rounded once.";
    description.source = {"swish/kernel.hip", operators::swish_files()};
    description.constants = elementwise::constant_names();
    description.plan = swish::plan;
    description.variants = swish::variants();
    return description;
  }();
  return op;
}

const Operator& swish_backward_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "swish_backward";
    description.schema = "swish_backward(Tensor grad, Tensor x) -> Tensor";
    description.contract = Contract::parse(
        "grad: f32|f64|f16|bf16 [shape..] strided; "
        "x: like grad [shape..] strided "
        "-> dx: like x [shape..] dense");
    description.summary = "The gradient of swish: grad sigmoid(x) (1 + x sigmoid(-x)).";
    description.source = {"swish/kernel.hip", operators::swish_files()};
    description.constants = elementwise::constant_names();
    description.plan = swish::plan_backward;
    description.variants = swish::backward_variants();
    return description;
  }();
  return op;
}

}  // namespace truefuse
