// Maps of rows: what a kernel's parameter `tf::RowMap x_rows` is given, and x.row_alignment.

#include <cstring>

#include <truefuse/device/rows.h>

#include "describing.h"

namespace truefuse::description {
namespace {

const std::string kText = R"(operator: mine::copy
summary:  rows
schema:   copy(Tensor x) -> Tensor
contract: x: f32 [rows.., hidden] rows-strided -> out: f32 [rows.., hidden] contiguous
kernel:   kernel.hip
constants:
  TF_VECTOR = min(x.row_alignment, out.row_alignment) >= 16 && hidden % 4 == 0 ? 4 : 1
launch: copy
  grid = 1
  block = 64
reference: reference
)";
const std::string kKernel = R"(#include "truefuse/device.h"
TF_KERNEL(64) void copy(float* out, const float* x, TF_PARAMETER tf::RowMap x_rows, tf::i64 rows) {}
)";

/// The plan of a call with such an x.
Plan planned(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
             std::uintptr_t address = 0x1000) {
  static const auto made = testing::described(kText, kKernel);
  std::vector<std::int64_t> dense(sizes.size(), 1);
  for (std::size_t d = sizes.size() - 1; d-- > 0;) dense[d] = dense[d + 1] * sizes[d + 1];
  const std::vector<Argument> arguments{
      TensorView{DType::f32, {}, sizes, strides, reinterpret_cast<void*>(address)}};
  const std::vector<TensorView> outputs{
      {DType::f32, {}, sizes, dense, reinterpret_cast<void*>(0x9000)}};
  Plan plan;
  made->op.plan({arguments, outputs}, {}, plan);
  return plan;
}

tf::RowMap map_of(const Plan& plan) {
  tf::RowMap map;
  EXPECT_EQ(plan.launches[0].parameters.slot(2).size, sizeof map);
  std::memcpy(&map, plan.launches[0].parameters.data(2), sizeof map);
  return map;
}

TEST(RowMaps, say_where_each_row_begins) {
  const tf::RowMap map = map_of(planned({3, 5, 8}, {100, 12, 1}));
  EXPECT_EQ(map.dims, 2);
  for (std::int64_t row = 0; row < 15; ++row) {
    EXPECT_EQ(tf::row_offset(map, row), row / 5 * 100 + row % 5 * 12);
  }
  EXPECT_EQ(map_of(planned({3, 5, 8}, {40, 8, 1})).dims, 1);
  EXPECT_EQ(tf::row_offset(map_of(planned({8}, {1})), 0), 0);
}

TEST(RowMaps, row_alignment_is_that_of_all_rows) {
  const auto vector = [](const Plan& plan) { return plan.launches[0].variant.values[0]; };
  EXPECT_EQ(vector(planned({3, 5, 8}, {100, 12, 1})), 4);
  EXPECT_EQ(vector(planned({3, 5, 8}, {101, 12, 1})), 1);
  EXPECT_EQ(vector(planned({1, 5, 8}, {101, 12, 1})), 4);  // No row is a stride of it away.
  EXPECT_EQ(vector(planned({3, 5, 8}, {100, 14, 1})), 1);
  EXPECT_EQ(vector(planned({3, 5, 8}, {100, 12, 1}, 0x1004)), 1);
}

}  // namespace
}  // namespace truefuse::description
