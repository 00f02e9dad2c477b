#pragma once

#include <truefuse/description/description.h>

namespace truefuse::description {

/// The backward operator of one whose gradients a Python function computes: `<name>_backward`, with
/// the names that PyTorch's binding looks for (`grad_<output>`, the forward arguments, a bool
/// `<argument>_wanted` for each gradient) and without a plan. Throws Error for an operator that
/// writes its arguments.
Operator backward_of(const Described& described);

}  // namespace truefuse::description
