// The plan and what it refuses, without a GPU. Tests of values are in sim_test.cpp.

#include <gtest/gtest.h>
#include <utility>

#include <truefuse/core/error.h>

#include "../../engine/error_of.h"
#include "gdn_testing.h"

namespace truefuse::gdn_testing {
namespace {

using gdn_decode::Position;
using truefuse::testing::error_of;

std::int64_t constant(const Launch& launch, std::string_view name) {
  const std::vector<std::string> names = gdn_decode::constant_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return launch.variant.values[i];
  }
  throw Error("no constant " + std::string(name));
}

const DeviceFacts kPortable = {"sm_80", 108, 32, 48 << 10, 163 << 10};
const DeviceFacts kHopper = {"sm_90a", 132, 32, 48 << 10, 227 << 10};

Plan plan_of(const std::vector<Argument>& arguments, const Call& call,
             const DeviceFacts& device = kPortable) {
  const std::vector<TensorView> outputs{call.out.view()};
  Plan plan;
  gdn_decode::plan({arguments, outputs}, device, plan);
  return plan;
}

TEST(GdnDecodePlan, ABlockForEachSequenceAndKeyHead) {
  Shape shape;
  shape.batch = 3;
  Call call(shape);
  const Plan plan = plan_of(call.arguments(), call);
  ASSERT_EQ(plan.count, 1U);
  EXPECT_EQ(plan.launches[0].grid.x, 3U * 2U);
  EXPECT_EQ(plan.launches[0].shared_bytes, 4U * (2 * 16 + 3 * 8 + 2 * 3));
  EXPECT_EQ(constant(plan.launches[0], "TF_G"), 3);
}

TEST(GdnDecodePlan, RowLayoutsAreConstantsAndNothingElseDiffers) {
  Shape shape;
  Call interleaved(shape);
  shape.flat = true;
  Call flat(shape);
  const Plan a = plan_of(interleaved.arguments(), interleaved);
  const Plan b = plan_of(flat.arguments(), flat);
  // P = 2 K + 2 G V = 80 columns for each key head.
  EXPECT_EQ(constant(a.launches[0], "TF_Q_HEAD"), 80);
  EXPECT_EQ(constant(a.launches[0], "TF_Z_BASE"), 2 * 16 + 3 * 8);
  EXPECT_EQ(constant(a.launches[0], "TF_A_HEAD"), 6);
  EXPECT_EQ(constant(b.launches[0], "TF_Q_HEAD"), 16);
  EXPECT_EQ(constant(b.launches[0], "TF_Z_BASE"), 2 * 2 * 16 + 6 * 8);
  EXPECT_EQ(constant(b.launches[0], "TF_A_BASE"), 6);
  EXPECT_EQ(a.launches[0].grid.x, b.launches[0].grid.x);
  EXPECT_EQ(a.launches[0].shared_bytes, b.launches[0].shared_bytes);
}

TEST(GdnDecodePlan, BatchTokensSlotsAndStridesAreNoConstants) {
  Shape shape;
  shape.tokens = 2;
  Call one(shape);
  shape.batch = 4;
  shape.tokens = 3;
  shape.slots = 9;
  shape.history = 5;
  Call other(shape);
  const Plan a = plan_of(one.arguments(), one);
  const Plan b = plan_of(other.arguments(), other);
  EXPECT_TRUE(a.launches[0].variant == b.launches[0].variant);
}

TEST(GdnDecodePlan, BlocksShareAKeyHeadWhereThereAreFewAndStreamWhereThereAreMany) {
  Shape shape;
  shape.H = 16;
  shape.G = 3;
  shape.K = shape.V = 128;
  shape.slots = 40;
  const auto launch_of = [&](std::int64_t batch, const DeviceFacts& device) {
    shape.batch = batch;
    Call call(shape);
    return plan_of(call.arguments(), call, device).launches[0];
  };
  for (const auto& [batch, split] : {std::pair{1, 8}, {2, 4}, {4, 2}}) {
    const Launch launch = launch_of(batch, kHopper);
    EXPECT_EQ(constant(launch, "TF_SPLIT"), split) << batch;
    EXPECT_EQ(constant(launch, "TF_STREAM"), 0) << batch;
    EXPECT_EQ(launch.grid.x, static_cast<std::uint32_t>(batch * 16 * split));
  }
  const Launch many = launch_of(32, kHopper);
  EXPECT_EQ(constant(many, "TF_STREAM"), 1);
  EXPECT_EQ(many.block.x, 384U);
  EXPECT_EQ(many.grid.x, 256U);  // 512 key heads: two for each block, and 264 blocks would fit.
  EXPECT_GT(many.shared_bytes, 96U << 10U);
  // Hints to the L2 cache only where blocks go on to more than it holds.
  EXPECT_EQ(constant(many, "TF_OVERFLOWS"), 0);
  DeviceFacts smaller = kHopper;
  smaller.multiprocessors = 66;
  EXPECT_EQ(constant(launch_of(32, smaller), "TF_OVERFLOWS"), 1);
  for (const std::int64_t batch : {1, 32}) {
    const Launch launch = launch_of(batch, kPortable);
    EXPECT_EQ(constant(launch, "TF_SPLIT"), 1);
    EXPECT_EQ(constant(launch, "TF_STREAM"), 0);
  }
}

TEST(GdnDecodePlan, ADeviceThatNamesNoMultiprocessorsCountsAsOne) {
  Shape shape;
  shape.H = 16;
  shape.G = 3;
  shape.K = shape.V = 128;
  shape.batch = 1;
  Call call(shape);
  DeviceFacts unnamed = kHopper, one = kHopper;
  unnamed.multiprocessors = 0;
  one.multiprocessors = 1;
  const Plan a = plan_of(call.arguments(), call, unnamed);
  const Plan b = plan_of(call.arguments(), call, one);
  EXPECT_EQ(constant(b.launches[0], "TF_STREAM"), 1);
  EXPECT_EQ(b.launches[0].grid.x, 2U);
  EXPECT_EQ(a.launches[0].grid.x, b.launches[0].grid.x);
  EXPECT_TRUE(a.launches[0].variant == b.launches[0].variant);
}

TEST(GdnDecodePlan, SeveralTokensAndLongHistoriesAreForThePortableForm) {
  Shape shape;
  shape.H = 16;
  shape.K = shape.V = 128;
  shape.tokens = 2;
  Call tokens(shape);
  EXPECT_EQ(constant(plan_of(tokens.arguments(), tokens, kHopper).launches[0], "TF_SPLIT"), 1);
  shape.tokens = 1;
  shape.history = 6;
  Call history(shape);
  EXPECT_EQ(constant(plan_of(history.arguments(), history, kHopper).launches[0], "TF_SPLIT"), 1);
}

TEST(GdnDecodePlan, AccessesAreAsWideAsTheStateAllows) {
  const auto vector = [](Shape shape, std::int64_t slot_stride = 0, std::size_t shift = 0) {
    Call call(shape);
    std::vector<Argument> arguments = call.arguments();
    auto& state = std::get<TensorView>(arguments[Position::kState]);
    state.data = reinterpret_cast<void*>(0x10000 + shift);
    if (slot_stride != 0) call.state.strides[0] = slot_stride;
    return constant(plan_of(arguments, call).launches[0], "TF_VECTOR");
  };
  Shape shape;
  EXPECT_EQ(vector(shape), 4);
  EXPECT_EQ(vector(shape, 1000), 4);
  EXPECT_EQ(vector(shape, 1002), 2);
  EXPECT_EQ(vector(shape, 0, 4), 1);
  shape.state = DType::bf16;
  EXPECT_EQ(vector(shape), 8);
  shape.K = 6;
  EXPECT_EQ(vector(shape), 2);
  Shape other;
  other.keys_last = false;
  other.K = other.V = 128;
  EXPECT_EQ(vector(other), 4);  // Of 128 keys a lane holds 8.
  other.K = 256;
  EXPECT_EQ(vector(other), 2);
}

TEST(GdnDecodePlan, PoolsBeyondTwoToThe31ElementsNeedNoOtherKernel) {
  Shape shape;
  Call call(shape);
  std::vector<Argument> arguments = call.arguments();
  const Plan small = plan_of(arguments, call);
  call.state.sizes[0] = call.conv.sizes[0] = 1 << 20;
  call.state.strides[0] = std::int64_t{1} << 33;
  call.conv.strides[0] = std::int64_t{1} << 32;
  const Plan large = plan_of(call.arguments(), call);
  EXPECT_TRUE(small.launches[0].variant == large.launches[0].variant);
}

TEST(GdnDecodePlan, NothingToDoLaunchesNothing) {
  Shape shape;
  shape.batch = 0;
  Call call(shape);
  EXPECT_EQ(plan_of(call.arguments(), call).count, 0U);
}

TEST(GdnDecodePlan, RefusesWhatOneLaunchCannotDo) {
  Shape shape;
  shape.tokens = 200;
  Call many(shape);
  EXPECT_NE(error_of([&] { plan_of(many.arguments(), many); }).find("198 tokens or fewer"),
            std::string::npos);
  shape.tokens = 1;
  Call wide(shape);
  wide.conv.strides[1] = std::int64_t{1} << 30;
  EXPECT_NE(error_of([&] { plan_of(wide.arguments(), wide); }).find("conv_state"),
            std::string::npos);
  // Each stride fits in 32 bits, and what lies so far apart does not.
  shape.conv_bias = true;
  shape.tokens = 3;
  shape.slots = 8;
  shape.history = 5;
  shape.indices = {1, 2, 3, 4, 5, 6};
  shape.accepted = {2, 1};
  Call apart(shape);
  EXPECT_EQ(plan_of(apart.arguments(), apart).count, 1U);
  const auto refusal = [&](Memory& memory) {
    constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;
    std::int64_t& stride = memory.strides.back();
    const std::int64_t before = std::exchange(stride, kMost / (memory.sizes.back() - 1));
    EXPECT_EQ(error_of([&] { plan_of(apart.arguments(), apart); }), "no error");
    ++stride;
    const std::string error = error_of([&] { plan_of(apart.arguments(), apart); });
    stride = before;
    return error;
  };
  for (const auto& [memory, what] : {std::pair{&apart.bias, "conv_bias"},
                                     {&apart.a_log, "A_log"},
                                     {&apart.dt_bias, "dt_bias"},
                                     {&apart.norm_weight, "norm_weight"},
                                     {&apart.indices, "a sequence's indices"}}) {
    EXPECT_NE(refusal(*memory).find("the reach of " + std::string(what)), std::string::npos);
  }
}

TEST(GdnDecodePlan, EveryListedVariantIsDistinctAndComplete) {
  const std::vector<Operator::NamedVariant>& all = gdn_decode_operator().variants;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].variant.count, gdn_decode::constant_names().size());
    for (std::size_t k = 0; k < i; ++k) {
      EXPECT_FALSE(all[i].variant == all[k].variant) << all[i].label;
      EXPECT_NE(all[i].label, all[k].label);
    }
  }
}

}  // namespace
}  // namespace truefuse::gdn_testing
