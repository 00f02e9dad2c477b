#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <truefuse/core/error.h>
#include <truefuse/layout/compare.h>
#include <truefuse/layout/convert.h>
#include <truefuse/layout/layout.h>

#include "random_layout.h"

namespace truefuse::layout {
namespace {

using testing::RandomLayouts;

constexpr unsigned kSeeds = 1000;

/// Who is where: a name and the indices by axis name; empty for padding.
using Name = std::pair<std::string, std::map<std::string, std::int64_t>>;

Name name_at(const Bound& bound, std::int64_t offset) {
  if (offset >= bound.size()) return {};
  const Element element = bound.element_at(offset);
  const Segment& segment = bound.segments()[element.segment];
  if (segment.is_padding()) return {};
  Name name{segment.name, {}};
  for (std::size_t i = 0; i < segment.axes.size(); ++i) {
    name.second[segment.axes[i].name] = element.index[i];
  }
  return name;
}

TEST(LayoutProperty, OffsetAndElementAreInverse) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RandomLayouts random(seed);
    const std::string text = random.text(true);
    SCOPED_TRACE(text);
    const Bound bound = Layout::parse(text).bind(random.sizes());
    std::int64_t elements = 0;
    for (const Segment& segment : bound.segments()) elements += segment.elements;
    ASSERT_EQ(elements, bound.size());
    for (std::int64_t offset = 0; offset < bound.size(); ++offset) {
      const Element element = bound.element_at(offset);
      ASSERT_EQ(bound.segments()[element.segment].offset(element.index), offset);
    }
  }
}

TEST(LayoutProperty, AxesKeepTheirSizes) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RandomLayouts random(seed);
    const Bound bound = Layout::parse(random.text(true)).bind(random.sizes());
    for (const Segment& segment : bound.segments()) {
      if (segment.is_padding()) continue;
      for (const Axis& axis : segment.axes) ASSERT_EQ(axis.size, random.sizes().at(axis.name));
    }
  }
}

TEST(LayoutProperty, CompareAgreesWithLookingAtEveryOffset) {
  int different = 0;
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RandomLayouts random(seed);
    const std::string a_text = random.text(seed % 2 == 0);
    const std::string b_text = seed % 7 == 0 ? a_text : random.text(seed % 2 == 0);
    SCOPED_TRACE(a_text + "   against   " + b_text);
    const Bound a = Layout::parse(a_text).bind(random.sizes());
    const Bound b = Layout::parse(b_text).bind(random.sizes());
    std::optional<std::int64_t> first;
    std::int64_t same = 0;
    std::vector<bool> is_same;
    for (std::int64_t offset = 0; offset < std::max(a.size(), b.size()); ++offset) {
      const Name in_a = name_at(a, offset);
      is_same.push_back(in_a == name_at(b, offset));
      if (is_same.back() && !in_a.first.empty()) ++same;
      if (!is_same.back() && !first) first = offset;
    }
    const Comparison comparison = compare(a, b);
    ASSERT_EQ(comparison.first, first);
    ASSERT_EQ(comparison.same, same);
    ASSERT_EQ(comparison.is_same(), comparison.sentence.empty());
    Runs runs(a, b);
    std::int64_t next = 0;
    for (layout::Run run; runs.next(run); next += run.length) {
      ASSERT_EQ(run.offset, next);
      ASSERT_GT(run.length, 0);
      for (std::int64_t i = 0; i < run.length; ++i) {
        ASSERT_EQ(is_same[static_cast<std::size_t>(next + i)], run.same) << next + i;
      }
    }
    ASSERT_EQ(next, std::max(a.size(), b.size()));
    different += first.has_value();
  }
  EXPECT_GT(different, 300);
}

TEST(LayoutProperty, TheIndexMapThereAndBackIsTheIdentity) {
  for (unsigned seed = 0; seed < kSeeds; ++seed) {
    RandomLayouts random(seed);
    const Bound a = Layout::parse(random.text(true)).bind(random.sizes());
    const Bound b = Layout::parse(random.text(true)).bind(random.sizes());
    std::vector<std::int64_t> there(static_cast<std::size_t>(b.size()));
    std::vector<std::int64_t> back(static_cast<std::size_t>(a.size()));
    index_map(a, b, there.data());
    index_map(b, a, back.data());
    for (std::size_t i = 0; i < there.size(); ++i) {
      if (there[i] < 0) {
        ASSERT_TRUE(name_at(b, static_cast<std::int64_t>(i)).first.empty());
        continue;
      }
      ASSERT_EQ(name_at(a, there[i]), name_at(b, static_cast<std::int64_t>(i)));
      ASSERT_EQ(back[static_cast<std::size_t>(there[i])], static_cast<std::int64_t>(i));
    }
  }
}

TEST(LayoutProperty, EveryTextEndsInALayoutOrAnError) {
  std::mt19937 random(1);
  const std::string alphabet = "HKGV qkv=|()/%@*:_0149,\n\t-";
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    if (i % 2 == 0) {
      for (std::size_t n = random() % 12; n > 0; --n) text += alphabet[random() % alphabet.size()];
    } else {
      text = "H (q=K | k=K | v=G V | _=4) | s=H@64 K/4 V 4";
      for (std::size_t n = 1 + random() % 3; n > 0; --n) {
        text[random() % text.size()] = alphabet[random() % alphabet.size()];
      }
    }
    try {
      const Bound bound = Layout::parse(text).bind({{"H", 2}, {"K", 8}, {"G", 3}, {"V", 4}});
      ++parsed;
      for (std::int64_t offset = 0; offset < std::min<std::int64_t>(bound.size(), 50); ++offset) {
        const Element element = bound.element_at(offset);
        ASSERT_EQ(bound.segments()[element.segment].offset(element.index), offset) << text;
      }
    } catch (const Error& error) {
      ASSERT_NE(std::string(error.what()).find('^'), std::string::npos) << text;
    }
  }
  EXPECT_GT(parsed, 1000);
}

}  // namespace
}  // namespace truefuse::layout
