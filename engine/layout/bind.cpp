#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <truefuse/core/error.h>
#include <truefuse/core/scanner.h>
#include <truefuse/layout/layout.h>
#include <truefuse/layout/tree.h>

namespace truefuse::layout {

using tree::Atom;
using tree::Factor;
using tree::Piece;
using tree::Product;

class Binder {
 public:
  Binder(std::string_view text, const Sizes& sizes, const Sizes& axes)
      : text_(text), sizes_(sizes), axes_(axes) {}

  void bind(const Piece& root, Bound& bound) {
    bound.root_ = nest_of(root, 0);
    std::vector<Level> path;
    add_segments(bound.root_, 0, path);
    bound.segments_ = std::move(segments_);
  }

 private:
  using Level = Node::Level;

  [[noreturn]] void fail(std::size_t position, const std::string& sentence) const {
    fail_at("layout", text_, position, sentence);
  }

  std::int64_t value(const Atom& atom) const {
    if (atom.name.empty()) return atom.number;
    const auto found = sizes_.find(atom.name);
    if (found == sizes_.end()) fail(atom.position, "the size " + atom.name + " is not given");
    if (found->second < 1) {
      fail(atom.position,
           atom.name + " is " + std::to_string(found->second) + "; a size is at least 1");
    }
    return found->second;
  }

  std::int64_t value(const Product& product) const {
    std::int64_t total = 1;
    for (const Product::Step& step : product.steps) {
      const std::int64_t size = value(step.atom);
      if (step.divides) {
        total = quotient(total, size, step.atom.position);
      } else {
        total = times(total, size, step.atom.position);
      }
    }
    return total;
  }

  std::int64_t times(std::int64_t a, std::int64_t b, std::size_t position) const {
    std::int64_t product = 0;
    if (__builtin_mul_overflow(a, b, &product)) fail(position, "the size does not fit in 63 bits");
    return product;
  }

  std::int64_t quotient(std::int64_t a, std::int64_t b, std::size_t position) const {
    if (a % b != 0) {
      fail(position, std::to_string(a) + " is not a multiple of " + std::to_string(b));
    }
    return a / b;
  }

  std::int64_t axis_size(const Factor& factor) const {
    const auto found = axes_.find(factor.axis);
    if (found == axes_.end()) return value(factor.size);
    if (found->second < 1) fail(factor.position, factor.axis + " would have no elements");
    return found->second;
  }

  Part part_of(const Factor& factor) {
    if (factor.is_part()) part_positions_[factor.axis] = factor.position;
    Part part;
    const std::int64_t size = axis_size(factor);
    if (factor.divisor) part.divisor = value(*factor.divisor);
    if (factor.modulus) {
      part.extent = value(*factor.modulus);
      const std::int64_t block = times(part.divisor, part.extent, factor.modulus->position);
      if (size % block != 0) {
        fail(factor.position, factor.axis + " is " + std::to_string(size) + ", not a multiple of " +
                                  std::to_string(block));
      }
    } else if (size % part.divisor != 0) {
      fail(factor.position, factor.axis + " is " + std::to_string(size) + ", not a multiple of " +
                                std::to_string(part.divisor));
    } else {
      part.extent = size / part.divisor;
    }
    return part;
  }

  /// A factor whose stride is given ends the levels of its node: what is inside, and the gap after
  /// it, are children.
  Node nest_of(const Piece& piece, std::size_t first) {
    Node node;
    std::size_t end = first;
    while (end < piece.factors.size()) {
      const Factor& factor = piece.factors[end++];
      node.levels.push_back({factor.axis, part_of(factor)});
      if (factor.stride) break;
    }
    if (end > first && piece.factors[end - 1].stride) {
      add_strided(node, piece, end);
    } else if (piece.children.empty()) {
      node.segment = segments_.size();
      segments_.push_back({piece.segment, 0, 1, {}});
    } else {
      for (const Piece& child : piece.children) add_child(node, nest_of(child, 0));
    }
    node.inner = inner_size(node);
    node.size = node.inner;
    const std::size_t count = end - first;
    for (std::size_t i = count; i-- > 0;) {
      Part& part = node.levels[i].part;
      part.stride = node.size;
      node.size = times(node.size, part.extent, piece.factors[first + i].position);
    }
    return node;
  }

  void add_strided(Node& node, const Piece& piece, std::size_t end) {
    const Product& product = *piece.factors[end - 1].stride;
    const std::int64_t stride = value(product);
    Node inside = nest_of(piece, end);
    const std::int64_t gap = stride - inside.size;
    if (gap < 0) {
      fail(product.steps[0].atom.position, "the stride is " + std::to_string(stride) +
                                               ", but what it steps over has " +
                                               std::to_string(inside.size) + " elements");
    }
    add_child(node, std::move(inside));
    if (gap == 0) return;
    Node padding;
    padding.segment = segments_.size();
    padding.levels.push_back({std::string(kPadding), {1, gap, 1}});
    padding.size = gap;
    segments_.push_back({std::string(kPadding), 0, 1, {}});
    add_child(node, std::move(padding));
  }

  void add_child(Node& node, Node child) const {
    child.base = node.children.empty() ? 0 : inner_size(node);
    node.children.push_back(std::move(child));
  }

  std::int64_t inner_size(const Node& node) const {
    if (node.children.empty()) return 1;
    const Node& last = node.children.back();
    std::int64_t size = 0;
    if (__builtin_add_overflow(last.base, last.size, &size)) {
      fail(0, "the size does not fit in 63 bits");
    }
    return size;
  }

  void add_segments(const Node& node, std::int64_t base, std::vector<Level>& path) {
    const std::size_t around = path.size();
    path.insert(path.end(), node.levels.begin(), node.levels.end());
    if (node.children.empty()) {
      Segment& segment = segments_[node.segment];
      segment.base = base;
      for (const Level& level : path) add_part(segment, level);
      for (Axis& axis : segment.axes) finish(segment, axis);
    }
    for (const Node& child : node.children) add_segments(child, base + child.base, path);
    path.resize(around);
  }

  static void add_part(Segment& segment, const Level& level) {
    auto axis = std::find_if(segment.axes.begin(), segment.axes.end(),
                             [&](const Axis& known) { return known.name == level.axis; });
    if (axis == segment.axes.end()) {
      segment.axes.push_back({level.axis, 1, {}});
      axis = segment.axes.end() - 1;
    }
    axis->parts.push_back(level.part);
    segment.elements *= level.part.extent;
  }

  /// Orders the parts and joins neighbours, after checking that they make up the axis.
  void finish(const Segment& segment, Axis& axis) const {
    auto& parts = axis.parts;
    std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) {
      return a.divisor != b.divisor ? a.divisor > b.divisor : a.extent > b.extent;
    });
    std::vector<Part> joined;
    axis.size = 1;
    for (std::size_t i = parts.size(); i-- > 0;) {
      const Part& part = parts[i];
      if (part.divisor != axis.size) {
        fail(part_positions_.find(axis.name)->second,
             "the parts of " + axis.name + " in " + segment.name +
                 " do not follow on: they leave off at " + std::to_string(axis.size) +
                 " and go on from " + std::to_string(part.divisor));
      }
      axis.size *= part.extent;
      if (!joined.empty() && (part.extent == 1 || joined.back().extent == 1 ||
                              part.stride == joined.back().extent * joined.back().stride)) {
        Part& last = joined.back();
        if (last.extent == 1) last.stride = part.stride;
        last.extent *= part.extent;
      } else {
        joined.push_back(part);
      }
    }
    parts.assign(joined.rbegin(), joined.rend());
  }

  std::string_view text_;
  const Sizes& sizes_;
  const Sizes& axes_;
  std::vector<Segment> segments_;
  std::map<std::string, std::size_t> part_positions_;
};

Bound Layout::bind(const Sizes& sizes) const { return bind(sizes, {}); }

Bound Layout::bind(const Sizes& sizes, const Sizes& axes) const {
  Bound bound;
  bound.text_ = text_;
  if (!root_) throw Error("layout: nothing was parsed; use Layout::parse");
  Binder(text_, sizes, axes).bind(*root_, bound);
  for (const std::string& name : names_) {
    if (const auto found = sizes.find(name); found != sizes.end()) bound.sizes_.insert(*found);
  }
  return bound;
}

}  // namespace truefuse::layout
