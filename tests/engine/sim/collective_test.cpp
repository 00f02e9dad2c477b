// Votes, shuffles and atomics give what their definitions say, at both wave sizes, in every order.

#include <bit>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <numeric>

#include "planted.h"

namespace truefuse::sim {
namespace {

constexpr SimOrder kOrders[] = {SimOrder::forward, SimOrder::reverse, SimOrder::random,
                                SimOrder::interleaved};

class Collectives : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Wave, Collectives, testing::Values(32, 64));

const std::string kVotes = R"(
TF_KERNEL(128) void votes(tf::u64* y, tf::u32 live) {
  const tf::u32 t = tf::thread_x();
  if (t >= live) return;
  tf::u64* const row = y + t * 6;
  row[0] = tf::ballot<TF_WAVE>(t % 3 == 0);
  row[1] = tf::ballot<8>(t % 3 == 0);
  row[2] = tf::any<16>(t == 5);
  row[3] = tf::all<4>(t < 98);
  row[4] = tf::shuffle_up<16>(t, 3);
  row[5] = tf::all<TF_WAVE>(true);
}
)";

TEST_P(Collectives, VotesAreThoseOfTheOwnSubgroup) {
  const std::uint32_t wave = GetParam(), live = 100;
  SimLaunch launch{"votes", {1, 1, 1}, {128, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add(live);
  for (const SimOrder order : kOrders) {
    const SimOutcome outcome = run(executable(kVotes, GetParam(), {"none"}), launch,
                                   {buffer_of(std::vector<std::uint64_t>(128 * 6))}, all_in(order));
    ASSERT_FALSE(outcome.fault) << describe(outcome);
    const auto y = values_of<std::uint64_t>(outcome.buffers[0]);
    const auto mask = [&](std::uint32_t t, std::uint32_t width) {
      std::uint64_t votes = 0;
      for (std::uint32_t i = 0; i < width; ++i) {
        const std::uint32_t other = t / width * width + i;
        if (other < live && other % 3 == 0) votes |= std::uint64_t{1} << i;
      }
      return votes;
    };
    for (std::uint32_t t = 0; t < live; ++t) {
      EXPECT_EQ(y[t * 6], mask(t, wave)) << t;
      EXPECT_EQ(y[t * 6 + 1], mask(t, 8)) << t;
      EXPECT_EQ(y[t * 6 + 2], t / 16 == 0) << t;
      EXPECT_EQ(y[t * 6 + 3], t / 4 * 4 + 3 < 98) << t;
      EXPECT_EQ(y[t * 6 + 4], t % 16 < 3 ? t : t - 3) << t;
      EXPECT_EQ(y[t * 6 + 5], 1u) << "lanes that have returned have no vote";
    }
  }
}

const std::string kMaxima = R"(
TF_KERNEL(192) void maxima(const float* x, float* y) {
  const tf::u32 t = tf::thread_x();
  y[t] = tf::block_max(x[t]);
  y[192 + t] = tf::subgroup_max<16>(x[t]);
}
)";

TEST_P(Collectives, MaximaAreThoseOfAllLanesAndPassOverNaN) {
  std::vector<float> x(192);
  for (std::uint32_t t = 0; t < 192; ++t) x[t] = -1.0f - static_cast<float>(t * 37 % 192);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  for (std::uint32_t t = 16; t < 32; ++t) x[t] = x[0];
  for (const std::uint32_t largest : {1u, 70u, 191u}) {
    std::vector<float> given = x;
    given[largest] = -0.5f;
    SimLaunch launch{"maxima", {1, 1, 1}, {192, 1, 1}, 0, {}};
    launch.parameters.add_pointer(0).add_pointer(1);
    for (const SimOrder order : kOrders) {
      const SimOutcome outcome =
          run(executable(kMaxima, GetParam(), {"none"}), launch,
              {buffer_of(given), buffer_of(std::vector<float>(2 * 192))}, all_in(order));
      ASSERT_FALSE(outcome.fault) << describe(outcome);
      const auto y = values_of<float>(outcome.buffers[1]);
      for (std::uint32_t t = 0; t < 192; ++t) {
        EXPECT_EQ(y[t], -0.5f) << t;
        const auto first = given.begin() + t / 16 * 16;
        const float want = std::accumulate(first, first + 16, x[0],
                                           [](float a, float b) { return std::fmax(a, b); });
        if (t / 16 == 1) {
          EXPECT_TRUE(std::isnan(y[192 + t])) << "nothing but NaN";
        } else {
          EXPECT_EQ(y[192 + t], want) << t;
        }
      }
    }
  }
}

const std::string kAtomics = R"(
TF_KERNEL(128) void atomics(tf::u32* u, tf::i32* n, tf::u64* l, float* f, tf::u32* before) {
  TF_SHARED(tf::u32, local, 1);
  const tf::u32 t = tf::thread_x(), i = tf::block_x() * 128 + t;
  if (t == 0) local[0] = 0;
  tf::block_sync();
  tf::atomic_add(local, t);
  before[i] = tf::atomic_add(u, 1);
  tf::atomic_min(u + 1, i + 7);
  tf::atomic_max(u + 2, i);
  tf::atomic_or(u + 3, 1u << t % 32);
  tf::atomic_and(u + 4, ~(1u << t % 31));
  tf::atomic_xor(u + 5, 1u << t % 32);
  tf::atomic_min(n, -(tf::i32)i);
  tf::atomic_max(n + 1, (tf::i32)i - 1000);
  tf::atomic_add(l, (tf::u64)i << 32);
  tf::atomic_add<tf::MemoryOrder::acq_rel>(f, 0.5f);
  tf::u32 old = tf::atomic_load(u + 6);
  for (;;) {  // A product, which no instruction makes.
    const tf::u32 found = tf::atomic_compare_exchange(u + 6, old, old * 3);
    if (found == old) break;
    old = found;
  }
  tf::block_sync();
  if (t == 0) tf::atomic_add(u + 7, tf::atomic_exchange(local, 0));
  if (i == 0) tf::atomic_store(f + 1, 2.5f);
}
)";

TEST_P(Collectives, AtomicsLoseNothing) {
  const std::uint32_t threads = 3 * 128;
  SimLaunch launch{"atomics", {3, 1, 1}, {128, 1, 1}, 0, {}};
  for (std::uint32_t i = 0; i < 5; ++i) launch.parameters.add_pointer(i);
  const std::vector<std::uint32_t> u{0, 1000, 0, 0, ~0u, 0, 1, 0};
  for (const SimOrder order : kOrders) {
    for (const char* const sanitizer : {"none", "race"}) {
      SimOptions options = all_in(order);
      options.resident_blocks = 3;
      const SimOutcome outcome =
          run(executable(kAtomics, GetParam(), {sanitizer}), launch,
              {buffer_of(u), buffer_of(std::vector<std::int32_t>{0, -2000}),
               buffer_of(std::vector<std::uint64_t>(1)), buffer_of(std::vector<float>(2)),
               buffer_of(std::vector<std::uint32_t>(threads))},
              options);
      ASSERT_FALSE(outcome.fault) << describe(outcome);
      std::uint32_t power = 1;
      for (std::uint32_t i = 0; i < threads; ++i) power *= 3;
      EXPECT_EQ(values_of<std::uint32_t>(outcome.buffers[0]),
                (std::vector<std::uint32_t>{threads, 7, threads - 1, ~0u, 1u << 31, 0, power,
                                            3 * 127 * 128 / 2}));
      EXPECT_EQ(values_of<std::int32_t>(outcome.buffers[1]),
                (std::vector<std::int32_t>{1 - static_cast<std::int32_t>(threads),
                                           static_cast<std::int32_t>(threads) - 1001}));
      EXPECT_EQ(values_of<std::uint64_t>(outcome.buffers[2])[0],
                (std::uint64_t{threads} * (threads - 1) / 2) << 32);
      EXPECT_EQ(values_of<float>(outcome.buffers[3]),
                (std::vector<float>{0.5f * static_cast<float>(threads), 2.5f}));
      std::vector<std::uint32_t> before = values_of<std::uint32_t>(outcome.buffers[4]);
      std::sort(before.begin(), before.end());
      std::vector<std::uint32_t> each(threads);
      std::iota(each.begin(), each.end(), 0u);
      EXPECT_EQ(before, each) << "every ticket once";
    }
  }
}

const std::string kSteps = R"(
TF_KERNEL(32) void steps(tf::u32* clock, tf::u32* y) {
  const tf::u32 i = tf::block_x() * 32 + tf::thread_x();
  for (int step = 0; step < 2; ++step) {
    const tf::Vector<tf::u32, 1> now = tf::load<1>(clock);
    y[i * 2 + step] = now[0];
    *clock = now[0] + 1;
  }
}
)";

TEST(Orders, InterleavedLanesAndBlocksTakeTurnsAtEachAccess) {
  SimLaunch launch{"steps", {2, 1, 1}, {32, 1, 1}, 0, {}};
  launch.parameters.add_pointer(0).add_pointer(1);
  const auto times = [&](SimOrder order) {
    const SimOutcome outcome =
        run(executable(kSteps, 32, {"none"}), launch,
            {buffer_of(std::vector<std::uint32_t>(1)), buffer_of(std::vector<std::uint32_t>(128))},
            all_in(order));
    return values_of<std::uint32_t>(outcome.buffers[1]);
  };
  const auto forward = times(SimOrder::forward);
  EXPECT_EQ(forward[1], 1u) << "a lane runs on";
  const auto mixed = times(SimOrder::interleaved);
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    for (std::uint32_t block = 0; block < 2; ++block) {
      const std::uint32_t at = (block * 32 + lane) * 2;
      EXPECT_EQ(mixed[at], 2 * lane + block);
      EXPECT_EQ(mixed[at + 1], 64 + 2 * lane + block);
    }
  }
}

}  // namespace
}  // namespace truefuse::sim
