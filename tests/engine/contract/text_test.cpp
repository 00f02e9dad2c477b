#include <cmath>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include <truefuse/contract/text.h>

namespace truefuse {
namespace {

TEST(ContractText, EitherListsAlternatives) {
  EXPECT_EQ(either(std::vector<std::string>{"a"}), "a");
  EXPECT_EQ(either(std::vector<std::string>{"a", "b"}), "a or b");
  EXPECT_EQ(either(std::vector<std::string>{"a", "b", "c"}), "a, b or c");
}

TEST(ContractText, ArticlesFollowTheSpokenName) {
  EXPECT_EQ(with_article("x"), "an x");
  EXPECT_EQ(with_article("k"), "a k");
  EXPECT_EQ(with_article("bias"), "a bias");
  EXPECT_EQ(with_article("index"), "an index");
  EXPECT_EQ(with_article("state"), "a state");
}

TEST(ContractText, Counts) {
  EXPECT_EQ(counted("1", "element"), "1 element");
  EXPECT_EQ(counted("0", "element"), "0 elements");
  EXPECT_EQ(counted("s0", "element"), "s0 elements");
}

TEST(ContractText, NumbersAreShortAndExact) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(-3), "-3");
  EXPECT_EQ(number_text(HUGE_VAL), "inf");
  EXPECT_EQ(number_text(-HUGE_VAL), "-inf");
  EXPECT_EQ(number_text(-std::nan("")), "nan");
}

}  // namespace
}  // namespace truefuse
