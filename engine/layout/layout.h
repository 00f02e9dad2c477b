#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::layout {

/// What the names in a layout are: {{"H", 16}, {"K", 128}}.
using Sizes = std::map<std::string, std::int64_t, std::less<>>;

/// The name of segments that hold nobody.
inline constexpr std::string_view kPadding = "_";

/// What an index of an axis adds to the offset: (index / divisor % extent) * stride.
struct Part {
  std::int64_t divisor = 1;
  std::int64_t extent = 1;
  std::int64_t stride = 0;  ///< In elements.

  bool operator==(const Part&) const = default;
};

struct Axis {
  std::string name;
  std::int64_t size = 1;
  std::vector<Part> parts;  ///< Outermost (largest divisor) first; one unless the axis is split.

  bool is_affine() const { return parts.size() == 1; }
  std::int64_t offset_of(std::int64_t index) const;
};

/// One named tensor inside a layout; every index of its axes has its own offset.
struct Segment {
  std::string name;
  std::int64_t base = 0;      ///< Offset of element [0, 0, ...].
  std::int64_t elements = 1;  ///< How many there are.
  std::vector<Axis> axes;     ///< In the order of the text, outermost first.

  bool is_padding() const { return name == kPadding; }
  /// offset = base + sum of index[i] * stride(i), without a division.
  bool is_affine() const;
  /// Of an axis that is not split. Throws Error that says how the axis is split.
  std::int64_t stride(std::size_t axis) const;
  /// Of an axis by name. Throws Error that lists the axes.
  const Axis& axis(std::string_view axis_name) const;

  /// One index per axis. Throws Error if one is missing or outside its axis.
  std::int64_t offset(const std::vector<std::int64_t>& index) const;
  /// "k[1,0]", or "padding".
  std::string text(const std::vector<std::int64_t>& index) const;
  /// "k[H=16, K=128]"
  std::string shape_text() const;
};

/// Who lies at an offset.
struct Element {
  std::size_t segment = 0;  ///< Index into Bound::segments().
  std::vector<std::int64_t> index;

  bool operator==(const Element&) const = default;
};

/// How segments nest in memory: `levels`, outermost first, around either one segment or several nodes
/// side by side. Strides of the levels are dense: stride = extent * stride of what is inside.
struct Node {
  struct Level {
    std::string axis;
    Part part;
  };
  std::int64_t base = 0;   ///< Within one step of the levels of the node around it.
  std::int64_t inner = 1;  ///< Elements inside the levels.
  std::int64_t size = 1;   ///< inner * extents.
  std::vector<Level> levels;
  std::vector<Node> children;  ///< Empty for a segment.
  std::size_t segment = 0;
};

/// A layout whose sizes are known. Offsets, strides and sizes count elements. Every offset in
/// [0, size()) belongs to exactly one element of one segment, padding included.
class Bound {
 public:
  std::int64_t size() const { return root_.size; }
  /// In the order of the text, padding and the gaps of strides included.
  const std::vector<Segment>& segments() const { return segments_; }
  /// Null if there is none.
  const Segment* find(std::string_view name) const;
  /// Throws Error that lists the segments.
  const Segment& segment(std::string_view name) const;
  /// Throws Error if there is no such element.
  std::int64_t offset(std::string_view segment_name, const std::vector<std::int64_t>& index) const;
  /// Throws Error if the offset is outside [0, size()).
  Element element_at(std::int64_t offset) const;
  std::string text(const Element& element) const;
  /// The layout with its sizes: "H (q=K | k=K) with H=16, K=128".
  std::string text() const;
  const Sizes& sizes() const { return sizes_; }
  const Node& nest() const { return root_; }

 private:
  friend class Binder;
  friend class Layout;

  std::string text_;
  Sizes sizes_;
  Node root_;
  std::vector<Segment> segments_;
};

namespace tree {
struct Piece;
}

/// Who each element of a row is, written row-major, outermost first:
///
///   H (q=K | k=K | v=G V | z=G V)               Qwen3-Next: interleaved per key head
///   q=H K | k=H K | v=H G V | z=H G V           Qwen3.5: flat
///   H G K/4 V 4                                  a state whose K is split around V
///   slot@S (W (q=H K | k=H K | v=H G V) | _=P)   a pool with slots S apart, and padding
///
/// In all of them v's element is v[h,g,e]: a name and one index per axis, whatever the order and
/// the grouping. Grammar (white space is free):
///
///   layout  = piece {"|" piece}                   side by side, in this order
///   piece   = [NAME "="] factors                  a segment; without a name it is called x
///           | [factors] "(" layout ")"            factors around all that is in the brackets
///   factors = factor {["*"] factor}               outermost first
///   factor  = axis ["@" product]                  "@": the axis' stride, for one that is not dense
///   axis    = NAME                                an axis; its size has the same name
///           | NUMBER                              an axis of that size, called i0, i1, ... by order
///           | NAME ":" product                    an axis and its size: G:HV/H
///           | NAME "/" n ["%" n] | NAME "%" n     a part of an axis: index / n % n
///   product = n {("*" | "/") n}                   from left to right; divisions are exact
///   n       = NAME | NUMBER
///
/// - `_` is padding: nobody's elements. It may stand any number of times, and names no axis.
/// - The parts of an axis make up the whole of it. A plain n after NAME/n, within the same piece or
///   brackets, is the rest: `K/4 V 4` is `K/4 V K%4`.
/// - Sizes are at least 1; sizes and offsets fit in 63 bits.
class Layout {
 public:
  /// Throws Error that says what was expected, with a caret under the place.
  static Layout parse(std::string_view text);

  const std::string& text() const { return text_; }
  /// The sizes to give, in the order of the text.
  const std::vector<std::string>& names() const { return names_; }

  /// Sizes that the layout does not mention are allowed, so that several layouts can share a set.
  /// Throws Error if one is missing or does not fit, with a caret under it.
  Bound bind(const Sizes& sizes) const;
  /// The same with other sizes for some axes; sizes computed from their names stay as they are.
  Bound bind(const Sizes& sizes, const Sizes& axes) const;

 private:
  friend class Parser;

  std::string text_;
  std::vector<std::string> names_;
  std::shared_ptr<const tree::Piece> root_;
};

/// Reads "H=16 G=3 K=128" (commas are allowed). Throws Error with a caret under the place.
Sizes parse_sizes(std::string_view text);

}  // namespace truefuse::layout
