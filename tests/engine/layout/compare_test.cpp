#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <truefuse/layout/compare.h>

#include "../error_of.h"

namespace truefuse::layout {
namespace {

using truefuse::testing::error_of;

const Sizes kSizes{{"H", 16}, {"G", 3}, {"K", 128}, {"V", 128}, {"HV", 48}};
constexpr const char* kInterleaved = "H (q=K | k=K | v=G V | z=G V)";
constexpr const char* kFlat = "q=H K | k=H K | v=H G V | z=H G V";

Bound bound(const std::string& text, const Sizes& sizes = kSizes) {
  return Layout::parse(text).bind(sizes);
}

TEST(LayoutCompare, NamesTheFirstDifferenceInWords) {
  const Bound a = bound(kInterleaved);
  const Bound b = bound(kFlat);
  EXPECT_EQ(compare(a, b).sentence,
            "offset 128: the producer wrote k[0,0], the reader takes it for q[1,0]");
  EXPECT_EQ(compare(a, a).sentence, "");
  // q[0], v[6] and z[15] lie alike in both: 128 + 3 * 128 + 3 * 128 elements.
  EXPECT_EQ(compare(a, b).same, 896);
}

TEST(LayoutCompare, ASegmentThatIsMissingIsADifference) {
  const Comparison comparison = compare(bound("q=K | k=K"), bound("q=K | z=V"));
  EXPECT_EQ(comparison.first, 128);
  EXPECT_EQ(comparison.only_a, std::vector<std::string>{"k"});
  EXPECT_EQ(comparison.only_b, std::vector<std::string>{"z"});
  EXPECT_EQ(compare(bound("q=K"), bound("q=K | z=V")).sentence,
            "offset 128: the producer wrote nothing, the reader takes it for z[0]");
}

TEST(LayoutCompare, AxesAreNamedWhereTheirOrderDiffers) {
  EXPECT_EQ(compare(bound("H V K"), bound("H K V")).sentence,
            "offset 1: the producer wrote x[H=0,V=0,K=1], the reader takes it for x[H=0,V=1,K=0]");
}

TEST(LayoutCompare, OtherAxesAreRefused) {
  EXPECT_NE(error_of([] {
              compare(bound("v=H G V"), bound("v=HV V"));
            }).find("v[H=16, G=3, V=128] in the one and v[HV=48, V=128] in the other"),
            std::string::npos);
}

TEST(LayoutCompare, HugeLayoutsTakeNoLonger) {
  const Sizes huge{{"H", 1LL << 20}, {"G", 3}, {"K", 1LL << 35}, {"V", 1 << 10}};
  const Bound a = bound("H (q=K | v=G V)", huge);
  const Bound b = bound("q=H K | v=H G V", huge);
  const Comparison comparison = compare(a, b);
  EXPECT_EQ(comparison.first, 1LL << 35);
  EXPECT_EQ(comparison.same, (1LL << 35) + 3 * 1024);  // q[0] and the last v.
  Runs runs(a, b);
  layout::Run run;
  ASSERT_TRUE(runs.next(run));
  EXPECT_TRUE(run.same);
  EXPECT_EQ(run.length, 1LL << 35);
  // The transposed square agrees on its diagonal.
  const Sizes square{{"K", 1 << 30}, {"V", 1 << 30}};
  EXPECT_EQ(compare(bound("K V", square), bound("V K", square)).same, 1 << 30);
}

TEST(LayoutCompare, SplitsThatDoNotDivideOneAnotherAreCompared) {
  const Sizes sizes{{"K", 12}, {"V", 2}};
  const Bound a = bound("K/4 V 4", sizes);
  const Bound b = bound("K/6 V 6", sizes);
  std::int64_t same = 0;
  for (std::int64_t offset = 0; offset < a.size(); ++offset) {
    same += a.element_at(offset) == b.element_at(offset);
  }
  EXPECT_EQ(compare(a, b).same, same);
  EXPECT_EQ(compare(a, b).first, 4);
  const Sizes long_axis{{"K", 12LL << 40}, {"V", 2}};
  EXPECT_NE(error_of([&] {
              compare(bound("K/4 V 4", long_axis), bound("K/6 V 6", long_axis));
            }).find("too long to be compared"),
            std::string::npos);
}

TEST(LayoutRuns, TextsAreBoxesOrFromTo) {
  const Bound row = bound("q=H K | v=H G V");
  EXPECT_EQ(range_text(row, 0, 128), "q[0,0…127]");
  EXPECT_EQ(range_text(row, 0, 256), "q[0…1,0…127]");
  EXPECT_EQ(range_text(row, 64, 128), "q[0,64]…q[1,63]");
  EXPECT_EQ(range_text(row, 5, 1), "q[0,5]");
}

}  // namespace
}  // namespace truefuse::layout
