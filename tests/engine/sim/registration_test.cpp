#include <gtest/gtest.h>

#include <truefuse/core/error.h>
#include <truefuse/sim/registration.h>

namespace truefuse::sim {
namespace {

TEST(Registration, FindsKernelsAcrossLinesAndMarkers) {
  const std::vector<KernelDefinition> expected = {{"one", "256"}, {"two_2", "(4 * (8))"}};
  EXPECT_EQ(find_kernels("extern \"C\" [[truefuse::kernel(256)]] void one(int);\n"
                         "extern \"C\" [[truefuse::kernel((4 * (8)))]]\n"
                         "# 12 \"kernel.hip\" 2\n"
                         "  void\n two_2 (const float* x) {}\n"
                         "extern \"C\" [[truefuse::kernel(256)]] void one(int) {}\n"),
            expected);
  EXPECT_TRUE(find_kernels("void helper(int);").empty());
}

TEST(Registration, RefusesWhatIsNoKernel) {
  for (const char* const text :
       {"[[truefuse::kernel(1)]] int f() {}", "[[truefuse::kernel(1)]] void",
        "[[truefuse::kernel(1", "[[truefuse::kernel(1)]] static void f() {}",
        "[[truefuse::kernel(1)]] void f;"}) {
    EXPECT_THROW(find_kernels(text), Error) << text;
  }
}

TEST(Registration, ListsEveryKernelAndTheWave) {
  const std::string text = registration_of({{"one", "256"}}, 64);
  EXPECT_NE(text.find("{\"one\", (256), &Signature<decltype(::one)>::call<&::one>"),
            std::string::npos);
  EXPECT_NE(text.find("kernel_count = 1;"), std::string::npos);
  EXPECT_NE(text.find("wave = 64;"), std::string::npos);
}

}  // namespace
}  // namespace truefuse::sim
