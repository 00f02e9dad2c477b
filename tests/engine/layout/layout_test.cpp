#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <string>
#include <vector>

#include <truefuse/layout/layout.h>

#include "../error_of.h"

namespace truefuse::layout {
namespace {

using truefuse::testing::error_of;

const Sizes kSizes{{"H", 16}, {"G", 3}, {"K", 128}, {"V", 64}};

Bound bound(const std::string& text, const Sizes& sizes = kSizes) {
  return Layout::parse(text).bind(sizes);
}

std::string refusal(const std::string& text, const Sizes& sizes = kSizes) {
  return error_of([&] { bound(text, sizes); });
}

/// Where the caret of an error stands.
std::size_t place(const std::string& text) {
  const std::string error = refusal(text);
  return error.size() - error.rfind('\n') - std::string("\n  ^").size();
}

TEST(LayoutParse, InterleavedProjectionHasOneStridePerHead) {
  const Bound row = bound("H (q=K | k=K | v=G V | z=G V)");
  const std::int64_t block = 2 * 128 + 2 * 3 * 64;
  EXPECT_EQ(row.size(), 16 * block);
  const Segment& v = row.segment("v");
  EXPECT_EQ(v.base, 2 * 128);
  EXPECT_TRUE(v.is_affine());
  EXPECT_EQ(v.stride(0), block);
  EXPECT_EQ(v.stride(1), 64);
  EXPECT_EQ(v.stride(2), 1);
  EXPECT_EQ(row.offset("z", {5, 2, 7}), 5 * block + 2 * 128 + 3 * 64 + 2 * 64 + 7);
}

TEST(LayoutParse, AnElementHasTheSameNameHoweverItIsGrouped) {
  for (const char* text : {"H (q=K | v=G V)", "q=H K | v=H G V", "q=H*K | (v=H G*V)"}) {
    const Bound row = bound(text);
    const Segment& v = row.segment("v");
    ASSERT_EQ(v.axes.size(), 3U) << text;
    EXPECT_EQ(v.axes[0].name + v.axes[1].name + v.axes[2].name, "HGV");
  }
}

TEST(LayoutParse, AnAxisMayBeSplit) {
  const Bound state = bound("H K/4 V 4");
  const Segment& x = state.segment("x");
  EXPECT_EQ(state.size(), 16 * 128 * 64);
  EXPECT_FALSE(x.is_affine());
  EXPECT_EQ(x.axis("K").size, 128);
  EXPECT_EQ(x.axis("K").parts, (std::vector<Part>{{4, 32, 256}, {1, 4, 1}}));
  EXPECT_EQ(state.offset("x", {1, 13, 9}), 128 * 64 + 3 * 256 + 9 * 4 + 1);
  EXPECT_EQ(bound("H K/4 V K%4").offset("x", {1, 13, 9}), state.offset("x", {1, 13, 9}));
  EXPECT_EQ(
      bound("H K/n V n", {{"H", 16}, {"K", 128}, {"V", 64}, {"n", 4}}).offset("x", {1, 13, 9}),
      state.offset("x", {1, 13, 9}));
  EXPECT_NE(error_of([&] { x.stride(1); }).find("32 at stride 256, 4 at stride 1"),
            std::string::npos);
}

TEST(LayoutParse, PartsThatFollowOnAreOneStride) {
  EXPECT_TRUE(bound("H K/4 4").segment("x").is_affine());
  EXPECT_TRUE(bound("K/32 K/4%8 4 V").segment("x").is_affine());
  EXPECT_FALSE(bound("K%4 K/4").segment("x").is_affine());
}

TEST(LayoutParse, SizesAreProductsAndQuotients) {
  const Sizes sizes{{"HV", 48}, {"H", 16}, {"V", 8}};
  const Bound row = bound("H (b=G:HV/H | a=G:HV/H) | n:HV*2/H V", sizes);
  EXPECT_EQ(row.segment("b").axis("G").size, 3);
  EXPECT_EQ(row.segment("x").axis("n").size, 6);
  EXPECT_EQ(row.size(), 96 + 48);
}

TEST(LayoutParse, OneOfSomethingIsNoAxis) {
  const Bound pairs = bound("K (gate=1 | up=1)");
  EXPECT_EQ(pairs.segment("up").axes.size(), 1U);
  EXPECT_EQ(pairs.offset("up", {5}), 11);
  EXPECT_EQ(bound("one=1 | K").text(bound("one=1 | K").element_at(0)), "one");
  EXPECT_EQ(place("one=1* | K"), 7U);
}

TEST(LayoutParse, StridesLeaveGaps) {
  const Bound pool =
      bound("slot@S token@100 (q=V | k=V)", {{"slot", 4}, {"S", 1000}, {"token", 3}, {"V", 8}});
  EXPECT_EQ(pool.size(), 4000);
  EXPECT_EQ(pool.offset("k", {2, 1, 5}), 2 * 1000 + 100 + 8 + 5);
  EXPECT_EQ(pool.text(pool.element_at(2116)), "padding");
  EXPECT_EQ(pool.text(pool.element_at(2113)), "k[2,1,5]");
}

TEST(LayoutParse, ErrorsPointAtTheCharacter) {
  EXPECT_EQ(place(""), 0U);
  EXPECT_EQ(place("H (q=K | k=K"), 12U);
  EXPECT_EQ(place("H (q=K | | k=K)"), 9U);
  EXPECT_EQ(place("q=K | q=H"), 6U);
  EXPECT_EQ(place("H K H"), 4U);
  EXPECT_EQ(place("H (q=H K)"), 5U);
  EXPECT_EQ(place("H K/4 V"), 2U);
  EXPECT_EQ(place("H V K%4"), 4U);
  EXPECT_EQ(place("K/4 V/4 4"), 8U);
  EXPECT_EQ(place("K/3 V 3"), 0U);
  EXPECT_EQ(place("q=K 0"), 4U);
  EXPECT_EQ(place("H (q=K) V"), 8U);
  EXPECT_EQ(place("H@100 K"), 2U);
  EXPECT_EQ(place("H missing"), 2U);
  EXPECT_EQ(place("q=(K)"), 2U);
  EXPECT_EQ(place("_ | q=K"), 0U);
  EXPECT_EQ(place("128/4 V"), 3U);
}

TEST(LayoutParse, ErrorsSayWhatIsWanted) {
  EXPECT_EQ(refusal("H missing"), "layout: the size missing is not given.\n  H missing\n    ^");
  EXPECT_EQ(refusal("H (q=K"),
            "layout: expected a size, '|' or ')', found the end.\n  H (q=K\n        ^");
  EXPECT_NE(refusal("H K/4 V").find("NAME:K/n"), std::string::npos);
  EXPECT_NE(refusal("K/4 V/4 4").find("K or of V"), std::string::npos);
}

TEST(LayoutParse, SizesThatDoNotFitAreRefused) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(refusal("a b", {{"a", kLargest}, {"b", 2}}).find("63 bits"), std::string::npos);
  EXPECT_NE(refusal("p=a | q=a", {{"a", kLargest}}).find("63 bits"), std::string::npos);
  EXPECT_NE(refusal("n:a*a", {{"a", kLargest}}).find("63 bits"), std::string::npos);
  EXPECT_NE(refusal("a K%b K/b", {{"a", 1}, {"b", kLargest}, {"K", 4}}).find("not a multiple"),
            std::string::npos);
  EXPECT_NE(refusal("99999999999999999999").find("64 bits"), std::string::npos);
  EXPECT_NE(refusal("a", {{"a", 0}}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal("a", {{"a", -3}}).find("at least 1"), std::string::npos);
  const Bound largest = bound("a", {{"a", kLargest}});
  EXPECT_EQ(largest.element_at(kLargest - 1).index[0], kLargest - 1);
}

TEST(LayoutParse, HostileTextsAreRefused) {
  EXPECT_NE(refusal(std::string(1000, '(')).find("64 deep"), std::string::npos);
  EXPECT_NE(refusal(std::string(100000, '(')).find("at most 4096"), std::string::npos);
  std::string pairs;
  for (int i = 0; i < 100; ++i) pairs += "2 ";
  EXPECT_NE(refusal(pairs).find("more than 64 sizes"), std::string::npos);
  EXPECT_NE(refusal(std::string("q=K\0", 4)).find("expected a size"), std::string::npos);
}

TEST(LayoutBound, WhatDoesNotExistIsRefused) {
  const Bound row = bound("q=H K | _=5");
  EXPECT_EQ(error_of([&] {
              row.offset("q", {16, 0});
            }),
            "layout: q[16,0] does not exist; the axes are q[H=16, K=128]");
  EXPECT_NE(error_of([&] { row.offset("q", {1}); }).find("1 indices"), std::string::npos);
  EXPECT_NE(error_of([&] { row.offset("k", {0, 0}); }).find("it has q"), std::string::npos);
  EXPECT_NE(error_of([&] { row.offset("_", {0}); }).find("no segment _"), std::string::npos);
  EXPECT_NE(error_of([&] { row.element_at(2053); }).find("has 2053 elements"), std::string::npos);
  EXPECT_NE(error_of([&] { row.element_at(-1); }).find("-1 is outside"), std::string::npos);
}

TEST(LayoutBound, SizesThatAreNotMentionedAreLeftOut) {
  EXPECT_EQ(bound("H (b=G | a=G)").text(), "H (b=G | a=G) with G=3, H=16");
  EXPECT_EQ(Layout::parse("G (q=K | k=H K)").names(), (std::vector<std::string>{"G", "K", "H"}));
}

TEST(LayoutSizes, AreReadFromText) {
  EXPECT_EQ(parse_sizes("H=16 K=128,V=4"), (Sizes{{"H", 16}, {"K", 128}, {"V", 4}}));
  EXPECT_NE(error_of([] { parse_sizes("H=16 H=3"); }).find("given twice"), std::string::npos);
  EXPECT_NE(error_of([] { parse_sizes("H="); }).find("a whole number"), std::string::npos);
  EXPECT_NE(error_of([] { parse_sizes("H=0"); }).find("at least 1"), std::string::npos);
}

}  // namespace
}  // namespace truefuse::layout
