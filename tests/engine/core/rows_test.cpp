#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <truefuse/core/rows.h>

namespace truefuse {
namespace {

TensorView view(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  return {DType::f32, {}, sizes, strides, nullptr};
}

/// Offset of a row by its definition.
std::int64_t offset_of(std::int64_t row, const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides) {
  std::int64_t offset = 0;
  for (std::size_t d = sizes.size() - 1; d-- > 0;) {
    offset += row % sizes[d] * strides[d];
    row /= sizes[d];
  }
  return offset;
}

TEST(Rows, MergesWhatOneStrideDescribes) {
  const auto dims = [](const std::vector<std::int64_t>& sizes,
                       const std::vector<std::int64_t>& strides) {
    return Rows(view(sizes, strides)).dims();
  };
  EXPECT_EQ(dims({8}, {1}), 0U);
  EXPECT_EQ(dims({1, 8}, {5, 1}), 0U);
  EXPECT_EQ(dims({2, 3, 4, 8}, {96, 32, 8, 1}), 1U);
  EXPECT_EQ(dims({2, 1, 4, 8}, {32, 999, 8, 1}), 1U);
  EXPECT_EQ(dims({2, 2, 8}, {24, 8, 1}), 2U);
  EXPECT_EQ(dims({4, 3, 8}, {0, 0, 1}), 1U);
}

TEST(Rows, KnowsWhatIsDense) {
  EXPECT_TRUE(Rows(view({8}, {1})).dense());
  EXPECT_TRUE(Rows(view({3, 4, 8}, {32, 8, 1})).dense());
  EXPECT_FALSE(Rows(view({3, 8}, {9, 1})).dense());
}

TEST(Rows, CountsRowsOfEmptyTensors) {
  EXPECT_EQ(Rows(view({0, 8}, {8, 1})).count(), 0);
  EXPECT_EQ(Rows(view({4, 0}, {1, 1})).count(), 4);
  EXPECT_EQ(Rows(view({3, 0, 8}, {8, 8, 1})).count(), 0);
}

TEST(Rows, RunsLieWhereTheStridesSay) {
  std::mt19937 random(9);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> sizes, strides;
    for (std::size_t d = random() % 5; d-- > 0;) {
      sizes.push_back(1 + static_cast<std::int64_t>(random() % 4));
      strides.push_back(static_cast<std::int64_t>(random() % 50));
    }
    sizes.push_back(3);
    strides.push_back(1);
    if (round % 2 == 0) {
      for (std::size_t d = sizes.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * sizes[d + 1];
    }
    const Rows rows(view(sizes, strides));
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      const Rows::Run run = rows.run_from(row);
      ASSERT_GE(run.length, 1);
      ASSERT_LE(row + run.length, rows.count());
      for (std::int64_t i = 0; i < run.length; ++i) {
        ASSERT_EQ(run.offset + i * run.stride, offset_of(row + i, sizes, strides));
      }
    }
  }
}

}  // namespace
}  // namespace truefuse
