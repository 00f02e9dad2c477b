#include <truefuse/binding/dispatch.h>
#include <truefuse/operators/gated/functions.h>
#include <truefuse/operators/gated/operator.h>

namespace truefuse {

namespace {

using Text = c10::string_view;

Text text(std::string_view value) { return {value.data(), value.size()}; }

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, Text);
  return binding::handle_of<swiglu_operator, Signature>().call(gate, up, text(gate_rounding));
}

at::Tensor geglu(const at::Tensor& gate, const at::Tensor& up, std::string_view approximate,
                 std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, const at::Tensor&, Text, Text);
  return binding::handle_of<geglu_operator, Signature>().call(gate, up, text(approximate),
                                                              text(gate_rounding));
}

at::Tensor swiglu_packed(const at::Tensor& packed, std::string_view packing,
                         std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, Text, Text);
  return binding::handle_of<swiglu_packed_operator, Signature>().call(packed, text(packing),
                                                                      text(gate_rounding));
}

at::Tensor geglu_packed(const at::Tensor& packed, std::string_view packing,
                        std::string_view approximate, std::string_view gate_rounding) {
  using Signature = at::Tensor(const at::Tensor&, Text, Text, Text);
  return binding::handle_of<geglu_packed_operator, Signature>().call(
      packed, text(packing), text(approximate), text(gate_rounding));
}

}  // namespace truefuse
