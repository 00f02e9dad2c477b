#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/gated/functions.h>

namespace truefuse {

namespace {

using Text = c10::string_view;

Text text(std::string_view value) { return c10::string_view(value.data(), value.size()); }

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, Text);
  static const auto op = binding::registered<Signature>("truefuse::swiglu");
  return op.call(gate, up, text(gate_rounding));
}

at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up, std::string_view approximate,
                 std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, Text, Text);
  static const auto op = binding::registered<Signature>("truefuse::geglu");
  return op.call(gate, up, text(approximate), text(gate_rounding));
}

at::Tensor swiglu_packed(const at::Tensor& packed, std::string_view packing,
                         std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, Text, Text);
  static const auto op = binding::registered<Signature>("truefuse::swiglu_packed");
  return op.call(packed, text(packing), text(gate_rounding));
}

at::Tensor geglu_packed(const at::Tensor& packed, std::string_view packing,
                        std::string_view approximate, std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, Text, Text, Text);
  static const auto op = binding::registered<Signature>("truefuse::geglu_packed");
  return op.call(packed, text(packing), text(approximate), text(gate_rounding));
}

}  // namespace truefuse
