#include <algorithm>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <truefuse/layout/convert.h>
#include <truefuse/layout/emit.h>
#include <truefuse/layout/named.h>
#include <truefuse/layout/share.h>

#include "../error_of.h"

namespace truefuse::layout {
namespace {

using truefuse::testing::error_of;

const Sizes kSizes{{"H", 4}, {"G", 3}, {"K", 8}, {"V", 8}, {"L", 3}, {"C", 64}};

Bound bound(const std::string& text) { return Layout::parse(text).bind(kSizes); }

Conversion convert(const std::string& from, const std::string& to) {
  return layout::convert(bound(from), bound(to));
}

// What the expressions compute is tested with PyTorch, in tests/python/test_layouts.py.
TEST(LayoutConvert, SlicesAreViews) {
  const Conversion same = convert("q=H K | k=H K", "(q=H*K | k=H K)");
  EXPECT_EQ(same.kind, Conversion::Kind::nothing);
  EXPECT_EQ(same.expression, "x");
  const Conversion slice = convert("q=H K | k=H K | z=V", "k=H K");
  EXPECT_EQ(slice.kind, Conversion::Kind::view);
  EXPECT_EQ(slice.expression, "x[..., 32:64]");
  EXPECT_EQ(slice.dropped, (std::vector<std::string>{"q", "z"}));
}

TEST(LayoutConvert, CountsWhatMoves) {
  const Conversion once = convert("q=H K | v=H G V", "H (q=K | v=G V)");
  EXPECT_EQ(once.kind, Conversion::Kind::copy);
  EXPECT_EQ(once.expression_moves, 2 * (4 * 8 + 4 * 3 * 8));
  // Back again each segment is first made contiguous, then all are joined.
  const Conversion twice = convert("H (q=K | v=G V)", "q=H K | v=H G V");
  EXPECT_EQ(twice.kind, Conversion::Kind::gather);
  EXPECT_EQ(twice.expression_moves, 2 * once.expression_moves);
  EXPECT_EQ(twice.gather_moves, once.expression_moves);
}

TEST(LayoutConvert, WhatIsMissingIsRefused) {
  EXPECT_NE(error_of([] { convert("q=H K", "q=H K | k=H K"); }).find("holds no k"),
            std::string::npos);
  EXPECT_EQ(convert("q=H K", "q=H K | _=4").expression, "") << "zeros would have to be made";
}

TEST(LayoutShare, IsCutAlongALogicalAxis) {
  const Layout interleaved = Layout::parse("H (b=G | a=G)");
  const Share one = share(interleaved, kSizes, "H", 1, 2);
  EXPECT_EQ(one.local.size(), 12);
  EXPECT_EQ(one.first, 2);
  EXPECT_EQ(stretches(one, 10), (std::vector<Stretch>{{12, 0, 12}}));
  // Flat, the same heads lie in two places; the second half of the row would be all of a.
  const Share flat = share(Layout::parse("b=H G | a=H G"), kSizes, "H", 1, 2);
  EXPECT_EQ(stretches(flat, 10), (std::vector<Stretch>{{6, 0, 6}, {18, 6, 6}}));
  EXPECT_EQ(stretches(flat, 1).size(), 1U);
}

TEST(LayoutShare, RanksTogetherHoldEveryElementOnce) {
  const char* texts[] = {"H (q=K | k=K | v=G V)", "q=H K | k=H K | v=H G V | _=5", "H G K/4 V 4",
                         "G H K/4 V 4"};
  for (const char* text : texts) {
    for (const char* axis : {"H", "K"}) {
      const Layout layout = Layout::parse(text);
      const Bound whole = layout.bind(kSizes);
      std::vector<int> owners(static_cast<std::size_t>(whole.size()), 0);
      for (std::int64_t rank = 0; rank < 2; ++rank) {
        const Share part = share(layout, kSizes, axis, rank, 2);
        std::vector<std::int64_t> map(static_cast<std::size_t>(part.local.size()));
        index_map(part, map.data());
        for (std::size_t i = 0; i < map.size(); ++i) {
          const Element local = part.local.element_at(static_cast<std::int64_t>(i));
          const Segment& segment = part.local.segments()[local.segment];
          if (map[i] < 0) {
            EXPECT_TRUE(segment.is_padding());
            continue;
          }
          ++owners[static_cast<std::size_t>(map[i])];
          Element global = whole.element_at(map[i]);
          ASSERT_EQ(whole.segments()[global.segment].name, segment.name);
          for (std::size_t k = 0; k < segment.axes.size(); ++k) {
            if (segment.axes[k].name == axis) global.index[k] -= part.first;
          }
          ASSERT_EQ(global.index, local.index) << text << " along " << axis;
        }
        std::int64_t length = 0;
        for (const Stretch& stretch : stretches(part, 10000)) {
          for (std::int64_t i = 0; i < stretch.length; ++i, ++length) {
            ASSERT_EQ(map[static_cast<std::size_t>(stretch.local + i)], stretch.global + i);
          }
        }
        EXPECT_EQ(length, std::count_if(map.begin(), map.end(), [](auto i) { return i >= 0; }));
        for (const std::string& name : part.replicated) {
          EXPECT_EQ(whole.segment(name).elements, part.local.segment(name).elements);
        }
      }
      for (std::int64_t i = 0; i < whole.size(); ++i) {
        const Segment& segment = whole.segments()[whole.element_at(i).segment];
        if (segment.is_padding()) continue;
        bool is_shared = false;
        for (const Axis& held : segment.axes) is_shared |= held.name == axis;
        ASSERT_EQ(owners[static_cast<std::size_t>(i)], is_shared ? 1 : 2);
      }
    }
  }
}

TEST(LayoutShare, BadRanksAndAxesAreRefused) {
  const Layout layout = Layout::parse("H K/4 V 4");
  EXPECT_NE(error_of([&] { share(layout, kSizes, "H", 2, 2); }).find("does not exist"),
            std::string::npos);
  EXPECT_NE(error_of([&] { share(layout, kSizes, "G", 0, 2); }).find("the axes are H, K, V"),
            std::string::npos);
  EXPECT_NE(error_of([&] { share(layout, kSizes, "H", 0, 3); }).find("cannot be shared"),
            std::string::npos);
  EXPECT_NE(error_of([&] { share(layout, kSizes, "K", 0, 4); }).find("K is 2"), std::string::npos);
}

TEST(LayoutNamed, EveryOneCanBeBound) {
  for (const Named& layout : named()) {
    EXPECT_GT(named_or_parsed(layout.name).bind(kSizes).size(), 0) << layout.name;
    EXPECT_FALSE(layout.provenance.empty());
  }
  EXPECT_EQ(named_or_parsed("H K").text(), "H K");
  EXPECT_NE(error_of([] { named_or_parsed("qwen3-next/kqvz"); }).find("qwen3-next/qkvz"),
            std::string::npos);
  EXPECT_NE(error_of([] { named_or_parsed("H ("); }).find('^'), std::string::npos);
}

TEST(LayoutEmit, WritesOneFunctionPerSegment) {
  EXPECT_EQ(emit(bound("q=H K | _=2 | V K/4 4 K2:2"), "python"),
            "# Offsets in elements: q=H K | _=2 | V K/4 4 K2:2 with H=4, K=8, V=8\n"
            "\n\ndef q_offset(h, k):\n    return h * 8 + k\n"
            "\n\ndef x_offset(v, k, i_K2):\n    return 34 + v * 16 + k * 2 + i_K2\n");
  EXPECT_NE(error_of([] { emit(bound("H"), "fortran"); }).find("triton, hip, python"),
            std::string::npos);
}

}  // namespace
}  // namespace truefuse::layout
