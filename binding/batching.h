#pragma once

#include <torch/library.h>

#include <truefuse/operator/operator.h>

namespace truefuse::binding {

/// Registers what `op` does under torch.func.vmap. Where each batched argument and each output that
/// is computed has the contract's leading dimensions `name..`, the batch becomes one more of them
/// and the operator is called once. Otherwise it is called for each member of the batch, by
/// PyTorch's own fallback, which warns of that once.
void register_batching(torch::Library& library, const Operator& op);

}  // namespace truefuse::binding
