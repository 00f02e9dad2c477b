#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <truefuse/layout/layout.h>

namespace truefuse::layout::testing {

/// Writes random layouts of one random set of segments: axes in any order, grouped and interleaved,
/// split into parts, with padding and with strides that leave gaps.
class RandomLayouts {
 public:
  explicit RandomLayouts(unsigned seed) : random_(seed) {
    for (const char* name : {"A", "B", "C", "D"}) sizes_[name] = kSizes[below(std::size(kSizes))];
    const std::size_t count = 1 + below(4);
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<std::string> axes;
      for (const auto& [name, size] : sizes_) {
        if (below(2) == 0) axes.push_back(name);
      }
      if (axes.empty()) axes.emplace_back("A");
      segments_.push_back({std::string(1, static_cast<char>('p' + i)), axes});
    }
  }

  const Sizes& sizes() const { return sizes_; }

  std::string text(bool with_padding) {
    with_padding_ = with_padding;
    splits_.clear();
    for (const auto& [name, size] : sizes_) splits_[name] = split(name, size);
    std::vector<Open> open;
    for (const auto& [name, axes] : segments_) {
      Open segment{name, {}};
      for (const std::string& axis : axes) {
        for (const Factor& factor : splits_[axis]) segment.rest.push_back(factor);
      }
      open.push_back(segment);
    }
    return write(open).text;
  }

  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  struct Factor {
    std::string text;
    std::int64_t extent;
    bool operator==(const Factor& other) const { return text == other.text; }
  };
  struct Open {
    std::string name;
    std::vector<Factor> rest;
  };
  struct Written {
    std::string text;
    std::int64_t size;
  };
  static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12};

  std::vector<Factor> split(const std::string& name, std::int64_t size) {
    std::vector<std::int64_t> cuts{1};
    for (std::int64_t cut = 2; cut < size; ++cut) {
      if (size % cut == 0 && cut % cuts.back() == 0 && below(4) == 0) cuts.push_back(cut);
    }
    if (cuts.size() == 1) return {{name, size}};
    cuts.push_back(size);
    std::vector<Factor> factors;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      std::string text = name;
      if (i > 0) text += '/' + std::to_string(cuts[i]);
      if (i + 2 < cuts.size()) text += '%' + std::to_string(cuts[i + 1] / cuts[i]);
      factors.push_back({text, cuts[i + 1] / cuts[i]});
    }
    return factors;
  }

  Written under(const Factor& factor, const Written& inside) {
    std::string text = factor.text;
    std::int64_t stride = inside.size;
    if (with_padding_ && below(6) == 0) {
      stride += static_cast<std::int64_t>(below(3));
      text += '@' + std::to_string(stride);
    }
    return {text + ' ' + inside.text, stride * factor.extent};
  }

  Written write(std::vector<Open> open) {
    if (open.size() == 1) return write_one(open[0]);
    std::vector<Factor> common;
    for (const Factor& factor : open[0].rest) {
      bool is_common = true;
      for (const Open& segment : open) {
        is_common &= segment.rest.size() > 1 && contains(segment.rest, factor);
      }
      if (is_common) common.push_back(factor);
    }
    if (!common.empty() && below(3) != 0) {
      const Factor factor = common[below(common.size())];
      for (Open& segment : open) std::erase(segment.rest, factor);
      Written inside = write(open);
      inside.text = '(' + inside.text + ')';
      return under(factor, inside);
    }
    std::shuffle(open.begin(), open.end(), random_);
    const std::size_t cut = 1 + below(open.size() - 1);
    const auto middle = open.begin() + static_cast<std::ptrdiff_t>(cut);
    Written left = write({open.begin(), middle});
    const Written right = write({middle, open.end()});
    if (below(3) == 0) left.text = '(' + left.text + ')';
    std::string between = " | ";
    if (with_padding_ && below(3) == 0) {
      const std::int64_t padding = 1 + static_cast<std::int64_t>(below(4));
      between = " | _=" + std::to_string(padding) + " | ";
      left.size += padding;
    }
    return {left.text + between + right.text, left.size + right.size};
  }

  Written write_one(Open segment) {
    std::shuffle(segment.rest.begin(), segment.rest.end(), random_);
    Written written{"", 1};
    for (std::size_t i = segment.rest.size(); i-- > 0;) written = under(segment.rest[i], written);
    return {segment.name + '=' + written.text, written.size};
  }

  static bool contains(const std::vector<Factor>& factors, const Factor& factor) {
    return std::find(factors.begin(), factors.end(), factor) != factors.end();
  }

  std::mt19937 random_;
  Sizes sizes_;
  std::vector<std::pair<std::string, std::vector<std::string>>> segments_;
  std::map<std::string, std::vector<Factor>> splits_;
  bool with_padding_ = false;
};

}  // namespace truefuse::layout::testing
