// The shipped kernel, unchanged, planned as for a device and run in the simulator at wave 32 and 64
// under AddressSanitizer and UndefinedBehaviorSanitizer.

#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <truefuse/operators/bias_gelu/operator.h>

#include "../common/sim_testing.h"

namespace truefuse {
namespace {

using namespace testing;

/// What results may be off by near zero: the spacing of subnormals, or, where bf16's tanh form
/// gives up, its last result.
double smallest_step(DType dtype, bool exact) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-1074;
    case DType::f32:
      return 0x1p-149;
    case DType::f16:
      return 0x1p-24;
    default:
      return exact ? 0x1p-133 : 1.2e-37;
  }
}

double gelu(double v, bool exact) {
  if (exact) return 0.5 * v * std::erfc(-v / std::sqrt(2.0));
  return v / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}

struct Case {
  DType dtype;
  bool exact;
  std::vector<std::int64_t> sizes, strides;
  std::int64_t bias_stride = 1;
  std::size_t shift = 0;  ///< Elements by which x and bias are away from an aligned address.
};

void check(const Case& given, int wave, const std::vector<std::string>& sanitizers,
           const sim::SimOptions& options = {}) {
  const std::int64_t hidden = given.sizes.back();
  const std::size_t size = size_of(given.dtype);
  std::int64_t rows = 1;
  std::int64_t extent = 1;
  std::vector<std::int64_t> out_strides(given.sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = given.sizes.size(); d-- > 0;) {
    if (d + 1 < given.sizes.size()) rows *= given.sizes[d];
    extent += (given.sizes[d] - 1) * given.strides[d];
    out_strides[d] = stride;
    stride *= given.sizes[d];
  }
  const Memory x(static_cast<std::size_t>(extent) * size, given.shift * size);
  const Memory bias((static_cast<std::size_t>((hidden - 1) * given.bias_stride) + 1) * size,
                    given.shift * size);
  const Memory out(static_cast<std::size_t>(rows * hidden) * size, 0);
  std::mt19937 random(5);
  std::normal_distribution<double> normal(0, 3);
  for (std::size_t i = 0; i < x.bytes(); i += size)
    write(x.begin() + i, given.dtype, normal(random));
  for (std::size_t i = 0; i < bias.bytes(); i += size) {
    write(bias.begin() + i, given.dtype, normal(random));
  }

  const std::vector<std::int64_t> bias_size{hidden}, bias_stride{given.bias_stride};
  const Device device{DeviceType::cuda, 0};
  const std::vector<Argument> arguments{
      TensorView{given.dtype, device, given.sizes, given.strides, x.begin()},
      TensorView{given.dtype, device, bias_size, bias_stride, bias.begin()},
      std::string_view(given.exact ? "none" : "tanh")};
  const std::vector<TensorView> outputs{
      {given.dtype, device, given.sizes, out_strides, out.begin()}};
  Plan plan;
  bias_gelu::plan({arguments, outputs}, DeviceFacts{"gfx906", 60, wave, 65536}, plan);
  ASSERT_EQ(plan.count, 1U);
  const std::vector<sim::HostRange> ranges{{x.begin(), x.bytes(), false},
                                           {bias.begin(), bias.bytes(), false},
                                           {out.begin(), out.bytes(), true}};
  const sim::SimOutcome outcome =
      sim::run(executable(bias_gelu_operator(), plan.launches[0], wave, sanitizers),
               plan.launches[0], ranges, options);
  ASSERT_FALSE(outcome.fault.has_value()) << outcome.fault->text() << outcome.fault->details;

  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t rest = row;
    std::int64_t offset = 0;
    for (std::size_t d = given.sizes.size() - 1; d-- > 0;) {
      offset += rest % given.sizes[d] * given.strides[d];
      rest /= given.sizes[d];
    }
    for (std::int64_t column = 0; column < hidden; ++column) {
      const double v =
          value_of(x.begin() + static_cast<std::size_t>(offset + column) * size, given.dtype) +
          value_of(bias.begin() + static_cast<std::size_t>(column * given.bias_stride) * size,
                   given.dtype);
      const double got = value_of(
          out.begin() + static_cast<std::size_t>(row * hidden + column) * size, given.dtype);
      const double want = gelu(v, given.exact);
      // One rounding in the sum, which the steep tail enlarges, and a few in the function.
      const double rounding = 2 * std::abs(v) * std::max(epsilon(given.dtype) / 65536, 0x1p-23);
      const double sum_rounding = given.dtype == DType::f64 ? 2 * std::abs(v) * 0x1p-52 : rounding;
      const double slope =
          std::abs(gelu(v + sum_rounding, given.exact) - gelu(v - sum_rounding, given.exact));
      const double spacing = smallest_step(given.dtype, given.exact);
      EXPECT_LE(std::abs(got - want),
                4 * epsilon(given.dtype) * std::abs(want) + 4 * slope + spacing)
          << "row " << row << " column " << column << " v " << v << " got " << got;
    }
  }
}

TEST(BiasGeluSimulated, EveryDtypeAndFormAtWave64) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const bool exact : {false, true}) {
      check({dtype, exact, {5, 64}, {64, 1}}, 64, kMemorySafe);
      check({dtype, exact, {3, 33}, {33, 1}}, 64, kMemorySafe);
    }
  }
}

TEST(BiasGeluSimulated, Wave32GivesTheSame) {
  check({DType::f32, false, {5, 64}, {64, 1}}, 32, kMemorySafe);
  check({DType::bf16, true, {7, 40}, {40, 1}}, 32, kMemorySafe);
  check({DType::bf16, true, {7, 41}, {41, 1}}, 32, kMemorySafe);
}

TEST(BiasGeluSimulated, WidthsAroundEveryTileEdge) {
  for (const std::int64_t hidden : {1, 2, 3, 31, 32, 33, 127, 128, 129, 509, 512, 516, 1028}) {
    check({DType::f32, false, {2, hidden}, {hidden, 1}}, 64, kMemorySafe);
  }
  check({DType::f32, false, {1030, 4}, {4, 1}}, 64, kMemorySafe);
  check({DType::f32, false, {300, 1}, {1, 1}}, 64, kMemorySafe);
}

TEST(BiasGeluSimulated, StridesAlignmentsAndBiasLayouts) {
  check({DType::f32, false, {4, 64}, {80, 1}}, 64, kMemorySafe);          // Sliced columns.
  check({DType::f32, false, {4, 64}, {64, 1}, 1, 1}, 64, kMemorySafe);    // Unaligned.
  check({DType::f32, false, {4, 64}, {64, 1}, 0}, 64, kMemorySafe);       // Expanded bias.
  check({DType::f32, false, {4, 64}, {64, 1}, 3}, 64, kMemorySafe);       // Strided bias.
  check({DType::f32, false, {4, 64}, {0, 1}}, 64, kMemorySafe);           // Expanded rows.
  check({DType::f32, false, {3, 2, 64}, {192, 64, 1}}, 64, kMemorySafe);  // x[:, 1:, :].
  check({DType::f32, false, {2, 3, 33}, {33, 66, 1}}, 64, kMemorySafe);   // Transposed rows.
  check({DType::f32, false, {2, 2, 3, 33}, {1000, 90, 200, 1}}, 64, kMemorySafe);
}

TEST(BiasGeluSimulated, NoTwoLanesTouchTheSameOutput) {
  sim::SimOptions options;
  options.lane_order = sim::SimOrder::random;
  options.block_order = sim::SimOrder::reverse;
  check({DType::f32, false, {9, 132}, {132, 1}}, 64, {"race"}, options);
  check({DType::bf16, false, {9, 33}, {33, 1}}, 64, {"race"}, options);
}

}  // namespace
}  // namespace truefuse
