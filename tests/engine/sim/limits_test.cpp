// Faults that are no single access, and the ways in which a run can end.

#include <gtest/gtest.h>
#include <numeric>

#include <truefuse/core/error.h>

#include "sim_test_support.h"

namespace truefuse::sim {
namespace {

const std::string kSource = R"(
TF_KERNEL(32) void endless(float* y) {
  for (;;) *(volatile float*)y = 1.0f;
}
TF_DEVICE int deep(int depth) {
  volatile char room[4096];
  room[depth % 4096] = 1;
  return depth == 0 ? 0 : deep(depth - 1) + room[depth % 4096];
}
TF_KERNEL(32) void recurse(float* y, int depth) { y[0] = (float)deep(depth); }
TF_KERNEL(32) void write(tf::u8* y, int at) {
  if (tf::thread_x() == 7) y[at] = 1;
}
TF_KERNEL(32) void divide(int* y, int by) { y[tf::thread_x()] = ((int)tf::thread_x() + 100) / by; }
)";

class Limits : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Sanitizer, Limits, testing::Values("none", "address"));

SimOutcome run_one(const SimLaunch& launch, const SimBuffer& buffer, const char* sanitizer,
                   const SimOptions& options = {}) {
  return run(executable(kSource, 32, {sanitizer}), launch, {buffer}, options);
}

TEST_P(Limits, AnEndlessKernelIsStopped) {
  SimLaunch launch{"endless", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0);
  SimOptions options;
  options.time_limit = std::chrono::milliseconds(500);
  const SimOutcome outcome = run_one(launch, buffer_of(std::vector<float>(1)), GetParam(), options);
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, SimFaultKind::time_limit);
  EXPECT_NE(outcome.fault->message.find("within 500 ms"), std::string::npos);
}

TEST_P(Limits, AStackThatOverflowsIsNamed) {
  SimLaunch launch{"recurse", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(10);
  const SimBuffer buffer = buffer_of(std::vector<float>(1));
  EXPECT_FALSE(run_one(launch, buffer, GetParam()).fault);
  launch.parameters = SimParameters().add_pointer(0).add(1000);
  const SimOutcome outcome = run_one(launch, buffer, GetParam());
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(name_of(outcome.fault->kind), "stack_overflow") << describe(outcome);
}

TEST_P(Limits, AReadOnlyBufferIsNotChanged) {
  SimLaunch launch{"write", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(3);
  SimBuffer buffer = buffer_of(std::vector<std::uint8_t>(8));
  EXPECT_EQ(values_of<std::uint8_t>(run_one(launch, buffer, GetParam()).buffers[0])[3], 1);
  buffer.is_writable = false;
  const SimOutcome outcome = run_one(launch, buffer, GetParam());
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(outcome.fault->kind, SimFaultKind::write_to_read_only);
  EXPECT_NE(outcome.fault->message.find("buffer 0 (8 bytes)"), std::string::npos);
  EXPECT_EQ(outcome.buffers[0].bytes, buffer.bytes);
}

TEST_P(Limits, AWriteInFrontOfAMisalignedBufferIsFound) {
  SimLaunch launch{"write", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(-1);
  SimBuffer buffer = buffer_of(std::vector<std::uint8_t>(8));
  buffer.misalignment = 3;  // Less than AddressSanitizer's grain.
  const SimOutcome outcome = run_one(launch, buffer, GetParam());
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(name_of(outcome.fault->kind), "global_write_out_of_bounds") << describe(outcome);
}

#if defined(__x86_64__)  // Elsewhere an integer division by zero need not trap.
TEST_P(Limits, ADivisionByZeroIsNamed) {
  SimLaunch launch{"divide", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(0);
  const SimOutcome outcome = run_one(launch, buffer_of(std::vector<int>(32)), GetParam());
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(name_of(outcome.fault->kind), "undefined_behaviour") << describe(outcome);
}
#endif

TEST(Limits, AnEmptyBufferHasNoByte) {
  SimLaunch launch{"write", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(0);
  const SimOutcome outcome = run_one(launch, SimBuffer{}, "address");
  ASSERT_TRUE(outcome.fault);
  EXPECT_EQ(name_of(outcome.fault->kind), "global_write_out_of_bounds") << describe(outcome);
  EXPECT_EQ(outcome.fault->thread[0], 7u);
}

TEST(Limits, NoSanitizerAndNoFaultLeaveResults) {
  SimLaunch launch{"divide", {1, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(1);
  const SimOutcome outcome = run_one(launch, buffer_of(std::vector<int>(32)), "none");
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  std::vector<int> expected(32);
  std::iota(expected.begin(), expected.end(), 100);
  EXPECT_EQ(values_of<int>(outcome.buffers[0]), expected);
}

}  // namespace
}  // namespace truefuse::sim
