#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <truefuse/layout/layout.h>

namespace truefuse::layout {

struct Expression {
  std::string text;
  std::int64_t moves = 0;  ///< Elements read and written.
};

/// `x`, a tensor [..., from.size()], in the order of `to`, as views, copies and concatenations of
/// PyTorch. Nothing if `to` has padding or an axis has no common refinement of its splits. Every
/// segment of `to` must be in `from`.
std::optional<Expression> expression(const Bound& from, const Bound& to);

}  // namespace truefuse::layout
