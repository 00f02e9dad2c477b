#pragma once

#include <torch/library.h>

#include <truefuse/operator/operator.h>

namespace truefuse::binding {

/// Registers what `op` does under autocast. An argument whose contract says `like x` follows x: if
/// the two differ and each is float32, float16 or bfloat16, it is converted to the dtype of x, by a
/// conversion that is differentiated and, for a parameter, made once per forward pass. Nothing else
/// is converted: the operator runs in the dtype of x, as gelu, silu and multiplication do.
void register_autocast(torch::Library& library, const Operator& op);

}  // namespace truefuse::binding
