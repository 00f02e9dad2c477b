#include <algorithm>

#include <truefuse/layout/compare.h>

namespace truefuse::layout {
namespace {

using Index = std::vector<std::int64_t>;

/// The text of the elements from `first` to `last`, which are `length` many.
std::string text_of(const Segment& segment, const Index& first, const Index& last,
                    std::int64_t length, bool is_named) {
  if (segment.is_padding() || first.empty()) return segment.text(first);
  std::int64_t box = 1;
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (last[i] < first[i]) box = 0;
    box *= last[i] - first[i] + 1;
  }
  const auto list = [&](const Index& from, const Index& to) {
    std::string text = segment.name + '[';
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (i != 0) text += ',';
      if (is_named) text += segment.axes[i].name + '=';
      text += std::to_string(from[i]);
      if (to[i] != from[i]) text += "…" + std::to_string(to[i]);
    }
    return text + ']';
  };
  if (box == length) return list(first, last);
  return list(first, first) + "…" + list(last, last);
}

}  // namespace

std::string range_text(const Bound& bound, std::int64_t offset, std::int64_t length) {
  const Element first = bound.element_at(offset);
  const Element last = bound.element_at(offset + length - 1);
  return text_of(bound.segments()[first.segment], first.index, last.index, length, false);
}

Runs::Runs(const Bound& a, const Bound& b)
    : a_(side_of(a)), b_(side_of(b)), end_(std::max(a.size(), b.size())) {
  pairs_of_b_.assign(b.segments().size(), nullptr);
  pairs_.reserve(a.segments().size());
  for (const Segment& segment : a.segments()) {
    pairs_.push_back(segment.is_padding() ? std::nullopt : pair_of(segment, b));
    if (!pairs_.back()) continue;
    const Pair& pair = *pairs_.back();
    const auto in_b = static_cast<std::size_t>(pair.b - b.segments().data());
    pairs_of_b_[in_b] = &pair;
    for (Level& level : b_.levels[in_b]) {
      const auto found = std::find(pair.b_axes.begin(), pair.b_axes.end(), level.axis);
      level.axis = static_cast<std::size_t>(found - pair.b_axes.begin());
    }
  }
}

Runs::Side Runs::side_of(const Bound& bound) {
  Side side{&bound, {}, {}};
  for (const Segment& segment : bound.segments()) {
    Levels& levels = side.levels.emplace_back();
    for (std::size_t i = 0; i < segment.axes.size(); ++i) {
      for (const Part& part : segment.axes[i].parts) {
        if (part.extent > 1) levels.push_back({i, part});
      }
    }
    std::sort(levels.begin(), levels.end(),
              [](const Level& a, const Level& b) { return a.part.stride < b.part.stride; });
    std::size_t dense = 0;
    while (dense < levels.size() && levels[dense].part.stride == block(levels, dense)) ++dense;
    side.dense.push_back(dense);
  }
  return side;
}

std::int64_t Runs::block(const Levels& levels, std::size_t count) {
  std::int64_t size = 1;
  for (std::size_t i = 0; i < count; ++i) size *= levels[i].part.extent;
  return size;
}

/// Where an element lies in the block of the `count` innermost levels, all dense.
std::int64_t Runs::position(const Levels& levels, std::size_t count, const Index& index) {
  std::int64_t position = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [axis, part] = levels[i];
    position += index[axis] / part.divisor % part.extent * part.stride;
  }
  return position;
}

std::int64_t Runs::rest_of_block(const Levels& levels, std::size_t dense, const Index& index) {
  return block(levels, dense) - position(levels, dense, index);
}

Run Runs::at(std::int64_t offset) const {
  Run run;
  run.offset = offset;
  run.length = end_ - offset;
  const Pair* a_pair = nullptr;
  const Pair* b_pair = nullptr;
  Index a_index, b_index;
  bool a_empty = true, b_empty = true;
  if (offset < a_.bound->size()) {
    run.a = a_.bound->element_at(offset);
    const std::size_t i = run.a->segment;
    if (pairs_[i]) a_pair = &*pairs_[i];
    a_index = run.a->index;
    a_empty = a_.bound->segments()[i].is_padding();
    run.length = std::min(run.length, rest_of_block(a_.levels[i], a_.dense[i], a_index));
  }
  if (offset < b_.bound->size()) {
    run.b = b_.bound->element_at(offset);
    const std::size_t i = run.b->segment;
    b_pair = pairs_of_b_[i];
    b_index = b_pair != nullptr ? b_pair->in_order_of_a(run.b->index) : run.b->index;
    b_empty = b_.bound->segments()[i].is_padding();
    run.length = std::min(run.length, rest_of_block(b_.levels[i], b_.dense[i], b_index));
  }
  run.same = a_empty && b_empty;
  if (a_pair != nullptr && a_pair == b_pair) meet(a_index, b_index, run);
  return run;
}

/// Both sides are in the same segment: where do they agree?
void Runs::meet(const Index& a, const Index& b, Run& run) const {
  const auto& a_levels = a_.levels[run.a->segment];
  const auto& b_levels = b_.levels[run.b->segment];
  run.same = a == b;
  const std::size_t most = std::min(a_.dense[run.a->segment], b_.dense[run.b->segment]);
  std::size_t common = 0;
  while (common < most && a_levels[common].is_alike(b_levels[common])) ++common;
  if (common > 0 && position(a_levels, common, a) == position(b_levels, common, b)) {
    run.length = std::min(run.length, rest_of_block(a_levels, common, a));
    return;
  }
  // Step by step along the innermost level of each.
  if (a_.dense[run.a->segment] == 0 || b_.dense[run.b->segment] == 0) {
    run.length = 1;
    return;
  }
  const Level& in_a = a_levels[0];
  const Level& in_b = b_levels[0];
  run.length = std::min(rest_of_block(a_levels, 1, a), rest_of_block(b_levels, 1, b));
  if (in_a.axis == in_b.axis && in_a.part.divisor == in_b.part.divisor) return;
  if (run.same) {
    run.length = 1;
    return;
  }
  // They meet after n steps if a + n * step_a = b + n * step_b, in every axis.
  std::int64_t meeting = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::int64_t speed =
        (i == in_a.axis ? in_a.part.divisor : 0) - (i == in_b.axis ? in_b.part.divisor : 0);
    const std::int64_t lead = b[i] - a[i];
    if (speed == 0 && lead == 0) continue;
    if (speed == 0 || lead % speed != 0 || lead / speed <= 0) return;
    if (meeting != 0 && meeting != lead / speed) return;
    meeting = lead / speed;
  }
  run.length = std::min(run.length, meeting);
}

bool Runs::next(Run& run) {
  if (offset_ == end_) return false;
  run = at(offset_);
  offset_ += run.length;
  return true;
}

std::string Runs::a_text(const Run& run) const {
  if (!run.a) return "nothing";
  const Element last = a_.bound->element_at(run.offset + run.length - 1);
  const auto& pair = pairs_[run.a->segment];
  return text_of(a_.bound->segments()[run.a->segment], run.a->index, last.index, run.length,
                 pair && pair->is_reordered());
}

std::string Runs::b_text(const Run& run) const {
  if (!run.b) return "nothing";
  const Element last = b_.bound->element_at(run.offset + run.length - 1);
  const Pair* pair = pairs_of_b_[run.b->segment];
  if (pair == nullptr) {
    return text_of(b_.bound->segments()[run.b->segment], run.b->index, last.index, run.length,
                   false);
  }
  return text_of(*pair->a, pair->in_order_of_a(run.b->index), pair->in_order_of_a(last.index),
                 run.length, pair->is_reordered());
}

}  // namespace truefuse::layout
