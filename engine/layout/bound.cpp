#include <algorithm>

#include <truefuse/core/error.h>
#include <truefuse/layout/layout.h>

namespace truefuse::layout {

std::int64_t Axis::offset_of(std::int64_t index) const {
  std::int64_t offset = 0;
  for (const Part& part : parts) offset += index / part.divisor % part.extent * part.stride;
  return offset;
}

bool Segment::is_affine() const {
  return std::all_of(axes.begin(), axes.end(), [](const Axis& axis) { return axis.is_affine(); });
}

std::int64_t Segment::stride(std::size_t i) const {
  const Axis& axis = axes.at(i);
  if (axis.is_affine()) return axis.parts[0].stride;
  std::string parts;
  for (const Part& part : axis.parts) {
    parts += (parts.empty() ? "" : ", ") + std::to_string(part.extent) + " at stride " +
             std::to_string(part.stride);
  }
  throw Error("layout: " + axis.name + " of " + name +
              " has no single stride, it is split: " + parts);
}

const Axis& Segment::axis(std::string_view axis_name) const {
  std::string known;
  for (const Axis& axis : axes) {
    if (axis.name == axis_name) return axis;
    known += (known.empty() ? "" : ", ") + axis.name;
  }
  throw Error("layout: " + name + " has no axis " + std::string(axis_name) + "; its axes are " +
              known);
}

std::int64_t Segment::offset(const std::vector<std::int64_t>& index) const {
  if (index.size() != axes.size()) {
    throw Error("layout: " + text(index) + " has " + std::to_string(index.size()) +
                " indices; the axes are " + shape_text());
  }
  std::int64_t offset = base;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (index[i] < 0 || index[i] >= axes[i].size) {
      throw Error("layout: " + text(index) + " does not exist; the axes are " + shape_text());
    }
    offset += axes[i].offset_of(index[i]);
  }
  return offset;
}

std::string Segment::text(const std::vector<std::int64_t>& index) const {
  if (is_padding()) return "padding";
  if (index.empty()) return name;
  std::string text = name + '[';
  for (std::size_t i = 0; i < index.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(index[i]);
  }
  return text + ']';
}

std::string Segment::shape_text() const {
  std::string text = name + '[';
  for (const Axis& axis : axes) {
    text += (&axis == axes.data() ? "" : ", ") + axis.name + '=' + std::to_string(axis.size);
  }
  return text + ']';
}

const Segment* Bound::find(std::string_view name) const {
  for (const Segment& segment : segments_) {
    if (segment.name == name && !segment.is_padding()) return &segment;
  }
  return nullptr;
}

const Segment& Bound::segment(std::string_view name) const {
  if (const Segment* found = find(name)) return *found;
  std::string known;
  for (const Segment& segment : segments_) {
    if (!segment.is_padding()) known += (known.empty() ? "" : ", ") + segment.name;
  }
  throw Error("layout: there is no segment " + std::string(name) + " in " + text_ + "; it has " +
              known);
}

std::int64_t Bound::offset(std::string_view segment_name,
                           const std::vector<std::int64_t>& index) const {
  return segment(segment_name).offset(index);
}

Element Bound::element_at(std::int64_t offset) const {
  if (offset < 0 || offset >= size()) {
    throw Error("layout: offset " + std::to_string(offset) + " is outside; " + text() + " has " +
                std::to_string(size()) + " elements");
  }
  const Node* node = &root_;
  std::int64_t rest = offset;
  while (!node->children.empty()) {
    rest %= node->inner;
    const auto after =
        std::upper_bound(node->children.begin(), node->children.end(), rest,
                         [](std::int64_t value, const Node& child) { return value < child.base; });
    node = &*(after - 1);
    rest -= node->base;
  }
  // The segment is found; its parts' strides nest, so each gives its digit by division.
  const Segment& segment = segments_[node->segment];
  Element element{node->segment, std::vector<std::int64_t>(segment.axes.size())};
  struct Step {
    std::size_t axis;
    Part part;
  };
  std::vector<Step> steps;
  for (std::size_t i = 0; i < segment.axes.size(); ++i) {
    for (const Part& part : segment.axes[i].parts) {
      if (part.extent > 1) steps.push_back({i, part});
    }
  }
  std::sort(steps.begin(), steps.end(),
            [](const Step& a, const Step& b) { return a.part.stride > b.part.stride; });
  rest = offset - segment.base;
  for (const Step& step : steps) {
    element.index[step.axis] += rest / step.part.stride * step.part.divisor;
    rest %= step.part.stride;
  }
  return element;
}

std::string Bound::text(const Element& element) const {
  return segments_.at(element.segment).text(element.index);
}

std::string Bound::text() const {
  std::string text = text_;
  for (const auto& [name, size] : sizes_) {
    text += (&name == &sizes_.begin()->first ? " with " : ", ") + name + '=' + std::to_string(size);
  }
  return text;
}

}  // namespace truefuse::layout
