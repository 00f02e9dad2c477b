#pragma once

#include <truefuse/operators/gated/operator.h>

namespace truefuse::gated {

/// The CPU path of each kind.
template <bool kGeglu, bool kPacked, bool kBackward>
void run_on_cpu(const Call& call);

}  // namespace truefuse::gated
