#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

#include <truefuse/contract/memory.h>

#include "calls.h"

namespace truefuse {
namespace {

using testing::dense;
using testing::Tensor;

std::array<std::byte, 1 << 16> arena;

Tensor at(std::size_t byte, Tensor tensor) {
  tensor.data = arena.data() + byte;
  return tensor;
}

bool is_distinct(const Tensor& tensor) { return elements_are_distinct(tensor.view()); }
bool is_apart(const Tensor& a, const Tensor& b) { return are_apart(a.view(), b.view()); }
bool is_same(const Tensor& a, const Tensor& b) { return are_same_memory(a.view(), b.view()); }

/// Addresses of the first byte of every element, by walking them all.
std::vector<std::uintptr_t> addresses(const Tensor& tensor) {
  std::vector<std::uintptr_t> found{reinterpret_cast<std::uintptr_t>(tensor.data)};
  for (std::size_t i = 0; i < tensor.sizes.size(); ++i) {
    std::vector<std::uintptr_t> next;
    for (const std::uintptr_t base : found) {
      for (std::int64_t k = 0; k < tensor.sizes[i]; ++k) {
        next.push_back(base +
                       static_cast<std::uintptr_t>(k * tensor.strides[i]) * size_of(tensor.dtype));
      }
    }
    found = next;
  }
  return found;
}

std::set<std::uintptr_t> bytes(const Tensor& tensor) {
  std::set<std::uintptr_t> all;
  for (const std::uintptr_t address : addresses(tensor)) {
    for (std::size_t i = 0; i < size_of(tensor.dtype); ++i) all.insert(address + i);
  }
  return all;
}

bool share_a_byte(const Tensor& a, const Tensor& b) {
  const std::set<std::uintptr_t> of_a = bytes(a);
  for (const std::uintptr_t byte : bytes(b)) {
    if (of_a.count(byte) != 0) return true;
  }
  return false;
}

Tensor random_tensor(std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
  Tensor tensor;
  tensor.dtype = std::array{DType::i8, DType::bf16, DType::f32}[random() % 3];
  for (std::size_t rank = random() % 4; rank > 0; --rank) {
    tensor.sizes.push_back(below(5));
    tensor.strides.push_back(below(12));
  }
  return at(random() % 32 * 4, tensor);
}

TEST(ContractMemory, ViewsOfDenseTensorsHaveDistinctElements) {
  EXPECT_TRUE(is_distinct(at(0, dense({}))));
  EXPECT_TRUE(is_distinct(at(0, dense({4, 5, 6}))));
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {6, 4}, {1, 6}})));
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {4, 3}, {20, 2}})));
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {5, 1}, {1, 0}})));
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {5}, {6}}))) << "a diagonal";
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {3, 4}, {4, 1}}))) << "windows side by side";
}

TEST(ContractMemory, OverlappingElementsAreSeen) {
  EXPECT_FALSE(is_distinct(at(0, {DType::f32, {5, 4}, {0, 1}})));
  EXPECT_FALSE(is_distinct(at(0, {DType::f32, {5, 4}, {1, 1}})));
  EXPECT_FALSE(is_distinct(at(0, {DType::f32, {5, 4}, {3, 1}})));
  EXPECT_TRUE(is_distinct(at(0, {DType::f32, {0, 4}, {0, 1}}))) << "no elements";
}

TEST(ContractMemory, DistinctIsNeverClaimedWrongly) {
  std::mt19937 random(1);
  int distinct = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor tensor = random_tensor(random);
    if (!is_distinct(tensor)) continue;
    ++distinct;
    EXPECT_EQ(bytes(tensor).size(), addresses(tensor).size() * size_of(tensor.dtype));
  }
  EXPECT_GT(distinct, 1000);
}

TEST(ContractMemory, ApartIsNeverClaimedWrongly) {
  std::mt19937 random(2);
  int apart = 0;
  for (int i = 0; i < 20000; ++i) {
    const Tensor a = random_tensor(random);
    const Tensor b = random_tensor(random);
    EXPECT_EQ(is_apart(a, b), is_apart(b, a));
    if (!is_apart(a, b)) continue;
    ++apart;
    EXPECT_FALSE(share_a_byte(a, b));
  }
  EXPECT_GT(apart, 1000);
}

TEST(ContractMemory, DisjointSlicesOfOnePoolAreApart) {
  // Two boxes of one dense pool that are disjoint in one dimension, as views make them.
  std::mt19937 random(3);
  const auto size = [&] { return static_cast<std::int64_t>(2 + random() % 5); };
  for (int i = 0; i < 2000; ++i) {
    const Tensor pool = dense({size(), size(), size()});
    const std::size_t cut = random() % 3;
    std::array<Tensor, 2> boxes;
    for (std::size_t side = 0; side < 2; ++side) {
      Tensor& box = boxes[side];
      box.strides = pool.strides;
      std::int64_t offset = 0;
      for (std::size_t k = 0; k < 3; ++k) {
        const std::int64_t middle = pool.sizes[k] / 2;
        const std::int64_t low = k != cut || side == 0 ? 0 : middle;
        const std::int64_t high = k != cut || side == 1 ? pool.sizes[k] : middle;
        box.sizes.push_back(high - low);
        offset += low * pool.strides[k];
      }
      box = at(static_cast<std::size_t>(offset) * 4, box);
    }
    ASSERT_FALSE(share_a_byte(boxes[0], boxes[1]));
    EXPECT_TRUE(is_apart(boxes[0], boxes[1]));
    EXPECT_FALSE(is_apart(boxes[0], at(0, pool)));
  }
}

TEST(ContractMemory, PagesThatHoldTwoStatesOfDifferentTypesAreApart) {
  // A page of 96 bytes: 8 bf16 values, then 20 floats.
  const Tensor conv = at(0, {DType::bf16, {5, 8}, {48, 1}});
  const Tensor state = at(16, {DType::f32, {5, 20}, {24, 1}});
  EXPECT_TRUE(is_apart(conv, state));
  const Tensor too_long = at(16, {DType::f32, {5, 21}, {24, 1}});
  EXPECT_FALSE(is_apart(conv, too_long));
}

TEST(ContractMemory, NothingOverlapsNoMemory) {
  EXPECT_TRUE(is_apart(dense({4}), dense({4}))) << "no data";
  EXPECT_TRUE(is_apart(at(0, dense({4, 0})), at(0, dense({4}))));
  EXPECT_FALSE(is_apart(at(0, dense({})), at(0, dense({4}))));
}

TEST(ContractMemory, HugeSizesDoNotWrap) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  EXPECT_FALSE(is_apart(at(0, {DType::f64, {kHuge, 4}, {kHuge, 1}}), at(64, dense({4}))));
  EXPECT_FALSE(is_distinct(at(0, {DType::f64, {kHuge, kHuge}, {1, kHuge}})));
}

TEST(ContractMemory, SameMemoryIsTheSameView) {
  EXPECT_TRUE(is_same(at(0, dense({4})), at(0, dense({4}))));
  EXPECT_FALSE(is_same(at(0, dense({4})), at(4, dense({4}))));
  EXPECT_FALSE(is_same(at(0, dense({4})), at(0, dense({2, 2}))));
  EXPECT_FALSE(is_same(at(0, dense({4})), at(0, dense({4}, DType::i32))));
}

}  // namespace
}  // namespace truefuse
