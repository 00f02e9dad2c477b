// gdn_decode's schema and contract, and nothing behind them: what a call of such an operator costs
// at least. Registered as any operator is.

#include <algorithm>
#include <string>

#include <truefuse/binding/registration.h>
#include <truefuse/operator/operator.h>

namespace truefuse {

const Operator& gdn_decode_operator();  // Of the library.

namespace {

const Operator& do_nothing() {
  static const Operator op = [] {
    const Operator& original = gdn_decode_operator();
    Operator description;
    description.name_space = "bench";
    description.name = "do_nothing";
    description.schema = "do_nothing" + original.schema.substr(original.schema.find('('));
    description.contract = Contract::parse(original.contract.text());
    description.plan = [](const Call&, const DeviceFacts&, Plan&) {};
    description.source = original.source;
    return description;
  }();
  return op;
}

using Tensor = const at::Tensor&;
using MaybeTensor = const std::optional<at::Tensor>&;
using Text = c10::string_view;
using MaybeText = std::optional<c10::string_view>;
using Signature = at::Tensor(Tensor, MaybeTensor, Tensor, Tensor, Tensor, MaybeTensor, Tensor,
                             Tensor, MaybeTensor, Text, Text, std::int64_t, std::int64_t,
                             std::int64_t, std::int64_t, Text, MaybeText, MaybeTensor, MaybeText,
                             MaybeTensor, MaybeText, MaybeTensor, MaybeTensor, MaybeTensor,
                             MaybeText, std::optional<double>, MaybeText);

void cpu(const Call&) {}

const auto registration = binding::Registration::typed<do_nothing, cpu, Signature>();

}  // namespace
}  // namespace truefuse
