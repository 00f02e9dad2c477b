// Layouts of rows: what a kernel gets as constants, found again by the formulas of the two models.

#include <gtest/gtest.h>

#include <truefuse/layout/layout.h>
#include <truefuse/operators/gdn_decode/row_layouts.h>

#include "../../engine/error_of.h"
#include "gdn_testing.h"

namespace truefuse::gdn_decode {
namespace {

using gdn_testing::kFlat;
using gdn_testing::kInterleaved;

const RowLayouts& read(std::string_view qkvz, std::string_view ba, const HeadSizes& sizes) {
  return row_layouts({qkvz, ba, std::nullopt, std::nullopt}, sizes);
}

std::int64_t at(const Place& place, std::int64_t h, std::int64_t g, std::int64_t e) {
  return place.base + h * place.head + g * place.group + e * place.inner;
}

TEST(GdnRowLayouts, CanBeNamed) {
  const HeadSizes s{3, 2, 4, 8};
  const RowLayouts& named = read("qwen3-next/qkvz", "qwen3.5/ba", s);
  const RowLayouts& written = read(kInterleaved, "b=H G | a=H G", s);
  EXPECT_EQ(named.columns, written.columns);
  EXPECT_EQ(at(named.v, 2, 1, 5), at(written.v, 2, 1, 5));
  EXPECT_EQ(at(named.a, 2, 1, 0), at(written.a, 2, 1, 0));
  EXPECT_EQ(&read("qwen3-next/qkvz", "qwen3.5/ba", s), &named);
  EXPECT_NE(testing::error_of([&] { read("qwen3-next/kqvz", "qwen3.5/ba", s); })
                .find("qkvz_layout: layout: there is no layout named qwen3-next/kqvz; there are "
                      "qwen3-next/qkvz, "),
            std::string::npos);
}

TEST(GdnRowLayouts, AreTheTwoModelsFormulas) {
  for (const std::int64_t G : {1, 2, 3, 4, 8}) {
    const HeadSizes s{3, G, 4, 8};
    const std::int64_t P = 2 * s.K + 2 * G * s.V;
    const RowLayouts& woven = read(kInterleaved, "H (b=G | a=G)", s);
    const RowLayouts& flat = read(kFlat, "b=H G | a=H G", s);
    EXPECT_EQ(woven.columns[kRowQkvz], s.H * P);
    EXPECT_EQ(flat.columns[kRowQkvz], s.H * P);
    for (std::int64_t h = 0; h < s.H; ++h) {
      EXPECT_EQ(at(woven.q, h, 0, 3), h * P + 3);
      EXPECT_EQ(at(woven.k, h, 0, 3), h * P + s.K + 3);
      EXPECT_EQ(at(flat.k, h, 0, 3), s.H * s.K + h * s.K + 3);
      for (std::int64_t g = 0; g < G; ++g) {
        const std::int64_t n = h * G + g;
        EXPECT_EQ(at(woven.v, h, g, 5), h * P + 2 * s.K + g * s.V + 5);
        EXPECT_EQ(at(*woven.z, h, g, 5), h * P + 2 * s.K + G * s.V + g * s.V + 5);
        EXPECT_EQ(at(woven.b, h, g, 0), 2 * G * h + g);
        EXPECT_EQ(at(woven.a, h, g, 0), 2 * G * h + G + g);
        EXPECT_EQ(at(flat.v, h, g, 5), 2 * s.H * s.K + n * s.V + 5);
        EXPECT_EQ(at(*flat.z, h, g, 5), 2 * s.H * s.K + s.H * G * s.V + n * s.V + 5);
        EXPECT_EQ(at(flat.a, h, g, 0), s.H * G + n);
      }
    }
  }
}

TEST(GdnRowLayouts, ValueHeadsMayBeOneAxis) {
  const HeadSizes s{2, 3, 4, 8};
  const RowLayouts& split = read(kFlat, "b=H G | a=H G", s);
  const RowLayouts& joined = read("q=H K | k=H K | v=HV V | z=HV V", "b=HV | a=HV", s);
  for (std::int64_t g = 0; g < 3; ++g) {
    EXPECT_EQ(at(split.v, 1, g, 2), at(joined.v, 1, g, 2));
    EXPECT_EQ(at(split.b, 1, g, 0), at(joined.b, 1, g, 0));
  }
}

TEST(GdnRowLayouts, AreReadOnceAndKeptApart) {
  const HeadSizes two{2, 2, 4, 8}, three{2, 3, 4, 8};
  const RowLayouts* first = &read(kFlat, "b=HV | a=HV", two);
  EXPECT_NE(&read(kFlat, "b=HV | a=HV", three), first);
  EXPECT_NE(&read(kFlat, "a=HV | b=HV", two), first);
  const std::string copy(kFlat);
  EXPECT_EQ(&read(copy, "b=HV | a=HV", two), first);
}

}  // namespace
}  // namespace truefuse::gdn_decode
