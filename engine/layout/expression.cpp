#include <algorithm>
#include <utility>
#include <vector>

#include <truefuse/layout/expression.h>

namespace truefuse::layout {
namespace {

using Level = Node::Level;

/// A tensor as PyTorch would see it, without the leading dimensions, and the text that makes it.
struct Tensor {
  struct Dim {
    Level level;  // What the dimension counts; no axis for one that was joined.
    std::int64_t extent, stride;
  };
  std::string text;
  std::vector<Dim> dims;
  std::int64_t moves = 0;
  struct {
    std::size_t begin = 0, end = 0;  // In the text; meaningful if nothing was written since.
    std::size_t pieces = 0;
  } last_split;  // Of the last dimension.

  std::int64_t elements() const {
    std::int64_t count = 1;
    for (const Dim& dim : dims) count *= dim.extent;
    return count;
  }

  static std::string back(std::size_t count) { return "-" + std::to_string(count); }

  void make_contiguous() {
    std::int64_t stride = 1;
    for (std::size_t i = dims.size(); i-- > 0;) {
      dims[i].stride = stride;
      stride *= dims[i].extent;
    }
  }

  /// Splits dimension i into `pieces`, outermost first.
  void unflatten(std::size_t i, std::vector<Dim> pieces) {
    std::int64_t stride = dims[i].stride;
    for (std::size_t k = pieces.size(); k-- > 0;) {
      pieces[k].stride = stride;
      if (k > 0) stride *= pieces[k].extent;
    }
    if (pieces.size() == 1) {
      dims[i] = pieces[0];
      return;
    }
    const bool is_last = i + 1 == dims.size();
    const std::size_t begin = text.size();
    text += ".unflatten(" + back(dims.size() - i) + ", (";
    for (const Dim& piece : pieces) {
      text += (&piece == pieces.data() ? "" : ", ") + std::to_string(piece.extent);
    }
    text += "))";
    if (is_last) last_split = {begin, text.size(), pieces.size()};
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(i));
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(i), pieces.begin(), pieces.end());
  }

  /// A stretch of the last dimension.
  void slice(std::int64_t begin, std::int64_t size) {
    if (size == dims.back().extent) return;
    text += "[..., " + std::to_string(begin) + ":" + std::to_string(begin + size) + "]";
    dims.back().extent = size;
  }

  /// Brings dimension order[i] to place i.
  void permute(const std::vector<std::size_t>& order) {
    if (std::is_sorted(order.begin(), order.end())) return;
    std::vector<Dim> ordered;
    std::vector<std::size_t> moved;
    for (std::size_t i = 0; i < order.size(); ++i) {
      ordered.push_back(dims[order[i]]);
      if (order[i] != i) moved.push_back(i);
    }
    if (moved.size() == 2) {
      text +=
          ".transpose(" + back(dims.size() - moved[0]) + ", " + back(dims.size() - moved[1]) + ")";
    } else {
      std::string from, to;
      for (const std::size_t i : moved) {
        from += (from.empty() ? "" : ", ") + back(dims.size() - order[i]);
        to += (to.empty() ? "" : ", ") + back(dims.size() - i);
      }
      text += ".movedim((" + from + "), (" + to + "))";
    }
    dims = std::move(ordered);
  }

  /// Joins dimensions [first, first + count); a copy of the whole unless their strides follow on.
  void flatten(std::size_t first, std::size_t count) {
    if (count == 0) {
      text += ".unsqueeze(" + back(dims.size() - first + 1) + ")";
      dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(first), Dim{{}, 1, 1});
      return;
    }
    if (count == 1) return;
    if (first + count == dims.size() && last_split.end == text.size()) {
      // Splitting and joining the same: leave both out.
      const std::size_t pieces = std::min(count, last_split.pieces);
      Dim whole{{}, 1, dims.back().stride};
      for (std::size_t i = dims.size() - pieces; i < dims.size(); ++i)
        whole.extent *= dims[i].extent;
      std::vector<Dim> kept(dims.end() - static_cast<std::ptrdiff_t>(last_split.pieces),
                            dims.end() - static_cast<std::ptrdiff_t>(pieces));
      kept.push_back(whole);
      text.resize(last_split.begin);
      dims.resize(dims.size() - last_split.pieces + 1);
      last_split = {};
      unflatten(dims.size() - 1, std::move(kept));
      flatten(first, dims.size() - first);
      return;
    }
    bool is_view = true;
    std::int64_t extent = dims[first].extent;
    for (std::size_t i = first + 1; i < first + count; ++i) {
      std::int64_t span = 0;
      is_view &= !__builtin_mul_overflow(dims[i].stride, dims[i].extent, &span) &&
                 dims[i - 1].stride == span;
      extent *= dims[i].extent;
    }
    if (!is_view) {
      moves += 2 * elements();
      make_contiguous();
    }
    const std::size_t last = first + count;
    text += ".flatten(" + back(dims.size() - first) +
            (last == dims.size() ? "" : ", " + back(dims.size() - last + 1)) + ")";
    dims[first] = {{}, extent, dims[last - 1].stride};
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(first) + 1,
               dims.begin() + static_cast<std::ptrdiff_t>(last));
  }
};

class Builder {
 public:
  Builder(const Bound& from, const Bound& to) : from_(from), to_(to) {}

  std::optional<Expression> build() {
    for (const Segment& segment : to_.segments()) {
      if (segment.is_padding()) return std::nullopt;
    }
    std::vector<Level> path;
    const Tensor result = build(to_.nest(), path);
    if (!has_common_cuts_) return std::nullopt;
    return Expression{result.text, result.moves};
  }

 private:
  /// The levels around the node stay dimensions; all that is inside becomes the last one.
  Tensor build(const Node& node, std::vector<Level>& path) {
    const std::size_t around = path.size();
    for (const Level& level : node.levels) {
      if (level.part.extent > 1) path.push_back(level);
    }
    Tensor tensor = node.children.empty()
                        ? build_segment(to_.segments()[node.segment], path, around)
                        : build_group(node, path, around);
    path.resize(around);
    return tensor;
  }

  Tensor build_group(const Node& node, std::vector<Level>& path, std::size_t around) {
    std::vector<Tensor> tensors;
    for (const Node& child : node.children) tensors.push_back(build(child, path));
    Tensor joined = std::move(tensors[0]);
    if (tensors.size() > 1) {
      joined.text = "torch.cat((" + joined.text;
      for (std::size_t i = 1; i < tensors.size(); ++i) {
        joined.text += ", " + tensors[i].text;
        joined.moves += tensors[i].moves;
        joined.dims.back().extent += tensors[i].dims.back().extent;
      }
      joined.text += "), -1)";
      joined.moves += 2 * joined.elements();
      joined.make_contiguous();
    }
    joined.flatten(around, joined.dims.size() - around);
    return joined;
  }

  /// The segment as `from` holds it, its dimensions brought into the order of `path`.
  Tensor build_segment(const Segment& segment, const std::vector<Level>& path, std::size_t around) {
    Tensor tensor{"x", {{{}, from_.size(), 1}}, 0, {}};
    const auto source =
        static_cast<std::size_t>(from_.find(segment.name) - from_.segments().data());
    go_down(from_.nest(), source, tensor);
    if (!tensor.dims.empty() && tensor.dims.back().level.axis.empty()) {
      tensor.text += "[..., 0]";  // Nothing is inside the levels.
      tensor.dims.pop_back();
    }
    for (std::size_t i = 0; i < tensor.dims.size();) {
      const std::size_t before = tensor.dims.size();
      tensor.unflatten(i, pieces_of(tensor.dims[i].level, path));
      i += 1 + tensor.dims.size() - before;
    }
    // Every level of `path` is one or more of the tensor's dimensions.
    std::vector<std::size_t> order;
    std::vector<std::size_t> counts;
    for (const Level& level : path) {
      std::vector<std::size_t> inside;
      for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
        const Level& dim = tensor.dims[i].level;
        if (dim.axis == level.axis && dim.part.divisor >= level.part.divisor &&
            dim.part.divisor < level.part.divisor * level.part.extent) {
          inside.push_back(i);
        }
      }
      std::sort(inside.begin(), inside.end(), [&](std::size_t a, std::size_t b) {
        return tensor.dims[a].level.part.divisor > tensor.dims[b].level.part.divisor;
      });
      order.insert(order.end(), inside.begin(), inside.end());
      counts.push_back(inside.size());
    }
    tensor.permute(order);
    for (std::size_t i = 0; i < around; ++i) tensor.flatten(i, counts[i]);
    tensor.flatten(around, tensor.dims.size() - around);
    return tensor;
  }

  /// To the segment of `from`, taking apart the last dimension on the way.
  static void go_down(const Node& node, std::size_t segment, Tensor& tensor) {
    std::vector<Tensor::Dim> pieces;
    for (const Level& level : node.levels) {
      if (level.part.extent > 1) pieces.push_back({level, level.part.extent, 0});
    }
    if (!node.children.empty() || pieces.empty()) pieces.push_back({{}, node.inner, 0});
    tensor.unflatten(tensor.dims.size() - 1, std::move(pieces));
    for (const Node& child : node.children) {
      if (!contains(child, segment)) continue;
      tensor.slice(child.base, child.size);
      go_down(child, segment, tensor);
      return;
    }
  }

  static bool contains(const Node& node, std::size_t segment) {
    if (node.children.empty()) return node.segment == segment;
    return std::any_of(node.children.begin(), node.children.end(),
                       [&](const Node& child) { return contains(child, segment); });
  }

  /// A level of `from` cut wherever a level of `path` begins, outermost first.
  std::vector<Tensor::Dim> pieces_of(const Level& level, const std::vector<Level>& path) {
    const std::int64_t low = level.part.divisor;
    const std::int64_t high = low * level.part.extent;
    std::vector<std::int64_t> cuts{low, high};
    for (const Level& other : path) {
      const std::int64_t divisor = other.part.divisor;
      if (other.axis == level.axis && divisor > low && divisor < high) cuts.push_back(divisor);
    }
    std::sort(cuts.begin(), cuts.end());
    std::vector<Tensor::Dim> pieces;
    for (std::size_t i = cuts.size() - 1; i-- > 0;) {
      if (cuts[i + 1] % cuts[i] != 0) has_common_cuts_ = false;
      const std::int64_t extent = cuts[i + 1] / cuts[i];
      pieces.push_back({{level.axis, {cuts[i], extent, 0}}, extent, 0});
    }
    return pieces;
  }

  const Bound& from_;
  const Bound& to_;
  bool has_common_cuts_ = true;
};

}  // namespace

std::optional<Expression> expression(const Bound& from, const Bound& to) {
  return Builder(from, to).build();
}

}  // namespace truefuse::layout
