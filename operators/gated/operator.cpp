#include <string>

#include <truefuse/operators/gated/operator.h>

namespace truefuse {

namespace operators {
const jit::Files& gated_files();  // This folder's kernel sources, embedded by the build.
}

namespace gated {
namespace {

/// Halves side by side, or elements that take turns; the name in front comes first in memory.
constexpr const char* kPackings =
    "\"gate|up\"|\"up|gate\"|\"gate,up interleaved\"|\"up,gate interleaved\"";

struct Texts {
  std::string schema, contract;
};

Texts forward_texts(const std::string& name, const Kind& kind) {
  const std::string approximate = kind.geglu ? "str approximate, " : "";
  const std::string form = kind.geglu ? "approximate: \"tanh\"|\"none\"; " : "";
  const std::string rounding = "gate_rounding: \"none\"|\"storage\" ";
  if (kind.packed) {
    return {name + "(Tensor packed, str packing, " + approximate + "str gate_rounding) -> Tensor",
            std::string("packed: f32|f64|f16|bf16 [rows.., 2*hidden] strided; packing: ") +
                kPackings + "; " + form + rounding +
                "-> out: like packed [rows.., hidden] contiguous"};
  }
  return {name + "(Tensor gate, Tensor up, " + approximate + "str gate_rounding) -> Tensor",
          "gate: f32|f64|f16|bf16 [rows.., hidden] strided; "
          "up: like gate [rows.., hidden] strided; " +
              form + rounding + "-> out: like gate [rows.., hidden] contiguous"};
}

Texts backward_texts(const std::string& name, const Kind& kind) {
  const std::string approximate = kind.geglu ? "str approximate, " : "";
  const std::string form = kind.geglu ? "approximate: \"tanh\"|\"none\"; " : "";
  const std::string rounding = "gate_rounding: \"none\"|\"storage\"; ";
  const std::string grad = "grad_out: f32|f64|f16|bf16 [rows.., hidden] strided; ";
  if (kind.packed) {
    return {name + "(Tensor grad_out, Tensor packed, *, str packing, " + approximate +
                "str gate_rounding, bool packed_wanted) -> Tensor",
            grad + "packed: like grad_out [rows.., 2*hidden] strided; packing: " + kPackings +
                "; " + form + rounding +
                "packed_wanted: bool "
                "-> grad_packed: like packed [rows.., 2*hidden] contiguous if packed_wanted"};
  }
  return {name + "(Tensor grad_out, Tensor gate, Tensor up, *, " + approximate +
              "str gate_rounding, bool gate_wanted, bool up_wanted) -> (Tensor, Tensor)",
          grad +
              "gate: like grad_out [rows.., hidden] strided; "
              "up: like grad_out [rows.., hidden] strided; " +
              form + rounding +
              "gate_wanted: bool; up_wanted: bool "
              "-> grad_gate: like gate [rows.., hidden] contiguous if gate_wanted; "
              "grad_up: like up [rows.., hidden] contiguous if up_wanted"};
}

std::string summary_of(const Kind& kind) {
  const std::string function = kind.geglu ? "gelu(gate) up" : "swish(gate) up";
  const std::string where = kind.packed ? "of one packed tensor" : "of two tensors";
  if (kind.backward) return "The gradients of " + function + ", " + where + ".";
  return function + " " + where +
         " in one pass over memory; half types are computed in fp32 and rounded once, or also "
         "before the multiplication.";
}

template <bool kGeglu, bool kPacked, bool kBackward>
const Operator& made() {
  static const Operator op = [] {
    constexpr Kind kind{kGeglu, kPacked, kBackward};
    Operator description;
    description.name_space = "truefuse";
    description.name = std::string(kGeglu ? "geglu" : "swiglu") + (kPacked ? "_packed" : "") +
                       (kBackward ? "_backward" : "");
    const Texts texts =
        kBackward ? backward_texts(description.name, kind) : forward_texts(description.name, kind);
    description.schema = texts.schema;
    description.contract = Contract::parse(texts.contract);
    description.summary = summary_of(kind);
    description.source = {"gated/kernel.hip", operators::gated_files()};
    description.constants = constant_names();
    description.plan = plan<kGeglu, kPacked, kBackward>;
    description.variants = variants(kind, {});
    description.variants_on = [](const DeviceFacts& device) {
      return gated::variants({kGeglu, kPacked, kBackward}, device);
    };
    return description;
  }();
  return op;
}

}  // namespace
}  // namespace gated

const Operator& swiglu_operator() { return gated::made<false, false, false>(); }
const Operator& geglu_operator() { return gated::made<true, false, false>(); }
const Operator& swiglu_packed_operator() { return gated::made<false, true, false>(); }
const Operator& geglu_packed_operator() { return gated::made<true, true, false>(); }
const Operator& swiglu_backward_operator() { return gated::made<false, false, true>(); }
const Operator& geglu_backward_operator() { return gated::made<true, false, true>(); }
const Operator& swiglu_packed_backward_operator() { return gated::made<false, true, true>(); }
const Operator& geglu_packed_backward_operator() { return gated::made<true, true, true>(); }

}  // namespace truefuse
