#include <gtest/gtest.h>
#include <span>
#include <string>
#include <utility>

#include <truefuse/contract/small_vector.h>

namespace truefuse {
namespace {

std::string joined(const SmallVector<std::string, 2>& vector) {
  std::string text;
  for (const std::string& item : vector) text += item + ",";
  return text;
}

TEST(ContractSmallVector, KeepsOrderAcrossTheInlineCapacity) {
  SmallVector<std::string, 2> vector;
  EXPECT_EQ(vector.size(), 0u);
  std::string expected;
  for (const char* item : {"a", "b", "c", "d"}) {
    vector.push_back(item);
    expected += std::string(item) + ",";
    EXPECT_EQ(joined(vector), expected);
  }
  vector[3] = "e";
  EXPECT_EQ(std::span<const std::string>(vector).back(), "e");
  vector.clear();
  EXPECT_EQ(vector.size(), 0u);
  vector.push_back("f");
  EXPECT_EQ(joined(vector), "f,");
}

TEST(ContractSmallVector, CopiesAndMovesAreValues) {
  for (const int size : {1, 2, 3}) {
    SmallVector<std::string, 2> vector;
    for (int i = 0; i < size; ++i) vector.push_back(std::to_string(i));
    const std::string expected = joined(vector);
    SmallVector<std::string, 2> copy = vector;
    vector[0] = "changed";
    EXPECT_EQ(joined(copy), expected);
    const SmallVector<std::string, 2> moved = std::move(copy);
    EXPECT_EQ(joined(moved), expected);
  }
}

TEST(ContractSmallVector, StartsWithDefaultElements) {
  EXPECT_EQ((SmallVector<int, 2>(2)).size(), 2u);
  const SmallVector<int, 2> large(5);
  ASSERT_EQ(large.size(), 5u);
  for (const int value : large) EXPECT_EQ(value, 0);
}

}  // namespace
}  // namespace truefuse
