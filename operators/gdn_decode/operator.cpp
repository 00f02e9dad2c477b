#include <truefuse/operators/gdn_decode/operator.h>

namespace truefuse {

namespace operators {
const jit::Files& gdn_decode_files();  // This folder's kernel sources, embedded by the build.
}

const Operator& gdn_decode_operator() {
  static const Operator op = [] {
    Operator description;
    description.name_space = "truefuse";
    description.name = "gdn_decode";
    description.schema =
        "gdn_decode(Tensor qkvz, Tensor? ba, Tensor(a!) conv_state, Tensor(b!) state, "
        "Tensor conv_weight, Tensor? conv_bias, Tensor A_log, Tensor dt_bias, Tensor? norm_weight, "
        "*, str qkvz_layout, str state_layout, int num_k_heads, int num_v_heads, int head_k_dim, "
        "int head_v_dim, str rounding, str? ba_layout=None, Tensor? z=None, str? z_layout=None, "
        "Tensor? a=None, str? a_layout=None, Tensor? state_indices=None, "
        "Tensor? write_indices=None, Tensor? num_accepted=None, str? padding=None, "
        "float? norm_eps=None, str? gate_activation=None) -> Tensor";
    description.contract = Contract::parse(
        "qkvz: f32|f16|bf16 [rows.., columns] rows-strided; "
        "ba: like qkvz [rows.., ba_columns] strided optional; "
        "conv_state: like qkvz [slots, channels, history] strided mutated; "
        "state: f32|f16|bf16 [slots, HV, state_rows, state_columns] batch-strided mutated; "
        "conv_weight: like qkvz [channels, width] strided; "
        "conv_bias: like qkvz [channels] strided optional; "
        "A_log: f32|f16|bf16 [HV] strided; "
        "dt_bias: f32|f16|bf16 [HV] strided; "
        "norm_weight: f32|f16|bf16 [V] strided optional; "
        "qkvz_layout: text; "
        "state_layout: \"[HV,V,K]\"|\"[HV,K,V]\"; "
        "num_k_heads: int [1, 65535]; "
        "num_v_heads: int [1, 65535] = HV; "
        "head_k_dim: int [1, 256]; "
        "head_v_dim: int [1, 256] = V; "
        "rounding: \"fp32\"|\"transformers\"; "
        "ba_layout: text optional; "
        "z: like qkvz [rows.., z_columns] rows-strided optional; "
        "z_layout: text optional; "
        "a: like qkvz [rows.., a_columns] strided optional; "
        "a_layout: text optional; "
        "state_indices: i32|i64 [indices..] strided optional; "
        "write_indices: i32|i64 [indices..] strided optional; "
        "num_accepted: i32|i64 [sequences] strided optional; "
        "padding: \"negative\"|\"nonpositive\" optional; "
        "norm_eps: float [0, inf) optional; "
        "gate_activation: \"silu\"|\"sigmoid\" optional "
        "-> out: like qkvz [rows.., HV, V] contiguous");
    description.summary =
        "One decode step of a Gated DeltaNet layer in one pass over its state: split, causal "
        "convolution, gates, q/k norm, delta rule and gated RMSNorm; reads any layout of the rows.";
    description.source = {"gdn_decode/kernel.hip", operators::gdn_decode_files()};
    description.constants = gdn_decode::constant_names();
    description.plan = gdn_decode::plan;
    description.check_arguments = gdn_decode::check_arguments;
    description.check_values = gdn_decode::check_values;
    description.variants = gdn_decode::variants();
    return description;
  }();
  return op;
}

}  // namespace truefuse
