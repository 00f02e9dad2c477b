#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include <truefuse/operators/common/elementwise_plan.h>
#include <truefuse/operators/gated/operator.h>
#include <truefuse/operators/swish/operator.h>

namespace truefuse {
namespace {

using Shape = std::vector<std::int64_t>;
template <int kRowDims>
using Grid = common::ElementwiseGrid<2, kRowDims>;

void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

TensorView view(DType dtype, const Shape& sizes, const Shape& strides, std::uintptr_t address) {
  return {dtype, {DeviceType::cuda, 0}, sizes, strides, pointer(address)};
}

Plan plan_swish(DType dtype, const Shape& sizes, const Shape& strides, const Shape& out_strides,
                std::uintptr_t x = 0x1000) {
  const std::vector<Argument> arguments{view(dtype, sizes, strides, x)};
  const std::vector<TensorView> outputs{view(dtype, sizes, out_strides, 0x100000)};
  Plan plan;
  swish_operator().plan({arguments, outputs}, {}, plan);
  return plan;
}

template <int kRowDims>
Grid<kRowDims> grid_of(const Plan& plan) {
  Grid<kRowDims> grid;
  const KernelParameters& parameters = plan.launches[0].parameters;
  EXPECT_EQ(parameters.slot(2).size, sizeof grid);
  std::memcpy(&grid, parameters.data(2), sizeof grid);
  return grid;
}

std::int64_t constant(const Plan& plan, std::string_view name) {
  const auto names = gated::constant_names();  // Begin as those of every elementwise operator.
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return plan.launches[0].variant.values[i];
  }
  throw Error("no constant named " + std::string(name));
}

TEST(ElementwisePlan, MemoryWithoutGapsIsOneRunWhateverItsShape) {
  const std::int64_t n = 4194304;
  for (const auto& [sizes, strides] : std::vector<std::pair<Shape, Shape>>{
           {{n}, {1}}, {{n, 1}, {1, 1}}, {{1, n}, {n, 1}}, {{64, 65536}, {1, 64}}}) {
    const Plan plan = plan_swish(DType::bf16, sizes, strides, strides);
    ASSERT_EQ(plan.count, 1U);
    EXPECT_EQ(constant(plan, "TF_VECTOR"), 8);
    EXPECT_EQ(constant(plan, "TF_ROW_DIMS"), 0);
    const Grid<0> grid = grid_of<0>(plan);
    EXPECT_EQ(grid.elements, n);
    EXPECT_EQ(grid.tiles, n / 1024);
    EXPECT_EQ(plan.launches[0].grid.x, grid.tiles);
  }
}

TEST(ElementwisePlan, WhatIsNoVectorIsCutIntoRows) {
  const Plan plan =
      plan_swish(DType::f32, {1025}, {2}, {1});  // Every second element: the loose one.
  EXPECT_EQ(constant(plan, "TF_ROW_DIMS"), 1);
  const Grid<1> grid = grid_of<1>(plan);
  EXPECT_EQ((grid.rows - 1) * grid.columns + grid.last_columns, 1025);
  EXPECT_EQ(grid.columns % 4, 0);
  EXPECT_EQ(plan.launches[0].grid.x, grid.tiles.count);
}

TEST(ElementwisePlan, ALastVectorMayBeShort) {
  const Plan plan = plan_swish(DType::f32, {1025}, {1}, {1});
  EXPECT_EQ(constant(plan, "TF_VECTOR"), 4);
  EXPECT_EQ(grid_of<0>(plan).elements, 1025);
  EXPECT_EQ(grid_of<0>(plan).tiles, 3U);
}

TEST(ElementwisePlan, SizesBeyond32BitsAndTheLaunchLimit) {
  const std::int64_t n = (std::int64_t{1} << 35) + 7;
  const Plan plan = plan_swish(DType::bf16, {n}, {1}, {1});
  EXPECT_EQ(grid_of<0>(plan).elements, n);
  EXPECT_LT(std::uint64_t{plan.launches[0].grid.x} * plan.launches[0].block.x,
            std::uint64_t{1} << 32);
  EXPECT_THROW(plan_swish(DType::bf16, {std::int64_t{1} << 45}, {1}, {1}), Error);
  // Rows whose numbers do not fit 31 bits are none of the short ones.
  const std::int64_t far = std::int64_t{1} << 31;
  EXPECT_EQ(constant(plan_swish(DType::bf16, {2, 8}, {far - 8, 1}, {far - 8, 1}), "TF_ROW_DIMS"),
            1);
  EXPECT_EQ(constant(plan_swish(DType::bf16, {2, 8}, {far, 1}, {far, 1}), "TF_ROW_DIMS"),
            common::kMaxRowDims);
}

TEST(ElementwisePlan, RowsThatOneRunIsCutIntoMayLieFarApart) {
  // A column of a matrix. With short rows 31 bits hold how far apart they are.
  for (const std::int64_t stride : {std::int64_t{1} << 18, std::int64_t{1} << 22}) {
    for (const std::uintptr_t out : {0x100000, 0x100002}) {
      const Shape sizes{9000}, strides{stride}, out_strides{1};
      const std::vector<Argument> arguments{view(DType::bf16, sizes, strides, 0x1000)};
      const std::vector<TensorView> outputs{view(DType::bf16, sizes, out_strides, out)};
      for (const int threads : {128, 512}) {
        DeviceFacts device;
        device.tuned = {{"swish", DType::bf16, {threads, 0, 16}}};
        Plan plan;
        swish_operator().plan({arguments, outputs}, device, plan);
        if (constant(plan, "TF_ROW_DIMS") == 1) {
          EXPECT_LT(grid_of<1>(plan).row_strides[1][0], std::int64_t{1} << 31);
        } else {
          EXPECT_EQ(constant(plan, "TF_ROW_DIMS"), common::kMaxRowDims);
          const auto grid = grid_of<common::kMaxRowDims>(plan);
          EXPECT_EQ(grid.row_strides[1][0], grid.columns * stride);
          EXPECT_GT(stride, std::int64_t{1} << 18);
        }
      }
    }
  }
}

TEST(ElementwisePlan, NothingIsLaunchedForNothing) {
  EXPECT_EQ(plan_swish(DType::f32, {4, 0}, {1, 1}, {1, 1}).count, 0U);
}

TEST(ElementwisePlan, TheLooseInputDecidesNothing) {
  // Misaligned, expanded or in another order: the output is still written in vectors.
  EXPECT_EQ(constant(plan_swish(DType::f32, {8, 8}, {8, 1}, {8, 1}, 0x1004), "TF_VECTOR"), 4);
  EXPECT_EQ(constant(plan_swish(DType::f32, {8, 8}, {0, 0}, {8, 1}), "TF_VECTOR"), 4);
  EXPECT_EQ(constant(plan_swish(DType::f32, {8, 8}, {1, 8}, {8, 1}), "TF_VECTOR"), 4);
  EXPECT_EQ(grid_of<1>(plan_swish(DType::f32, {8, 8}, {8, 1}, {8, 1}, 0x1004)).loose_is_vector, 0U);
}

/// Every plan asks for a variant that is listed, so that preparing compiles all that a call can
/// need.
TEST(ElementwisePlan, EveryVariantIsListed) {
  const auto is_listed = [](const Operator& op, const Plan& plan) {
    for (const Operator::NamedVariant& named : op.variants) {
      if (named.variant == plan.launches[0].variant &&
          std::string_view(named.kernel) == plan.launches[0].kernel) {
        return true;
      }
    }
    return false;
  };
  const Shape packed_sizes{6, 32}, packed_strides{32, 1}, sizes{6, 16}, strides{16, 1};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    EXPECT_TRUE(is_listed(swish_operator(), plan_swish(dtype, sizes, strides, strides)));
    EXPECT_TRUE(is_listed(swish_operator(), plan_swish(dtype, {6, 7}, {70, 2}, {7, 1})));
    for (const std::string_view packing : {"gate|up", "up,gate interleaved"}) {
      for (const std::uintptr_t address : {0x1000, 0x1008 + 0x2}) {
        const std::vector<Argument> arguments{view(dtype, packed_sizes, packed_strides, address),
                                              packing, std::string_view("none")};
        const std::vector<TensorView> outputs{view(dtype, sizes, strides, 0x100000)};
        Plan plan;
        swiglu_packed_operator().plan({arguments, outputs}, {}, plan);
        EXPECT_TRUE(is_listed(swiglu_packed_operator(), plan));
        EXPECT_EQ(constant(plan, "TF_VECTOR") > 1, address == 0x1000);
        EXPECT_EQ(constant(plan, "TF_PAIRS") == 1, address == 0x1000 && packing.size() > 7);
      }
    }
  }
}

}  // namespace
}  // namespace truefuse
