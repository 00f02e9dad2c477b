#include <gtest/gtest.h>

#include <truefuse/jit/log.h>
#include <truefuse/operator/operator.h>

namespace truefuse {
namespace {

std::string warned;

TEST(Tuning, LinesOfThisArchitectureAreRead) {
  const auto found = parse_tuning(
      "# made by hand\n"
      "\n"
      "gfx90a bias_gelu bf16 threads=256 rows=2\n"
      "sm_90a bias_gelu bf16 threads=128\n"
      "gfx90a swish f32 rows=4 bytes=8  # narrow\n",
      "gfx90a:sramecc+:xnack-", "tuning.txt");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].op, "bias_gelu");
  EXPECT_EQ(found[0].dtype, DType::bf16);
  EXPECT_EQ(found[0].policy.threads, 256);
  EXPECT_EQ(found[0].policy.rows, 2);
  EXPECT_EQ(found[1].policy.threads, 0);
  EXPECT_EQ(found[1].policy.rows, 4);
  EXPECT_EQ(found[0].policy.bytes, 16);
  EXPECT_EQ(found[1].policy.bytes, 8);
}

TEST(Tuning, AnythingElseIsLeftOutAndSaid) {
  jit::set_warning_sink([](const std::string& text) { warned = text; });
  for (const std::string line :
       {"bias_gelu", "bias_gelu f12 rows=2", "bias_gelu f32 threads=100", "bias_gelu f32 rows=3",
        "bias_gelu f32 rows=2x", "bias_gelu f32 bytes=4", "bias_gelu f32 wide"}) {
    EXPECT_TRUE(parse_tuning("\nsm_80 " + line, "sm_80", "tuning.txt").empty()) << line;
  }
  jit::set_warning_sink(nullptr);
  EXPECT_NE(warned.find("tuning.txt, line 2: \"sm_80 bias_gelu\" is left out"), std::string::npos)
      << warned;
}

TEST(Tuning, WhatIsNotChosenStaysAsThePlanHasIt) {
  DeviceFacts device;
  device.tuned = {{"swish", DType::f32, {256, 0, 8}}};
  EXPECT_EQ(device.policy("swish", DType::f32, {128, 2}).threads, 256);
  EXPECT_EQ(device.policy("swish", DType::f32, {128, 2}).rows, 2);
  EXPECT_EQ(device.policy("swish", DType::f32, {128, 2}).bytes, 8);
  EXPECT_EQ(device.policy("swish", DType::f64, {128, 2}).threads, 128);
  EXPECT_EQ(device.policy("swish", DType::f64, {128, 2}).bytes, 16);
  EXPECT_EQ(device.policy("swiglu", DType::f32, {128, 2}).threads, 128);
}

}  // namespace
}  // namespace truefuse
