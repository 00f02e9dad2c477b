#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <truefuse/layout/layout.h>
#include <truefuse/layout/pair.h>

namespace truefuse::layout {

/// Two layouts of the same memory: `a` as the producer wrote it, `b` as the reader takes it.
struct Comparison {
  std::int64_t elements = 0;  ///< Of a, padding not counted.
  /// Offsets at which both have the same element. Nothing if counting them would take too long,
  /// which only happens where both layouts permute many large axes.
  std::optional<std::int64_t> same;
  /// The first offset at which one has an element that the other has not.
  std::optional<std::int64_t> first;
  /// "offset 256: the producer wrote k[1,0], the reader takes it for q[2,0]"; empty if there is
  /// none.
  std::string sentence;
  std::vector<std::string> only_a, only_b;  ///< Segments that the other lacks.

  bool is_same() const { return !first; }
};

/// Takes no longer for huge sizes. Throws Error if a segment has other axes in the other layout.
Comparison compare(const Bound& a, const Bound& b);

/// Consecutive offsets at which either both layouts have the same elements, or nowhere do.
struct Run {
  std::int64_t offset = 0, length = 0;
  bool same = false;
  std::optional<Element> a, b;  ///< At `offset`; nothing past the end of a layout.
};

/// Runs from offset 0 to the end of the larger layout, in order. A run costs a few divisions
/// however long it is; neighbours are not joined where another block begins.
class Runs {
 public:
  /// Keeps references to both. Throws as compare does.
  Runs(const Bound& a, const Bound& b);

  /// False at the end.
  bool next(Run& run);
  /// The run that begins at an offset.
  Run at(std::int64_t offset) const;

  /// "q[0,0…127]": the elements of a run in a, or in b. Where the order of the axes differs, b's
  /// indices are in a's order and axes are named.
  std::string a_text(const Run& run) const;
  std::string b_text(const Run& run) const;

 private:
  struct Level {
    std::size_t axis;  // In the order of a's segment, also for the paired segment of b.
    Part part;

    bool is_alike(const Level& other) const {
      return axis == other.axis && part.divisor == other.part.divisor &&
             part.extent == other.part.extent;
    }
  };
  using Levels = std::vector<Level>;
  struct Side {
    const Bound* bound;
    std::vector<Levels> levels;      // Per segment, innermost first, extents over 1.
    std::vector<std::size_t> dense;  // Per segment, how many of its levels are dense.
  };

  static Side side_of(const Bound& bound);
  static std::int64_t block(const Levels& levels, std::size_t count);
  static std::int64_t position(const Levels& levels, std::size_t count,
                               const std::vector<std::int64_t>& index);
  static std::int64_t rest_of_block(const Levels& levels, std::size_t count,
                                    const std::vector<std::int64_t>& index);
  void meet(const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b, Run& run) const;

  Side a_, b_;
  std::vector<std::optional<Pair>> pairs_;  // Per segment of a.
  std::vector<const Pair*> pairs_of_b_;     // Per segment of b; null if a lacks it.
  std::int64_t end_ = 0;
  std::int64_t offset_ = 0;
};

/// "q[0,0…127]" or "q[0,64]…q[2,63]": the elements at [offset, offset + length), which are of one
/// segment and fill their block row by row.
std::string range_text(const Bound& bound, std::int64_t offset, std::int64_t length);

}  // namespace truefuse::layout
