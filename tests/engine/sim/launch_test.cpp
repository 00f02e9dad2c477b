// Planned launches in the simulator: several of one call, which share scratch memory.

#include <gtest/gtest.h>

#include <truefuse/sim/launch.h>

#include "../error_of.h"
#include "sim_test_support.h"

namespace truefuse::sim {
namespace {

const std::string kSource = R"(
TF_KERNEL(64) void square(float* scratch, const float* x) {
  scratch[tf::thread_x()] = x[tf::thread_x()] * x[tf::thread_x()];
}
TF_KERNEL(64) void sum_pairs(float* out, const float* scratch) {
  out[tf::thread_x()] = scratch[2 * tf::thread_x()] + scratch[2 * tf::thread_x() + 1];
}
)";

Plan plan_of(const float* x, float* out, std::uint32_t count) {
  Plan plan;
  plan.scratch_bytes = 256 + count * sizeof(float);
  Launch& first = plan.add();
  first.kernel = "square";
  first.block.x = count;
  first.parameters.add_scratch(256);
  first.parameters.add(x);
  Launch& second = plan.add();
  second.kernel = "sum_pairs";
  second.block.x = count / 2;
  second.parameters.add(out);
  second.parameters.add_scratch(256);
  return plan;
}

std::string executable_of(const Launch&) { return executable(kSource, 64, {"address"}); }

TEST(SimulatedPlan, LaunchesShareScratchMemory) {
  std::vector<float> x(64), out(32);
  for (int i = 0; i < 64; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i);
  const std::vector<HostRange> ranges{{x.data(), 256, false}, {out.data(), 128, true}};
  const SimOutcome outcome = run(executable_of, plan_of(x.data(), out.data(), 64), ranges);
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  EXPECT_EQ(out[3], 6.0F * 6 + 7 * 7);
}

TEST(SimulatedPlan, ScratchMemoryHoldsNaNUntilItIsWritten) {
  std::vector<float> x(64), out(32);
  Plan plan = plan_of(x.data(), out.data(), 64);
  plan.launches[0].block.x = 63;
  const std::vector<HostRange> ranges{{x.data(), 256, false}, {out.data(), 128, true}};
  ASSERT_FALSE(run(executable_of, plan, ranges).fault);
  EXPECT_EQ(out[30], 0.0F);
  EXPECT_NE(out[31], out[31]);
}

TEST(SimulatedPlan, WhereOneRangeEndsAndTheNextBeginsTheNextIsMeant) {
  std::vector<float> memory(128);
  for (int i = 0; i < 64; ++i) memory[static_cast<std::size_t>(i)] = 1;
  // x lies behind what is written.
  const std::vector<HostRange> ranges{{memory.data() + 64, 256, true}, {memory.data(), 256, false}};
  Plan plan = plan_of(memory.data(), memory.data() + 64, 64);
  const SimOutcome outcome = run(executable_of, plan, ranges);
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  EXPECT_EQ(memory[64], 2.0F);
  const std::vector<HostRange> other{{memory.data(), 256, false}, {memory.data() + 64, 256, true}};
  EXPECT_FALSE(run(executable_of, plan, other).fault);
}

TEST(SimulatedPlan, TheFirstFaultEndsIt) {
  std::vector<float> x(64), out(32);
  Plan plan = plan_of(x.data(), out.data(), 64);
  plan.scratch_bytes -= sizeof(float);
  const std::vector<HostRange> ranges{{x.data(), 256, false}, {out.data(), 128, true}};
  const SimOutcome outcome = run(executable_of, plan, ranges);
  ASSERT_TRUE(outcome.fault);
  EXPECT_NE(outcome.fault->details.find("overflow"), std::string::npos) << describe(outcome);
}

}  // namespace
}  // namespace truefuse::sim
