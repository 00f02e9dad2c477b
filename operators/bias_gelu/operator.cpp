#include <truefuse/operators/bias_gelu/operator.h>

namespace truefuse {

namespace operators {
const jit::Files& bias_gelu_files();  // This folder's kernel sources, embedded by the build.
}

const Operator& bias_gelu_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "bias_gelu";
    description.schema = "bias_gelu(Tensor x, Tensor bias, str approximate) -> Tensor";
    description.contract = Contract::parse(
        "x: f32|f64|f16|bf16 [rows.., hidden] rows-strided; "
        "bias: like x [hidden] strided; "
        "approximate: \"tanh\"|\"none\" "
        "-> out: like x [rows.., hidden] contiguous");
    description.summary =
        "gelu(x + bias) in one pass over memory; half types are computed in fp32 and rounded once.";
    description.source = {"bias_gelu/kernel.hip", operators::bias_gelu_files()};
    description.constants = bias_gelu::constant_names();
    description.plan = bias_gelu::plan;
    description.variants = bias_gelu::variants({});
    description.variants_on = bias_gelu::variants;
    return description;
  }();
  return op;
}

}  // namespace truefuse
