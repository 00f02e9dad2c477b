#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <truefuse/contract/layouts.h>

#include "calls.h"

namespace truefuse {
namespace {

using testing::Tensor;

bool fits(Layout layout, const Tensor& tensor) {
  return !find_stride_fault<std::int64_t>(layout, tensor.sizes, tensor.strides).has_value();
}

/// The definition: walking the elements in order visits consecutive offsets. Strides of dimensions
/// of size 1 take no part in an offset.
bool elements_are_consecutive(const Tensor& tensor) {
  std::vector<std::int64_t> offsets{0};
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    std::vector<std::int64_t> next;
    for (const std::int64_t base : offsets) {
      for (std::int64_t k = 0; k < tensor.sizes[i]; ++k)
        next.push_back(base + k * tensor.strides[i]);
    }
    offsets = next;
  }
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] != static_cast<std::int64_t>(i)) return false;
  }
  return true;
}

TEST(ContractLayouts, ContiguousMeansConsecutiveElements) {
  std::mt19937 random(4);
  int contiguous = 0;
  for (int i = 0; i < 20000; ++i) {
    Tensor tensor = testing::dense({});
    for (std::size_t rank = random() % 5; rank > 0; --rank) {
      tensor.sizes.push_back(static_cast<std::int64_t>(random() % 4));
    }
    tensor = testing::dense(tensor.sizes);
    if (!tensor.sizes.empty() && random() % 2 == 0) {
      tensor.strides[random() % tensor.sizes.size()] = static_cast<std::int64_t>(random() % 6);
    }
    const bool expected = elements_are_consecutive(tensor);
    contiguous += expected ? 1 : 0;
    EXPECT_EQ(fits(Layout::contiguous, tensor), expected);
    EXPECT_TRUE(!expected || fits(Layout::rows_strided, tensor));
    EXPECT_TRUE(fits(Layout::strided, tensor));
  }
  EXPECT_GT(contiguous, 1000);
  EXPECT_LT(contiguous, 19000);
}

TEST(ContractLayouts, RowsStridedLooksAtTheLastDimension) {
  EXPECT_TRUE(fits(Layout::rows_strided, {DType::f32, {}, {}}));
  EXPECT_TRUE(fits(Layout::rows_strided, {DType::f32, {4, 8}, {3, 1}}));
  EXPECT_TRUE(fits(Layout::rows_strided, {DType::f32, {4, 1}, {1, 7}}));
  EXPECT_TRUE(fits(Layout::rows_strided, {DType::f32, {0, 8}, {16, 2}})) << "no elements";
  const std::vector<std::int64_t> sizes{4, 8}, strides{8, 0};
  const auto fault = find_stride_fault<std::int64_t>(Layout::rows_strided, sizes, strides);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->dimension, 1u);
  EXPECT_EQ(fault->wanted, 1);
}

TEST(ContractLayouts, BatchStridedLeavesTheFirstDimensionFree) {
  EXPECT_TRUE(fits(Layout::batch_strided, {DType::f32, {}, {}}));
  EXPECT_TRUE(fits(Layout::batch_strided, {DType::f32, {4}, {7}}));
  EXPECT_TRUE(fits(Layout::batch_strided, {DType::f32, {5, 2, 3}, {100, 3, 1}}));
  EXPECT_TRUE(fits(Layout::batch_strided, {DType::f32, {5, 2, 3}, {0, 3, 1}}));
  EXPECT_FALSE(fits(Layout::batch_strided, {DType::f32, {5, 2, 3}, {100, 4, 1}}));
  EXPECT_FALSE(fits(Layout::batch_strided, {DType::f32, {5, 2, 3}, {100, 1, 2}}));
}

TEST(ContractLayouts, TheInnermostFaultIsNamed) {
  const std::vector<std::int64_t> sizes{2, 3, 4}, strides{99, 5, 1};
  const auto fault = find_stride_fault<std::int64_t>(Layout::contiguous, sizes, strides);
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->dimension, 1u);
  EXPECT_EQ(fault->wanted, 4);
}

std::vector<std::int64_t> dense(const Tensor& tensor) {
  SmallVector<std::int64_t, 8> strides;
  dense_strides<std::int64_t>(tensor.sizes, tensor.strides, strides);
  return {strides.begin(), strides.end()};
}

TEST(ContractLayouts, DenseStridesKeepTheOrderAndCloseTheGaps) {
  using Strides = std::vector<std::int64_t>;
  EXPECT_EQ(dense({DType::f32, {}, {}}), Strides{});
  EXPECT_EQ(dense({DType::f32, {2, 3, 4}, {12, 4, 1}}), (Strides{12, 4, 1}));
  EXPECT_EQ(dense({DType::f32, {2, 3, 4}, {40, 10, 2}}), (Strides{12, 4, 1})) << "gaps";
  EXPECT_EQ(dense({DType::f32, {3, 4}, {1, 3}}), (Strides{1, 3})) << "transposed";
  EXPECT_EQ(dense({DType::f32, {3, 4}, {2, 9}}), (Strides{1, 3})) << "transposed with gaps";
  EXPECT_EQ(dense({DType::f32, {2, 3, 4, 5}, {60, 1, 15, 3}}), (Strides{60, 1, 15, 3}));
  EXPECT_EQ(dense({DType::f32, {1, 3, 4, 5}, {60, 1, 15, 3}}), (Strides{60, 1, 15, 3}))
      << "where it is dense its own strides stay, also of a dimension of size 1";
  EXPECT_EQ(dense({DType::f32, {4, 1, 8}, {8, 99, 1}}), (Strides{8, 8, 1})) << "contiguous";
  EXPECT_EQ(dense({DType::f32, {4, 8}, {0, 1}}), (Strides{8, 1})) << "expanded";
  EXPECT_EQ(dense({DType::f32, {0, 8}, {1, 0}}), (Strides{8, 1})) << "empty";
}

/// Whatever the tensor: a permutation of a contiguous one, whose order no pair of strides breaks.
TEST(ContractLayouts, DenseStridesHaveNoGaps) {
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    Tensor tensor = testing::dense({});
    for (std::size_t rank = random() % 5; rank > 0; --rank) {
      tensor.sizes.push_back(static_cast<std::int64_t>(1 + random() % 4));
      tensor.strides.push_back(static_cast<std::int64_t>(random() % 50));
    }
    const std::vector<std::int64_t> strides = dense(tensor);
    std::int64_t last = 0, count = 1;
    for (std::size_t k = 0; k < strides.size(); ++k) {
      last += (tensor.sizes[k] - 1) * strides[k];
      count *= tensor.sizes[k];
    }
    EXPECT_EQ(last, count - 1);
    const bool expanded = [&] {
      for (std::size_t k = 0; k < strides.size(); ++k) {
        if (tensor.sizes[k] > 1 && tensor.strides[k] == 0) return true;
      }
      return false;
    }();
    for (std::size_t a = 0; a < strides.size(); ++a) {
      for (std::size_t b = 0; b < strides.size(); ++b) {
        if (expanded || tensor.sizes[a] == 1 || tensor.sizes[b] == 1) continue;
        EXPECT_FALSE(tensor.strides[a] < tensor.strides[b] && strides[a] > strides[b]);
      }
    }
  }
}

}  // namespace
}  // namespace truefuse
