#include <string>

#include <truefuse/operators/gated/operator.h>

namespace truefuse::gated {
namespace {

constexpr const char* kForwardKernel = "gated_forward";
constexpr const char* kBackwardKernel = "gated_backward";

/// Gate and up as parts of a packed tensor.
struct Parts {
  common::Operand gate, up;

  Parts(const TensorView& packed, bool interleaved, bool gate_first) : gate(packed), up(packed) {
    const std::size_t last = packed.sizes.size() - 1;
    const std::int64_t stride = packed.strides[last];
    const std::int64_t apart = interleaved ? stride : packed.sizes[last] / 2 * stride;
    if (interleaved) gate.strides[last] = up.strides[last] = 2 * stride;
    common::Operand& second = gate_first ? up : gate;
    if (second.data != nullptr) {
      second.data += apart * static_cast<std::int64_t>(size_of(packed.dtype));
    }
  }
};

bool is_interleaved(std::string_view packing) { return packing.ends_with("interleaved"); }

/// As kernel.hip declares it.
struct Options {
  std::uint32_t round_gate, gate_first;
};

Variant variant_of(const common::ElementwiseForm& form, Activation activation, bool pairs) {
  Variant variant = common::elementwise_variant(form);
  variant.add(static_cast<std::int64_t>(activation));
  variant.add(pairs ? 1 : 0);
  return variant;
}

std::string_view name_of(const Kind& kind) {
  constexpr std::string_view names[2][2][2] = {
      {{"swiglu", "swiglu_backward"}, {"swiglu_packed", "swiglu_packed_backward"}},
      {{"geglu", "geglu_backward"}, {"geglu_packed", "geglu_packed_backward"}}};
  return names[kind.geglu ? 1 : 0][kind.packed ? 1 : 0][kind.backward ? 1 : 0];
}

void plan_kernel(const Call& call, const Kind& kind, const DeviceFacts& device, Plan& plan) {
  const GatedCall gated(call, kind);
  if (!gated.wanted) return;
  const common::Space space(gated.dtype(), gated.sizes, gated.view());
  if (space.elements() == 0) return;
  const std::size_t loose = kind.backward ? 2 : common::kMaxOperands;  // grad_out
  const std::size_t gate = gated.count - 2;
  const std::string_view op_name = name_of(kind);
  const std::size_t inputs = kind.backward ? 3 : 2;
  common::ElementwiseForm form = common::elementwise_form(op_name, space, inputs, device, loose);
  const bool pairs = kind.packed && !form.vectorised && space.are_pairs(gate, gate + 1) &&
                     (kind.backward ? space.are_pairs(0, 1) : space.is_vector(0));
  if (pairs) {
    form = common::elementwise_form(op_name, form.dtype, inputs, true,
                                    common::row_dims(space, true, loose), device);
  }

  Launch& launch = plan.add();
  launch.kernel = kind.backward ? kBackwardKernel : kForwardKernel;
  launch.variant = variant_of(form, gated.activation, pairs);
  for (const common::Operand& operand : gated.view()) launch.parameters.add(operand.data);
  launch.parameters.add(Options{gated.round_gate ? 1u : 0u, gated.gate_first ? 1u : 0u});
  common::add_elementwise_grid(op_name, space, form, loose, launch);
}

}  // namespace

GatedCall::GatedCall(const Call& call, const Kind& kind)
    : gate_first(true), wanted(true), dtype_(call.tensor(0).dtype) {
  const std::size_t first = kind.backward ? 1 : 0;
  const std::size_t texts = first + 2;  // The packing stands in for the second tensor.
  activation = !kind.geglu                  ? Activation::kSwish
               : call.text(texts) == "tanh" ? Activation::kGeluTanh
                                            : Activation::kGeluExact;
  const std::size_t rounding = texts + (kind.geglu ? 1 : 0);
  round_gate = call.text(rounding) == "storage";
  sizes = kind.backward ? call.tensor(0).sizes : call.outputs[0].sizes;

  bool interleaved = false;
  if (kind.packed) {
    const std::string_view packing = call.text(first + 1);
    interleaved = is_interleaved(packing);
    gate_first = packing.starts_with("gate");
  }
  count = 0;
  if (!kind.backward) {
    operands[count++] = common::Operand(call.outputs[0]);
  } else if (kind.packed) {
    wanted = call.flag(rounding + 1);
    if (!wanted) return;
    const Parts parts(call.outputs[0], interleaved, gate_first);
    operands[count++] = parts.gate;
    operands[count++] = parts.up;
  } else {
    const bool flags[] = {call.flag(rounding + 1), call.flag(rounding + 2)};
    wanted = flags[0] || flags[1];
    if (!wanted) return;
    for (const std::size_t k : {0, 1}) {
      operands[count] = common::Operand(call.outputs[flags[k] ? k : 1 - k]);  // Both lie alike.
      if (!flags[k]) operands[count].data = nullptr;
      ++count;
    }
  }
  if (kind.backward) operands[count++] = common::Operand(call.tensor(0));
  if (kind.packed) {
    const Parts parts(call.tensor(first), interleaved, gate_first);
    operands[count++] = parts.gate;
    operands[count++] = parts.up;
  } else {
    operands[count++] = common::Operand(call.tensor(first));
    operands[count++] = common::Operand(call.tensor(first + 1));
  }
}

template <bool kGeglu, bool kPacked, bool kBackward>
void plan(const Call& call, const DeviceFacts& device, Plan& plan) {
  plan_kernel(call, {kGeglu, kPacked, kBackward}, device, plan);
}

template void plan<false, false, false>(const Call&, const DeviceFacts&, Plan&);
template void plan<false, false, true>(const Call&, const DeviceFacts&, Plan&);
template void plan<false, true, false>(const Call&, const DeviceFacts&, Plan&);
template void plan<false, true, true>(const Call&, const DeviceFacts&, Plan&);
template void plan<true, false, false>(const Call&, const DeviceFacts&, Plan&);
template void plan<true, false, true>(const Call&, const DeviceFacts&, Plan&);
template void plan<true, true, false>(const Call&, const DeviceFacts&, Plan&);
template void plan<true, true, true>(const Call&, const DeviceFacts&, Plan&);

std::vector<Operator::NamedVariant> variants(const Kind& kind, const DeviceFacts& device) {
  std::vector<Operator::NamedVariant> all;
  const std::vector<Activation> activations =
      kind.geglu ? std::vector{Activation::kGeluTanh, Activation::kGeluExact}
                 : std::vector{Activation::kSwish};
  const std::size_t inputs = kind.backward ? 3 : 2;
  for (const common::ElementwiseForm& form :
       common::elementwise_forms(name_of(kind), inputs, device)) {
    for (const Activation activation : activations) {
      for (const bool pairs : {false, true}) {
        if (pairs && !(kind.packed && form.vectorised)) continue;
        std::string label = form.label();
        if (kind.geglu) label += activation == Activation::kGeluTanh ? " tanh" : " none";
        if (pairs) label += " interleaved";
        all.push_back({std::move(label),
                       kind.backward ? kBackwardKernel : kForwardKernel,
                       variant_of(form, activation, pairs),
                       form.plain(),
                       form.policy.threads,
                       {}});
      }
    }
  }
  return all;
}

std::vector<std::string> constant_names() {
  std::vector<std::string> names = common::elementwise_constants();
  names.insert(names.end(), {"TF_ACTIVATION", "TF_PAIRS"});
  return names;
}

}  // namespace truefuse::gated
