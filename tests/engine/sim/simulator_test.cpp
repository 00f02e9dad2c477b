#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

#include <truefuse/core/error.h>
#include <truefuse/sim/simulator.h>

#include "sim_test_support.h"

namespace truefuse::sim {
namespace {

class BothWaves : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Wave, BothWaves, testing::Values(32, 64));

const std::string kSum = R"(
TF_KERNEL(1024) void sum(const float* x, float* y, tf::u32 count) {
  const tf::u32 i = tf::block_x() * tf::block_threads() + tf::thread_linear();
  const float total = tf::block_sum(i < count ? x[i] : 0.0f);
  y[i] = total;
}
)";

TEST_P(BothWaves, BlockSumIsRightInEveryOrder) {
  // Whole numbers: any order of additions gives the same float.
  for (const std::array<std::uint32_t, 3> block :
       {std::array<std::uint32_t, 3>{64, 1, 1}, {256, 1, 1}, {32, 2, 3}, {1024, 1, 1}}) {
    const std::uint32_t threads = block[0] * block[1] * block[2];
    const std::uint32_t blocks = 5, count = blocks * threads - 3;
    std::vector<float> x(count);
    std::iota(x.begin(), x.end(), 1.0f);
    for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::random}) {
      SimLaunch launch{"sum", {blocks, 1, 1}, block, 0, {}};
      launch.parameters.add_pointer(0).add_pointer(1).add(count);
      SimOptions options;
      options.lane_order = options.block_order = order;
      options.seed = threads;
      options.resident_blocks = 3;
      const SimOutcome outcome =
          run(executable(kSum, GetParam(), {"none"}), launch,
              {buffer_of(x), buffer_of(std::vector<float>(blocks * threads))}, options);
      ASSERT_FALSE(outcome.fault) << describe(outcome);
      const std::vector<float> y = values_of<float>(outcome.buffers[1]);
      for (std::uint32_t i = 0; i < y.size(); ++i) {
        const auto begin = x.begin() + i / threads * threads;
        const auto end = x.begin() + std::min(count, (i / threads + 1) * threads);
        ASSERT_EQ(y[i], std::accumulate(begin, end, 0.0)) << "thread " << i;
      }
    }
  }
}

const std::string kShuffles = R"(
TF_KERNEL(128) void shuffles(tf::u32* y, double* d) {
  const tf::u32 t = tf::thread_x();
  tf::u32* const row = y + t * 6;
  row[0] = tf::shuffle_xor<TF_WAVE>(t, TF_WAVE / 2);
  row[1] = tf::shuffle_xor<8>(t, 5);
  row[2] = tf::shuffle_down<16>(t, 3);
  row[3] = tf::shuffle<4>(t, 2);
  row[4] = tf::lane();
  row[5] = tf::wave();
  d[t] = tf::shuffle_down<TF_WAVE>(t * 1.5, 1);
}
)";

TEST_P(BothWaves, ShufflesReadTheLaneThatTheyName) {
  const std::uint32_t wave = GetParam();
  SimLaunch launch{"shuffles", {1, 1, 1}, {128, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add_pointer(1);
  const SimOutcome outcome =
      run(executable(kShuffles, GetParam(), {"none"}), launch,
          {buffer_of(std::vector<std::uint32_t>(128 * 6)), buffer_of(std::vector<double>(128))});
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  const auto y = values_of<std::uint32_t>(outcome.buffers[0]);
  const auto d = values_of<double>(outcome.buffers[1]);
  for (std::uint32_t t = 0; t < 128; ++t) {
    EXPECT_EQ(y[t * 6], t % wave < wave / 2 ? t + wave / 2 : t - wave / 2);
    EXPECT_EQ(y[t * 6 + 1], t ^ 5);
    EXPECT_EQ(y[t * 6 + 2], t % 16 < 13 ? t + 3 : t);
    EXPECT_EQ(y[t * 6 + 3], t / 4 * 4 + 2);
    EXPECT_EQ(y[t * 6 + 4], t % wave);
    EXPECT_EQ(y[t * 6 + 5], t / wave);
    EXPECT_EQ(d[t], 1.5 * (t % wave < wave - 1 ? t + 1 : t));
  }
}

const std::string kIndices = R"(
TF_KERNEL(60) void indices(tf::u32* y, tf::u64 scale, float* unused) {
  const tf::u32 block = tf::block_x() + tf::grid_dim_x() * (tf::block_y() + tf::grid_dim_y() * tf::block_z());
  if (unused == nullptr) y[block * tf::block_threads() + tf::thread_linear()] =
      (tf::u32)(scale * (100 * tf::block_z() + 10 * tf::thread_y() + tf::thread_z()));
}
)";

TEST(Simulator, EveryThreadOfEveryBlockRunsOnce) {
  for (const SimOrder order : {SimOrder::forward, SimOrder::reverse, SimOrder::random}) {
    for (const std::uint32_t resident : {1u, 2u, 100u}) {
      SimLaunch launch{"indices", {3, 2, 4}, {5, 4, 3}, 0, {}};
      launch.parameters.add_pointer(0).add(std::uint64_t{2}).add_null();
      SimOptions options;
      options.block_order = options.lane_order = order;
      options.resident_blocks = resident;
      const SimOutcome outcome = run(executable(kIndices, 32, {"none"}), launch,
                                     {buffer_of(std::vector<std::uint32_t>(24 * 60, 7))}, options);
      ASSERT_FALSE(outcome.fault) << describe(outcome);
      EXPECT_EQ(outcome.lane_switches, 24 * 60);
      const auto y = values_of<std::uint32_t>(outcome.buffers[0]);
      for (std::uint32_t i = 0; i < y.size(); ++i) {
        const std::uint32_t block_z = i / 60 / 6, thread_y = i % 60 / 5 % 4, thread_z = i % 60 / 20;
        ASSERT_EQ(y[i], 2 * (100 * block_z + 10 * thread_y + thread_z)) << i;
      }
    }
  }
}

const std::string kOrder = R"(
TF_KERNEL(64) void order(tf::u32* counter, tf::u32* y) {
  y[tf::block_x() * 64 + tf::thread_x()] = (*counter)++;
}
)";

std::vector<std::uint32_t> turns(const SimOptions& options) {
  SimLaunch launch{"order", {4, 1, 1}, {64, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add_pointer(1);
  const SimOutcome outcome =
      run(executable(kOrder, 32, {"none"}), launch,
          {buffer_of(std::vector<std::uint32_t>(1)), buffer_of(std::vector<std::uint32_t>(256))},
          options);
  return values_of<std::uint32_t>(outcome.buffers[1]);
}

TEST(Simulator, OrdersAreWhatTheirNamesSay) {
  std::vector<std::uint32_t> forward(256);
  std::iota(forward.begin(), forward.end(), 0u);
  EXPECT_EQ(turns({}), forward);
  SimOptions reverse;
  reverse.lane_order = reverse.block_order = SimOrder::reverse;
  EXPECT_EQ(turns(reverse), std::vector<std::uint32_t>(forward.rbegin(), forward.rend()));

  SimOptions random;
  random.lane_order = random.block_order = SimOrder::random;
  const std::vector<std::uint32_t> first = turns(random);
  EXPECT_TRUE(std::is_permutation(first.begin(), first.end(), forward.begin()));
  EXPECT_NE(first, forward);
  EXPECT_EQ(turns(random), first) << "a seed repeats itself";
  random.seed = 2;
  EXPECT_NE(turns(random), first);
}

const std::string kTurns = R"(
TF_KERNEL(32) void turns(tf::u32* x, tf::u32* seen) {
  if (tf::thread_x() == 0) x[tf::block_x()] = 1;
  tf::block_sync();
  if (tf::thread_x() == 0) seen[tf::block_x()] = x[1 - tf::block_x()];
}
)";

TEST(Simulator, BlocksTakeTurnsAtBarriers) {
  SimLaunch launch{"turns", {2, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add_pointer(1);
  const auto seen_by = [&](std::uint32_t resident) {
    SimOptions options;
    options.resident_blocks = resident;
    const std::vector<std::uint32_t> zeros(2);
    const SimOutcome outcome = run(executable(kTurns, 32, {"none"}), launch,
                                   {buffer_of(zeros), buffer_of(zeros)}, options);
    return values_of<std::uint32_t>(outcome.buffers[1]);
  };
  EXPECT_EQ(seen_by(2), (std::vector<std::uint32_t>{1, 1}));
  EXPECT_EQ(seen_by(1), (std::vector<std::uint32_t>{0, 1}));
}

const std::string kPoison = R"(
TF_KERNEL(32) void poison(tf::u32* y) {
  TF_SHARED(tf::u32, fixed, 32);
  TF_SHARED_DYNAMIC(tf::u32, dynamic);
  y[tf::thread_x()] = fixed[tf::thread_x()];
  y[32 + tf::thread_x()] = dynamic[tf::thread_x()];
  fixed[tf::thread_x()] = dynamic[tf::thread_x()] = 0;
}
)";

TEST(Simulator, SharedMemoryOfEachBlockIsPoisoned) {
  SimLaunch launch{"poison", {3, 1, 1}, {32, 1, 1}, 128, {}};
  launch.parameters.add_pointer(0);
  const SimOutcome outcome =
      run(executable(kPoison, 32, {"none"}), launch, {buffer_of(std::vector<std::uint32_t>(64))});
  EXPECT_EQ(values_of<std::uint32_t>(outcome.buffers[0]),
            std::vector<std::uint32_t>(64, 0xffffffffu));
}

TEST(Simulator, MisalignmentAndOffsetsReachTheKernel) {
  const std::string source = R"(
TF_KERNEL(1) void address(const char* p, tf::u64* y) { y[0] = (tf::u64)p % 256; }
)";
  SimLaunch launch{"address", {1, 1, 1}, {1, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0, 3).add_pointer(1);
  SimBuffer x = buffer_of(std::vector<char>(8));
  x.misalignment = 34;
  const SimOutcome outcome = run(executable(source, 32, {"address"}), launch,
                                 {x, buffer_of(std::vector<std::uint64_t>(1))});
  ASSERT_FALSE(outcome.fault) << describe(outcome);
  EXPECT_EQ(values_of<std::uint64_t>(outcome.buffers[1])[0], 37u);
}

std::string error_of(const SimLaunch& launch) {
  try {
    run(executable(kSum, 32, {"none"}), launch, {buffer_of(std::vector<float>(64))});
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Simulator, ImpossibleLaunchesAreErrors) {
  SimLaunch good{"sum", {1, 1, 1}, {32, 1, 1}, 0, {}};
  good.parameters.add_pointer(0).add_pointer(0).add(std::uint32_t{32});
  EXPECT_EQ(error_of(good), "");

  SimLaunch launch = good;
  launch.kernel = "product";
  EXPECT_NE(error_of(launch).find("no kernel named \"product\""), std::string::npos);
  launch = good;
  launch.parameters = SimParameters().add_pointer(0).add_pointer(0);
  EXPECT_NE(error_of(launch).find("takes 3 parameters; the launch passes 2"), std::string::npos);
  launch.parameters.add(std::uint64_t{32});
  EXPECT_NE(error_of(launch).find("parameter 2 of kernel sum has 4 bytes; the launch passes 8"),
            std::string::npos);
  launch.parameters = SimParameters().add_pointer(0).add_pointer(1).add(std::uint32_t{32});
  EXPECT_NE(error_of(launch).find("names buffer 1 of 1"), std::string::npos);
  launch = good;
  launch.grid = {0, 1, 1};
  EXPECT_NE(error_of(launch).find("grid dimension 0 is 0"), std::string::npos);
  launch.grid = {1, 65536, 1};
  EXPECT_NE(error_of(launch).find("grid dimension 1 is 65536"), std::string::npos);
  launch.grid = {0x7fffffff, 1, 1};
  EXPECT_NE(error_of(launch).find("2^32 - 1"), std::string::npos);
  launch = good;
  launch.block = {64, 32, 1};
  EXPECT_NE(error_of(launch).find("a block of 2048 threads"), std::string::npos);
}

TEST(Simulator, LaunchBoundIsKept) {
  SimLaunch launch{"indices", {1, 1, 1}, {61, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(std::uint64_t{2}).add_null();
  try {
    run(executable(kIndices, 32, {"none"}), launch, {buffer_of(std::vector<std::uint32_t>(61))});
    FAIL() << "61 threads were taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at most 60 threads"), std::string::npos);
  }
}

TEST(Simulator, WhatIsNoExecutableIsAnError) {
  SimLaunch launch{"sum", {1, 1, 1}, {32, 1, 1}, 0, {}};
  EXPECT_THROW(run("not an executable", launch, {}), Error);
}

}  // namespace
}  // namespace truefuse::sim
