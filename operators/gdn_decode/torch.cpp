#include <truefuse/binding/registration.h>
#include <truefuse/operators/gdn_decode/operator.h>

namespace truefuse {

void gdn_decode_cpu(const Call& call);  // cpu.cpp

namespace {

using Tensor = const at::Tensor&;
using MaybeTensor = const std::optional<at::Tensor>&;
using Text = c10::string_view;
using MaybeText = std::optional<c10::string_view>;

using Signature = at::Tensor(Tensor qkvz, MaybeTensor ba, Tensor conv_state, Tensor state,
                             Tensor conv_weight, MaybeTensor conv_bias, Tensor A_log,
                             Tensor dt_bias, MaybeTensor norm_weight, Text qkvz_layout,
                             Text state_layout, std::int64_t num_k_heads, std::int64_t num_v_heads,
                             std::int64_t head_k_dim, std::int64_t head_v_dim, Text rounding,
                             MaybeText ba_layout, MaybeTensor z, MaybeText z_layout, MaybeTensor a,
                             MaybeText a_layout, MaybeTensor state_indices,
                             MaybeTensor write_indices, MaybeTensor num_accepted, MaybeText padding,
                             std::optional<double> norm_eps, MaybeText gate_activation);
const auto registration =
    binding::Registration::typed<gdn_decode_operator, gdn_decode_cpu, Signature>();

}  // namespace
}  // namespace truefuse
