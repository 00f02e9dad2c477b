#include <truefuse/operators/bias_gelu/backward.h>

namespace truefuse {

namespace operators {
const jit::Files& bias_gelu_files();  // This folder's kernel sources, embedded by the build.
}

const Operator& bias_gelu_backward_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "bias_gelu_backward";
    description.schema =
        "bias_gelu_backward(Tensor grad_out, Tensor x, Tensor bias, *, str approximate, "
        "bool x_wanted, bool bias_wanted) -> (Tensor grad_x, Tensor grad_bias)";
    description.contract = Contract::parse(
        "grad_out: f32|f64|f16|bf16 [rows.., hidden] strided; "
        "x: like grad_out [rows.., hidden] rows-strided; "
        "bias: like grad_out [hidden] strided; "
        "approximate: \"tanh\"|\"none\"; x_wanted: bool; bias_wanted: bool "
        "-> grad_x: like x [rows.., hidden] contiguous if x_wanted; "
        "grad_bias: like bias [hidden] contiguous if bias_wanted");
    description.summary =
        "The gradients of bias_gelu in one pass over memory; sums over rows are kept in fp32 (fp64 "
        "for fp64) and added in a fixed order.";
    description.source = {"bias_gelu/backward.hip", operators::bias_gelu_files()};
    description.constants = bias_gelu::backward::constant_names();
    description.plan = bias_gelu::backward::plan;
    description.variants = bias_gelu::backward::variants({});
    description.variants_on = bias_gelu::backward::variants;
    return description;
  }();
  return op;
}

}  // namespace truefuse
