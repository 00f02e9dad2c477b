#include <algorithm>
#include <array>
#include <limits>

#include <truefuse/core/error.h>
#include <truefuse/layout/convert.h>
#include <truefuse/layout/expression.h>
#include <truefuse/layout/pair.h>

namespace truefuse::layout {
namespace {

Pair source_of(const Segment& wanted, const Bound& from) {
  if (auto pair = pair_of(wanted, from)) return *std::move(pair);
  throw Error("layout: " + from.text() + " holds no " + wanted.name + ", which " +
              wanted.shape_text() + " needs");
}

/// Whether `to` is a stretch of `from`, elements in the same order; then its begin.
bool is_slice(const Bound& from, const Bound& to, std::int64_t& begin) {
  bool is_first = true;
  for (const Segment& segment : to.segments()) {
    if (segment.is_padding()) continue;
    const Pair pair = source_of(segment, from);
    const std::int64_t shift = pair.b->base - segment.base;
    if (is_first) begin = shift;
    is_first = false;
    if (shift != begin) return false;
    for (std::size_t i = 0; i < segment.axes.size(); ++i) {
      const auto digits = common_digits(segment.axes[i], pair.b_axis(i));
      if (!digits || std::any_of(digits->begin(), digits->end(), [](const Digit& digit) {
            return digit.a_stride != digit.b_stride && digit.extent > 1;
          })) {
        return false;
      }
    }
  }
  // What `to` has as padding may be anybody's; only its room must be there.
  return begin >= 0 && begin <= from.size() - to.size();
}

}  // namespace

void index_map(const Bound& from, const Bound& to, std::int64_t* map) {
  std::fill(map, map + to.size(), -1);
  for (const Segment& segment : to.segments()) {
    if (segment.is_padding()) continue;
    fill_map(source_of(segment, from), map);
  }
}

std::string_view text(Conversion::Kind kind) {
  static constexpr std::array<std::string_view, 4> kNames{"nothing", "view", "copy", "gather"};
  return kNames[static_cast<std::size_t>(kind)];
}

Conversion convert(const Bound& from, const Bound& to) {
  Conversion conversion;
  for (const Segment& segment : from.segments()) {
    if (!segment.is_padding() && to.find(segment.name) == nullptr) {
      conversion.dropped.push_back(segment.name);
    }
  }
  if (__builtin_mul_overflow(2, to.size(), &conversion.gather_moves)) {
    conversion.gather_moves = std::numeric_limits<std::int64_t>::max();
  }
  std::int64_t begin = 0;
  if (is_slice(from, to, begin)) {
    const bool is_all = to.size() == from.size();
    conversion.kind = is_all ? Conversion::Kind::nothing : Conversion::Kind::view;
    conversion.expression = "x";
    if (!is_all) {
      conversion.expression +=
          "[..., " + std::to_string(begin) + ":" + std::to_string(begin + to.size()) + "]";
    }
    return conversion;
  }
  if (const auto found = expression(from, to)) {
    conversion.expression = found->text;
    conversion.expression_moves = found->moves;
    if (found->moves <= conversion.gather_moves) conversion.kind = Conversion::Kind::copy;
  }
  return conversion;
}

}  // namespace truefuse::layout
