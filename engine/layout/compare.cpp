#include <algorithm>
#include <utility>

#include <truefuse/core/error.h>
#include <truefuse/layout/compare.h>

namespace truefuse::layout {
namespace {

using Wide = __int128;  // Sums of differences of offsets, each of which fits in 63 bits.

constexpr std::int64_t kMostSteps = 1 << 20;

/// What one axis, or one digit of it, adds to (offset in a) - (offset in b): a multiple of
/// `coefficient`, or one of `values` where the splits of the axis have no common refinement.
struct Term {
  Wide coefficient = 0;
  std::int64_t extent = 1;
  std::vector<Wide> values;

  Wide low() const {
    if (values.empty()) return std::min<Wide>(0, coefficient * (extent - 1));
    return *std::min_element(values.begin(), values.end());
  }
  Wide high() const {
    if (values.empty()) return std::max<Wide>(0, coefficient * (extent - 1));
    return *std::max_element(values.begin(), values.end());
  }
};

/// How many indices the terms bring to a sum, without trying those that cannot reach it.
class Counter {
 public:
  explicit Counter(std::vector<Term> terms) : terms_(std::move(terms)) {
    for (Term& term : terms_) {
      if (term.coefficient == 0 && term.values.empty()) free_ *= term.extent;
    }
    std::erase_if(terms_,
                  [](const Term& term) { return term.coefficient == 0 && term.values.empty(); });
    // Tables first, then from the widest digit to the narrowest, whose number follows from the
    // rest.
    std::sort(terms_.begin(), terms_.end(), [](const Term& a, const Term& b) {
      if (a.values.empty() != b.values.empty()) return b.values.empty();
      return magnitude(a.coefficient) > magnitude(b.coefficient);
    });
    low_.assign(terms_.size() + 1, 0);
    high_.assign(terms_.size() + 1, 0);
    for (std::size_t i = terms_.size(); i-- > 0;) {
      low_[i] = low_[i + 1] + terms_[i].low();
      high_[i] = high_[i + 1] + terms_[i].high();
    }
  }

  std::optional<std::int64_t> count(Wide sum) {
    const std::int64_t found = count_from(0, sum);
    if (steps_ > kMostSteps) return std::nullopt;
    return found * free_;
  }

 private:
  static Wide magnitude(Wide value) { return value < 0 ? -value : value; }
  static Wide floor_divide(Wide a, Wide b) {
    return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  }

  std::int64_t count_from(std::size_t i, Wide sum) {
    if (++steps_ > kMostSteps || sum < low_[i] || sum > high_[i]) return 0;
    if (i == terms_.size()) return 1;  // low = high = 0 = sum
    const Term& term = terms_[i];
    std::int64_t found = 0;
    for (const Wide value : term.values) found += count_from(i + 1, sum - value);
    if (!term.values.empty()) return found;
    // low <= sum - coefficient * d <= high
    Wide first = -floor_divide(-(sum - high_[i + 1]), term.coefficient);
    Wide last = floor_divide(sum - low_[i + 1], term.coefficient);
    if (term.coefficient < 0) {
      first = -floor_divide(-(sum - low_[i + 1]), term.coefficient);
      last = floor_divide(sum - high_[i + 1], term.coefficient);
    }
    first = std::max<Wide>(first, 0);
    last = std::min<Wide>(last, term.extent - 1);
    if (i + 2 == terms_.size()) return count_pairs(i, sum, first, last);
    for (Wide digit = first; digit <= last && steps_ <= kMostSteps; ++digit) {
      found += count_from(i + 1, sum - term.coefficient * digit);
    }
    return found;
  }

  /// Digits in [first, last] of term i, of the last two, that leave a multiple of the other's
  /// coefficient; the range makes sure that the other's digit exists.
  std::int64_t count_pairs(std::size_t i, Wide sum, Wide first, Wide last) const {
    const Wide modulus = magnitude(terms_[i + 1].coefficient);
    const auto residue = [](Wide value, Wide m) { return (value % m + m) % m; };
    // Euclid: inverse * coefficient = divisor, modulo `modulus`.
    Wide divisor = modulus, rest = residue(terms_[i].coefficient, modulus);
    Wide inverse = 0, next = 1;
    while (rest != 0) {
      const Wide quotient = divisor / rest;
      divisor = std::exchange(rest, divisor - quotient * rest);
      inverse = std::exchange(next, inverse - quotient * next);
    }
    if (sum % divisor != 0 || first > last) return 0;
    const Wide step = modulus / divisor;
    const Wide digit = residue(residue(sum / divisor, step) * residue(inverse, step), step);
    // Those that are `digit` modulo `step`.
    const auto up_to = [&](Wide limit) { return floor_divide(limit - digit, step); };
    return static_cast<std::int64_t>(up_to(last) - up_to(first - 1));
  }

  std::vector<Term> terms_;
  std::vector<Wide> low_, high_;  // Of the sums of all terms from i on.
  std::int64_t free_ = 1;
  std::int64_t steps_ = 0;
};

using Offset = std::optional<std::int64_t>;

void lower(Offset& least, std::int64_t offset) {
  if (!least || offset < *least) least = offset;
}

/// One segment in both layouts.
class Differences {
 public:
  explicit Differences(const Pair& pair) : pair_(pair) {
    for (std::size_t i = 0; i < pair.a->axes.size(); ++i) add(pair.a->axes[i], pair.b_axis(i));
  }

  std::optional<std::int64_t> count_same() const {
    return Counter(terms_).count(static_cast<Wide>(pair_.b->base) - pair_.a->base);
  }

  /// The least offset, in a and in b, of an element that lies elsewhere in the other. If [0, 0,
  /// ...] lies alike, moving along one axis alone finds it: an element that has moved has an index
  /// that moves it, and that index alone lies no further on.
  Offset first() const {
    Offset least;
    if (pair_.a->base != pair_.b->base) {
      lower(least, std::min(pair_.a->base, pair_.b->base));
    } else if (step_) {
      lower(least, pair_.a->base + *step_);
    }
    return least;
  }

 private:
  void add(const Axis& a, const Axis& b) {
    if (const auto digits = common_digits(a, b)) {
      for (const Digit& digit : *digits) {
        terms_.push_back({static_cast<Wide>(digit.a_stride) - digit.b_stride, digit.extent, {}});
        if (digit.a_stride != digit.b_stride && digit.extent > 1) {
          lower(step_, std::min(digit.a_stride, digit.b_stride));
        }
      }
      return;
    }
    if (a.size > kMostSteps) {
      throw Error("layout: " + a.name + " of " + pair_.a->name + " has " + std::to_string(a.size) +
                  " elements and is split into parts that do not divide one another; it is too "
                  "long to be compared");
    }
    Term table;
    for (std::int64_t i = 0; i < a.size; ++i) {
      const std::int64_t in_a = a.offset_of(i);
      const std::int64_t in_b = b.offset_of(i);
      if (in_a != in_b) lower(step_, std::min(in_a, in_b));
      table.values.push_back(static_cast<Wide>(in_a) - in_b);
    }
    terms_.push_back(std::move(table));
  }

  const Pair& pair_;
  std::vector<Term> terms_;
  Offset step_;
};

void add_only_b(const Bound& a, const Bound& b, Comparison& comparison) {
  for (const Segment& segment : b.segments()) {
    if (segment.is_padding() || a.find(segment.name) != nullptr) continue;
    comparison.only_b.push_back(segment.name);
    lower(comparison.first, segment.base);
  }
}

}  // namespace

Comparison compare(const Bound& a, const Bound& b) {
  Comparison comparison;
  comparison.same = 0;
  for (const Segment& segment : a.segments()) {
    if (segment.is_padding()) continue;
    comparison.elements += segment.elements;
    const auto pair = pair_of(segment, b);
    if (!pair) {
      comparison.only_a.push_back(segment.name);
      lower(comparison.first, segment.base);
      continue;
    }
    const Differences differences(*pair);
    if (const Offset first = differences.first()) lower(comparison.first, *first);
    const auto same = differences.count_same();
    comparison.same = same && comparison.same ? Offset(*same + *comparison.same) : std::nullopt;
  }
  add_only_b(a, b, comparison);
  if (!comparison.first) return comparison;
  const Runs runs(a, b);
  Run run = runs.at(*comparison.first);
  run.length = 1;
  comparison.sentence = "offset " + std::to_string(run.offset) + ": the producer wrote " +
                        runs.a_text(run) + ", the reader takes it for " + runs.b_text(run);
  return comparison;
}

}  // namespace truefuse::layout
