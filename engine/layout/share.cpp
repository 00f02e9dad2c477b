#include <algorithm>

#include <truefuse/core/error.h>
#include <truefuse/layout/pair.h>
#include <truefuse/layout/share.h>

namespace truefuse::layout {
namespace {

/// Keeps [first, first + size) of an axis.
void cut(Segment& segment, Axis& axis, std::int64_t first, std::int64_t size) {
  Part& outermost = axis.parts.front();
  if (size % outermost.divisor != 0) {
    throw Error("layout: a share of " + std::to_string(size) + " of " + axis.name +
                " would cut through its parts of " + std::to_string(outermost.divisor) + " in " +
                segment.name + "; share another axis, or among fewer ranks");
  }
  segment.base += axis.offset_of(first);
  segment.elements = segment.elements / axis.size * size;
  outermost.extent = size / outermost.divisor;
  axis.size = size;
}

/// How many elements from offset `local` on follow one another in both.
std::int64_t common_stretch(const Segment& local, const Segment& global,
                            const std::vector<std::int64_t>& index) {
  struct Level {
    std::size_t axis;
    Digit digit;
  };
  std::vector<Level> levels;
  for (std::size_t i = 0; i < local.axes.size(); ++i) {
    const auto digits = common_digits(local.axes[i], global.axes[i]);
    for (const Digit& digit : *digits) {  // A share keeps the splits of the whole.
      if (digit.extent > 1) levels.push_back({i, digit});
    }
  }
  std::sort(levels.begin(), levels.end(),
            [](const Level& a, const Level& b) { return a.digit.a_stride < b.digit.a_stride; });
  std::int64_t block = 1;
  std::int64_t position = 0;
  for (const auto& [axis, digit] : levels) {
    if (digit.a_stride != block || digit.b_stride != block) break;
    position += index[axis] / digit.divisor % digit.extent * block;
    block *= digit.extent;
  }
  return block - position;
}

}  // namespace

Share share(const Layout& layout, const Sizes& sizes, std::string_view axis_name, std::int64_t rank,
            std::int64_t world) {
  if (world < 1 || rank < 0 || rank >= world) {
    throw Error("layout: rank " + std::to_string(rank) + " of " + std::to_string(world) +
                " does not exist; ranks go from 0 to the number of ranks minus 1");
  }
  const Bound whole = layout.bind(sizes);
  std::int64_t size = 0;
  std::string known;
  for (const Segment& segment : whole.segments()) {
    if (segment.is_padding()) continue;
    for (const Axis& axis : segment.axes) {
      if (axis.name == axis_name) size = axis.size;
      if ((", " + known + ",").find(", " + axis.name + ",") == std::string::npos) {
        known += (known.empty() ? "" : ", ") + axis.name;
      }
    }
  }
  if (size == 0) {
    throw Error("layout: no segment of " + whole.text() + " has an axis " + std::string(axis_name) +
                "; the axes are " + known);
  }
  if (size % world != 0) {
    throw Error("layout: " + std::string(axis_name) + " is " + std::to_string(size) +
                ", which cannot be shared among " + std::to_string(world) + " ranks");
  }
  const std::int64_t kept = size / world;
  Share share;
  share.first = rank * kept;
  share.local = layout.bind(sizes, {{std::string(axis_name), kept}});
  for (const Segment& local : share.local.segments()) {
    if (local.is_padding()) continue;
    Segment global = whole.segment(local.name);
    const auto found = std::find_if(global.axes.begin(), global.axes.end(),
                                    [&](const Axis& axis) { return axis.name == axis_name; });
    if (found != global.axes.end()) {
      cut(global, *found, share.first, kept);
    } else {
      share.replicated.push_back(local.name);
    }
    share.global.push_back(std::move(global));
  }
  return share;
}

void index_map(const Share& share, std::int64_t* map) {
  std::fill(map, map + share.local.size(), -1);
  for (const Segment& global : share.global) {
    const Segment& local = share.local.segment(global.name);
    Pair pair{&local, &global, {}};
    for (std::size_t i = 0; i < local.axes.size(); ++i) pair.b_axes.push_back(i);
    fill_map(pair, map);
  }
}

std::vector<Stretch> stretches(const Share& share, std::size_t most) {
  std::vector<Stretch> found;
  std::int64_t length = 0;
  for (std::int64_t local = 0; local < share.local.size() && found.size() < most; local += length) {
    const Element element = share.local.element_at(local);
    const Segment& segment = share.local.segments()[element.segment];
    if (segment.is_padding()) {
      length = common_stretch(segment, segment, element.index);
      continue;
    }
    const Segment& global =
        *std::find_if(share.global.begin(), share.global.end(),
                      [&](const Segment& candidate) { return candidate.name == segment.name; });
    length = common_stretch(segment, global, element.index);
    const std::int64_t offset = global.offset(element.index);
    if (!found.empty() && found.back().local + found.back().length == local &&
        found.back().global + found.back().length == offset) {
      found.back().length += length;
    } else {
      found.push_back({offset, local, length});
    }
  }
  return found;
}

}  // namespace truefuse::layout
