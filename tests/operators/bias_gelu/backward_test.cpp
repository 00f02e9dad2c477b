// The backward operator's plan, and its kernels, planned as for a device and run in the simulator
// at wave 32 and 64 under AddressSanitizer and UndefinedBehaviorSanitizer.

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <vector>

#include <truefuse/operators/bias_gelu/backward.h>
#include <truefuse/operators/common/tiling.h>

#include "../common/sim_testing.h"

namespace truefuse {
namespace {

using namespace bias_gelu::backward;
using namespace testing;

double derivative(double v, bool exact) {
  if (exact) {
    return 0.5 * std::erfc(-v / std::sqrt(2.0)) + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
  }
  const double two_root = 2 * std::sqrt(2 / M_PI);
  const double e = std::exp(-two_root * (v + 0.044715 * v * v * v));
  const double s = 1 / (1 + e), rest = e / (1 + e);  // 1 - s would cancel.
  return s + v * s * rest * two_root * (1 + 3 * 0.044715 * v * v);
}

/// Of a derivative before it is rounded: the half types' approximations are good to some 0.03 ulp.
double term_unit(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::f32:
      return 0x1p-23;
    case DType::f16:
      return 0x1p-20;
    default:
      return 0x1p-15;
  }
}

/// Sizes and strides of a call: x and bias as they lie, grad_out of the same sizes.
struct Case {
  DType dtype = DType::f32;
  bool exact = false;
  std::vector<std::int64_t> sizes = {}, strides = {};  // Of x.
  std::vector<std::int64_t> grad_strides = {};         // Empty: dense.
  std::int64_t bias_stride = 1;
  std::size_t shift = 0;  ///< Elements by which all inputs are away from an aligned address.
  bool x_wanted = true, bias_wanted = true;
  int multiprocessors = 60;
};

class Arguments {
 public:
  Arguments(const Case& given, void* grad, void* x, void* bias, void* grad_x, void* grad_bias)
      : given_(given) {
    const Device device{DeviceType::cuda, 0};
    std::int64_t stride = 1;
    dense_.resize(given_.sizes.size());
    for (std::size_t d = given_.sizes.size(); d-- > 0;) {
      dense_[d] = stride;
      stride *= std::max<std::int64_t>(given_.sizes[d], 1);
    }
    if (given_.grad_strides.empty()) given_.grad_strides = dense_;
    bias_size_ = {given_.sizes.back()};
    bias_stride_ = {given_.bias_stride};
    arguments_ = {TensorView{given_.dtype, device, given_.sizes, given_.grad_strides, grad},
                  TensorView{given_.dtype, device, given_.sizes, given_.strides, x},
                  TensorView{given_.dtype, device, bias_size_, bias_stride_, bias},
                  std::string_view(given_.exact ? "none" : "tanh"),
                  given_.x_wanted,
                  given_.bias_wanted};
    outputs_ = {TensorView{given_.dtype, device, given_.sizes, dense_, grad_x},
                TensorView{given_.dtype, device, bias_size_, one_, grad_bias}};
  }
  Arguments(const Arguments&) = delete;

  Plan plan(int wave = 64) const {
    Plan plan;
    bias_gelu::backward::plan({arguments_, outputs_},
                              DeviceFacts{"gfx906", given_.multiprocessors, wave, 65536}, plan);
    return plan;
  }
  const Case& given() const { return given_; }

 private:
  Case given_;
  std::vector<std::int64_t> dense_, bias_size_, bias_stride_, one_{1};
  std::vector<Argument> arguments_;
  std::vector<TensorView> outputs_;
};

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

Plan plan_of(const Case& given) {
  const std::size_t shift = given.shift * size_of(given.dtype);
  return Arguments(given, pointer(0x10000 + shift), pointer(0x20000 + shift),
                   pointer(0x30000 + shift), pointer(0x40000), pointer(0x50000))
      .plan();
}

TEST(BiasGeluBackwardPlan, LaunchesNothingWhereNothingIsWantedOrThereIsNothing) {
  EXPECT_EQ(plan_of({.sizes = {4, 0}, .strides = {1, 1}}).count, 0U);
  Case nothing{.sizes = {4, 8}, .strides = {8, 1}};
  nothing.x_wanted = nothing.bias_wanted = false;
  EXPECT_EQ(plan_of(nothing).count, 0U);
  Case no_rows{.sizes = {0, 8}, .strides = {8, 1}};
  EXPECT_EQ(plan_of(no_rows).count, 1U) << "grad_bias is zeros";
  no_rows.bias_wanted = false;
  EXPECT_EQ(plan_of(no_rows).count, 0U);
}

TEST(BiasGeluBackwardPlan, OneTileOfRowsNeedsNoSecondKernelAndNoScratch) {
  const Plan one = plan_of({.sizes = {32, 1024}, .strides = {1024, 1}});
  EXPECT_EQ(one.count, 1U);
  EXPECT_EQ(one.scratch_bytes, 0U);
  const Plan two = plan_of({.sizes = {4096, 1024}, .strides = {1024, 1}});
  EXPECT_EQ(two.count, 2U);
  EXPECT_GT(two.scratch_bytes, 0U);
  // The partial sums are little beside the data, of which 12 bytes per element move.
  EXPECT_LT(two.scratch_bytes * 20, 4096U * 1024 * 12);
  Case unwanted{.sizes = {4096, 1024}, .strides = {1024, 1}};
  unwanted.bias_wanted = false;
  EXPECT_EQ(plan_of(unwanted).count, 1U);
  EXPECT_EQ(plan_of(unwanted).scratch_bytes, 0U);
}

TEST(BiasGeluBackwardPlan, OneRoundOfBlocksLeavesFewMultiprocessorsIdle) {
  for (const std::int64_t hidden : {1024, 2560, 4096, 11008, 14336, 28672}) {
    const Plan plan =
        plan_of({.sizes = {16384, hidden}, .strides = {hidden, 1}, .multiprocessors = 132});
    constexpr double kThreads = 132.0 * 1280;  // As many as the registers leave room for.
    const double busy = plan.launches[0].grid.x * plan.launches[0].block.x / kThreads;
    EXPECT_LE(busy, 1.0) << hidden;
    EXPECT_GE(busy, 0.8) << hidden;
  }
}

TEST(BiasGeluBackwardPlan, ScratchDependsOnMoreThanShapes) {
  const Case given{.sizes = {4096, 1024}, .strides = {1024, 1}};
  Case shifted = given, smaller = given;
  shifted.shift = 1;
  smaller.multiprocessors = 8;
  EXPECT_NE(plan_of(shifted).scratch_bytes, plan_of(given).scratch_bytes);
  EXPECT_NE(plan_of(smaller).scratch_bytes, plan_of(given).scratch_bytes);
}

TEST(BiasGeluBackwardPlan, ADeviceThatNamesNoMultiprocessorsCountsAsOne) {
  Case given{.sizes = {4096, 1024}, .strides = {1024, 1}, .multiprocessors = 0};
  const Plan unnamed = plan_of(given);
  given.multiprocessors = 1;
  const Plan one = plan_of(given);
  EXPECT_EQ(unnamed.launches[0].grid.x, one.launches[0].grid.x);
  EXPECT_EQ(unnamed.scratch_bytes, one.scratch_bytes);
}

TEST(BiasGeluBackwardPlan, RandomCallsAskForFewVariantsAndAllAreListed) {
  const auto listed = variants({});
  std::mt19937 random(3);
  const auto pick = [&](int n) { return static_cast<std::int64_t>(random() % n); };
  std::set<std::vector<std::int64_t>> used;
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t hidden = 1 + pick(300), inner = 1 + pick(40), padding = pick(3) * 4;
    Case given{.dtype = DType::bf16, .sizes = {3, inner, hidden}};
    given.strides = {(inner + pick(2)) * (hidden + padding), hidden + padding, 1};
    switch (pick(4)) {
      case 0:
        given.grad_strides = {0, 0, 0};
        break;
      case 1:
        given.grad_strides = {1, 3, 3 * inner};
        break;
      case 2:
        given.grad_strides = {2 * inner * hidden, 2 * hidden, 1};
        break;
    }
    given.shift = static_cast<std::size_t>(pick(2));
    given.x_wanted = pick(3) > 0;
    given.bias_stride = pick(3);
    const Plan plan = plan_of(given);
    for (const Launch& launch : plan.view()) {
      EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&](const auto& named) {
        return named.variant == launch.variant && std::string_view(named.kernel) == launch.kernel;
      }));
      used.insert({launch.variant.begin(), launch.variant.end()});
    }
  }
  EXPECT_LE(used.size(), 7U);
  EXPECT_GE(used.size(), 3U);
}

TEST(BiasGeluBackwardPlan, HugeCallsStayWithinGridsAndTileNumbers) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{65536, 1},
                                                                  {4194304, 1},
                                                                  {std::int64_t{1} << 33, 1},
                                                                  {1, std::int64_t{1} << 33},
                                                                  {std::int64_t{1} << 20, 8192},
                                                                  {std::int64_t{1} << 31, 16}}) {
    const Plan plan = plan_of({.dtype = DType::bf16, .sizes = sizes, .strides = {sizes[1], 1}});
    for (const Launch& launch : plan.view()) {
      EXPECT_GE(launch.grid.x, 1U);
      EXPECT_LT(std::uint64_t{launch.grid.x} * launch.block.x, std::uint64_t{1} << 32U);
      EXPECT_EQ(launch.block.x % 64, 0U);
    }
    EXPECT_LE(plan.scratch_bytes, static_cast<std::size_t>(sizes[0] * sizes[1] / 16 + (1 << 20)));
  }
}

void check(const Case& asked, int wave, const std::vector<std::string>& sanitizers = kMemorySafe,
           const sim::SimOptions& options = {}) {
  const std::int64_t hidden = asked.sizes.back();
  const std::size_t size = size_of(asked.dtype);
  const Arguments shape(asked, nullptr, nullptr, nullptr, nullptr, nullptr);
  const Case& given = shape.given();
  std::int64_t rows = 1, x_extent = 1, grad_extent = 1;
  for (std::size_t d = 0; d < given.sizes.size(); ++d) {
    if (d + 1 < given.sizes.size()) rows *= given.sizes[d];
    x_extent += (given.sizes[d] - 1) * given.strides[d];
    grad_extent += (given.sizes[d] - 1) * given.grad_strides[d];
  }
  const auto memory = [&](std::int64_t elements, std::size_t shift) {
    return Memory(static_cast<std::size_t>(elements) * size, shift * size);
  };
  const Memory grad = memory(grad_extent, given.shift), x = memory(x_extent, given.shift);
  const Memory bias = memory((hidden - 1) * given.bias_stride + 1, given.shift);
  const Memory grad_x = memory(rows * hidden, 0), grad_bias = memory(hidden, 0);
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 2);
  for (const Memory* input : {&grad, &x, &bias}) {
    for (std::size_t i = 0; i < input->bytes(); i += size) {
      write(input->begin() + i, given.dtype, normal(random));
    }
  }
  const Arguments arguments(given, grad.begin(), x.begin(), bias.begin(),
                            given.x_wanted ? grad_x.begin() : nullptr,
                            given.bias_wanted ? grad_bias.begin() : nullptr);
  std::vector<sim::HostRange> ranges;
  for (const Memory* input : {&grad, &x, &bias}) {
    ranges.push_back({input->begin(), input->bytes(), false});
  }
  if (given.x_wanted) ranges.push_back({grad_x.begin(), grad_x.bytes(), true});
  if (given.bias_wanted) ranges.push_back({grad_bias.begin(), grad_bias.bytes(), true});
  const auto executable_of = [&](const Launch& launch) {
    return executable(bias_gelu_backward_operator(), launch, wave, sanitizers);
  };
  const sim::SimOutcome outcome = sim::run(executable_of, arguments.plan(wave), ranges, options);
  ASSERT_FALSE(outcome.fault.has_value()) << outcome.fault->text() << outcome.fault->details;

  const auto at = [&](const Memory& values, std::int64_t i) {
    return value_of(values.begin() + static_cast<std::size_t>(i) * size, given.dtype);
  };
  const double unit = std::max(epsilon(given.dtype), given.dtype == DType::f64 ? 0 : 0x1p-23);
  const double sum_unit = term_unit(given.dtype);
  std::vector<double> sums(static_cast<std::size_t>(hidden), 0), sizes_of_sums(sums);
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row, x_offset = 0, grad_offset = 0;
    for (std::size_t d = given.sizes.size() - 1; d-- > 0;) {
      x_offset += rest % given.sizes[d] * given.strides[d];
      grad_offset += rest % given.sizes[d] * given.grad_strides[d];
      rest /= given.sizes[d];
    }
    for (std::int64_t column = 0; column < hidden; ++column) {
      const double v = at(x, x_offset + column) + at(bias, column * given.bias_stride);
      const double g = at(grad, grad_offset + column * given.grad_strides.back());
      const double want = g * derivative(v, given.exact);
      const auto c = static_cast<std::size_t>(column);
      sums[c] += want;
      sizes_of_sums[c] += std::abs(g);
      if (!given.x_wanted) continue;
      // The sum v is rounded, and the terms of the derivative are up to 1. In f64 what is wanted
      // has been rounded as often as the kernel's.
      const double roundings = given.dtype == DType::f64 ? 32 : 8;
      EXPECT_NEAR(at(grad_x, row * hidden + column), want,
                  unit * std::abs(want) + roundings * sum_unit * std::abs(g))
          << "row " << row << " column " << column << " v " << v;
    }
  }
  for (std::int64_t column = 0; given.bias_wanted && column < hidden; ++column) {
    const auto c = static_cast<std::size_t>(column);
    EXPECT_NEAR(at(grad_bias, column), sums[c],
                unit * std::abs(sums[c]) + 16 * sum_unit * sizes_of_sums[c])
        << "column " << column;
  }
}

TEST(BiasGeluBackwardSimulated, EveryDtypeAndForm) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const bool exact : {false, true}) {
      check({.dtype = dtype, .exact = exact, .sizes = {70, 64}, .strides = {64, 1}}, 64);
      check({.dtype = dtype, .exact = exact, .sizes = {7, 33}, .strides = {33, 1}}, 32);
    }
  }
}

TEST(BiasGeluBackwardSimulated, SeveralRowTilesAndWidthsAroundEveryTileEdge) {
  for (const std::int64_t hidden : {1, 2, 31, 32, 33, 128, 132, 260}) {
    check({.sizes = {600, hidden}, .strides = {hidden, 1}, .multiprocessors = 1}, 64);
  }
  check({.sizes = {5000, 1}, .strides = {1, 1}, .multiprocessors = 1}, 32);
  check({.dtype = DType::bf16, .sizes = {300, 264}, .strides = {264, 1}, .multiprocessors = 2}, 32);
  // Groups of rows, the last of which lacks some; wider tiles, where narrow ones leave more idle.
  for (const std::int64_t rows : {515, 529, 700}) {
    check({.dtype = DType::bf16, .sizes = {rows, 640}, .strides = {640, 1}, .multiprocessors = 2},
          32);
  }
}

TEST(BiasGeluBackwardSimulated, GradientsOfAnyStrides) {
  const Case dense{.sizes = {6, 70, 32}, .strides = {2240, 32, 1}};
  for (const std::vector<std::int64_t>& strides : std::vector<std::vector<std::int64_t>>{
           {0, 0, 0},        // Of a sum.
           {0, 0, 1},        // Of a sum over rows.
           {4480, 64, 1},    // Half of a wider tensor, as of a cat.
           {4480, 64, 2},    // Every second column.
           {1, 6, 420},      // Transposed.
           {33, 198, 1}}) {  // Other rows first, unaligned.
    Case given = dense;
    given.grad_strides = strides;
    check(given, 64);
  }
}

TEST(BiasGeluBackwardSimulated, StridesAlignmentsAndBiasLayouts) {
  check({.sizes = {40, 64}, .strides = {80, 1}}, 64);
  check({.sizes = {40, 64}, .strides = {64, 1}, .shift = 1}, 64);
  check({.sizes = {40, 64}, .strides = {64, 1}, .bias_stride = 0}, 64);
  check({.sizes = {40, 64}, .strides = {64, 1}, .bias_stride = 3}, 64);
  check({.sizes = {40, 64}, .strides = {0, 1}}, 64);
  check({.sizes = {3, 20, 64}, .strides = {1344, 64, 1}}, 64);
  check({.sizes = {2, 3, 33}, .strides = {33, 66, 1}}, 64);
}

TEST(BiasGeluBackwardSimulated, OnlyWhatIsWantedIsWritten) {
  for (const std::int64_t rows : {5, 400}) {
    for (const bool x_wanted : {true, false}) {
      check({.sizes = {rows, 36},
             .strides = {36, 1},
             .x_wanted = x_wanted,
             .bias_wanted = !x_wanted,
             .multiprocessors = 1},
            64);
    }
  }
  check({.sizes = {0, 36}, .strides = {36, 1}}, 64);
}

TEST(BiasGeluBackwardSimulated, NoRaceAndTheSameBitsInAnyOrder) {
  sim::SimOptions options;
  options.lane_order = sim::SimOrder::random;
  options.block_order = sim::SimOrder::reverse;
  check({.sizes = {300, 132}, .strides = {132, 1}, .multiprocessors = 1}, 64, {"race"}, options);
  check({.dtype = DType::bf16, .sizes = {9, 33}, .strides = {33, 1}}, 32, {"race"}, options);
}

}  // namespace
}  // namespace truefuse
