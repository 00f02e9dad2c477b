#include <algorithm>

#include <truefuse/core/error.h>
#include <truefuse/layout/pair.h>

namespace truefuse::layout {
namespace {

std::int64_t stride_of(const Axis& axis, std::int64_t divisor) {
  for (const Part& part : axis.parts) {  // Outermost first.
    if (divisor >= part.divisor) return divisor / part.divisor * part.stride;
  }
  return 0;
}

}  // namespace

std::optional<std::vector<Digit>> common_digits(const Axis& a, const Axis& b) {
  std::vector<std::int64_t> bounds{1, a.size};
  for (const Axis* axis : {&a, &b}) {
    for (const Part& part : axis->parts) bounds.push_back(part.divisor);
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::vector<Digit> digits;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    if (bounds[i + 1] % bounds[i] != 0) return std::nullopt;
    digits.push_back(
        {bounds[i], bounds[i + 1] / bounds[i], stride_of(a, bounds[i]), stride_of(b, bounds[i])});
  }
  return digits;
}

bool Pair::is_reordered() const { return !std::is_sorted(b_axes.begin(), b_axes.end()); }

std::vector<std::int64_t> Pair::in_order_of_a(const std::vector<std::int64_t>& b_index) const {
  std::vector<std::int64_t> index;
  index.reserve(b_axes.size());
  for (const std::size_t axis : b_axes) index.push_back(b_index[axis]);
  return index;
}

std::optional<Pair> pair_of(const Segment& a, const Bound& other) {
  const Segment* b = other.find(a.name);
  if (b == nullptr) return std::nullopt;
  Pair pair{&a, b, {}};
  for (const Axis& axis : a.axes) {
    const auto found = std::find_if(b->axes.begin(), b->axes.end(), [&](const Axis& candidate) {
      return candidate.name == axis.name && candidate.size == axis.size;
    });
    if (found != b->axes.end()) {
      pair.b_axes.push_back(static_cast<std::size_t>(found - b->axes.begin()));
    }
  }
  if (pair.b_axes.size() != a.axes.size() || a.axes.size() != b->axes.size()) {
    throw Error("layout: " + a.shape_text() + " in the one and " + b->shape_text() +
                " in the other layout are not the same elements; give their axes the same names "
                "and sizes");
  }
  return pair;
}

void fill_map(const Pair& pair, std::int64_t* map) {
  struct Step {
    std::int64_t a, b;
  };
  const std::size_t rank = pair.a->axes.size();
  std::vector<std::vector<Step>> steps(rank);  // Per axis and index.
  for (std::size_t i = 0; i < rank; ++i) {
    const Axis& axis = pair.a->axes[i];
    for (std::int64_t k = 0; k < axis.size; ++k) {
      steps[i].push_back({axis.offset_of(k), pair.b_axis(i).offset_of(k)});
    }
  }
  std::vector<std::size_t> index(rank, 0);
  for (std::int64_t done = 0; done < pair.a->elements; ++done) {
    std::int64_t a = pair.a->base;
    std::int64_t b = pair.b->base;
    for (std::size_t i = 0; i < rank; ++i) {
      a += steps[i][index[i]].a;
      b += steps[i][index[i]].b;
    }
    map[a] = b;
    for (std::size_t i = rank; i-- > 0;) {
      if (++index[i] < steps[i].size()) break;
      index[i] = 0;
    }
  }
}

}  // namespace truefuse::layout
