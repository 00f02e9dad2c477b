#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <vector>

#include <truefuse/operators/bias_gelu/operator.h>
#include <truefuse/operators/common/tiling.h>

namespace truefuse {
namespace {

/// A call made of sizes and strides alone; the pointers are never followed.
class FakeCall {
 public:
  FakeCall(DType dtype, std::vector<std::int64_t> sizes, std::vector<std::int64_t> strides,
           std::string_view approximate = "tanh")
      : sizes_(std::move(sizes)), strides_(std::move(strides)) {
    const std::int64_t hidden = sizes_.back();
    bias_size_ = {hidden};
    out_strides_.resize(sizes_.size());
    std::int64_t stride = 1;
    for (std::size_t d = sizes_.size(); d-- > 0;) {
      out_strides_[d] = stride;
      stride *= std::max<std::int64_t>(sizes_[d], 1);
    }
    arguments_ = {TensorView{dtype, kGpu, sizes_, strides_, pointer(0x10000)},
                  TensorView{dtype, kGpu, bias_size_, bias_stride_, pointer(0x20000)}, approximate};
    outputs_ = {TensorView{dtype, kGpu, sizes_, out_strides_, pointer(0x30000)}};
  }

  TensorView& x() { return std::get<TensorView>(arguments_[0]); }
  TensorView& bias() { return std::get<TensorView>(arguments_[1]); }
  TensorView& out() { return outputs_[0]; }
  void set_bias_stride(std::int64_t stride) { bias_stride_[0] = stride; }

  static void* pointer(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

  Plan plan() const {
    Plan plan;
    DeviceFacts facts;
    facts.arch = "gfx906";
    facts.wave = 64;
    bias_gelu::plan({arguments_, outputs_}, facts, plan);
    return plan;
  }

 private:
  static constexpr Device kGpu{DeviceType::cuda, 0};
  std::vector<std::int64_t> sizes_, strides_, out_strides_, bias_size_;
  std::vector<std::int64_t> bias_stride_{1};
  std::vector<Argument> arguments_;
  std::vector<TensorView> outputs_;
};

std::int64_t constant(const Launch& launch, std::string_view name) {
  const auto names = bias_gelu::constant_names();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return launch.variant.values[i];
  }
  throw Error("no constant named " + std::string(name));
}

using common::TileMap;

template <class T>
T parameter(const Launch& launch, std::size_t i) {
  T value;
  EXPECT_EQ(launch.parameters.slot(i).size, sizeof value);
  std::memcpy(&value, launch.parameters.data(i), sizeof value);
  return value;
}

bool is_dense(const Launch& launch) { return constant(launch, "TF_ROW_DIMS") == 0; }

/// Of the rows, or of the vectors where there are no gaps between rows.
TileMap tiles_of(const Launch& launch) {
  return parameter<TileMap>(launch, is_dense(launch) ? 3 : 8);
}

TEST(BiasGeluPlan, EmptyInputLaunchesNothing) {
  EXPECT_EQ(FakeCall(DType::f32, {0, 8}, {8, 1}).plan().count, 0U);
  EXPECT_EQ(FakeCall(DType::f32, {4, 0}, {1, 1}).plan().count, 0U);
  EXPECT_EQ(FakeCall(DType::f32, {3, 0, 8}, {8, 8, 1}).plan().count, 0U);
}

TEST(BiasGeluPlan, AlignedRowsMoveSixteenBytesAtOnce) {
  for (const auto& [dtype, elements] : std::map<DType, std::int64_t>{
           {DType::f64, 2}, {DType::f32, 4}, {DType::f16, 8}, {DType::bf16, 8}}) {
    const Plan plan = FakeCall(dtype, {1024, 768}, {768, 1}).plan();
    ASSERT_EQ(plan.count, 1U);
    EXPECT_EQ(constant(plan.launches[0], "TF_VECTOR"), elements);
  }
}

TEST(BiasGeluPlan, AnythingUnalignedMovesElements) {
  const auto vector_of = [](FakeCall call) {
    return constant(call.plan().launches[0], "TF_VECTOR");
  };
  EXPECT_EQ(vector_of({DType::bf16, {4, 9}, {9, 1}}), 1);   // Odd width.
  EXPECT_EQ(vector_of({DType::bf16, {4, 8}, {12, 1}}), 1);  // Rows begin at 24 bytes.
  FakeCall shifted_x(DType::bf16, {4, 8}, {8, 1});
  shifted_x.x().data = FakeCall::pointer(0x10002);
  EXPECT_EQ(vector_of(shifted_x), 1);
  FakeCall shifted_out(DType::bf16, {4, 8}, {8, 1});
  shifted_out.out().data = FakeCall::pointer(0x30008);
  EXPECT_EQ(vector_of(shifted_out), 1);
  // One row has no row stride that could be unaligned.
  EXPECT_EQ(vector_of({DType::bf16, {1, 8}, {3, 1}}), 8);
}

TEST(BiasGeluPlan, BiasOfAnyStrideAndAlignmentKeepsTheWideAccessOfX) {
  FakeCall shifted(DType::f32, {4, 8}, {8, 1});
  shifted.bias().data = FakeCall::pointer(0x20004);
  Plan plan = shifted.plan();
  EXPECT_EQ(constant(plan.launches[0], "TF_VECTOR"), 4);
  EXPECT_EQ(parameter<std::uint32_t>(plan.launches[0], 6), 0U);

  FakeCall strided(DType::f32, {4, 8}, {8, 1});
  strided.set_bias_stride(0);
  plan = strided.plan();
  EXPECT_EQ(parameter<std::int64_t>(plan.launches[0], 5), 0);
  EXPECT_EQ(parameter<std::uint32_t>(plan.launches[0], 6), 0U);
}

TEST(BiasGeluPlan, LeadingDimensionsMergeWhereOneStrideDescribesThem) {
  const auto is_one_dim = [](FakeCall call) {
    return constant(call.plan().launches[0], "TF_ROW_DIMS") <= 1;
  };
  EXPECT_TRUE(is_one_dim({DType::f32, {2, 3, 4, 8}, {96, 32, 8, 1}}));
  EXPECT_TRUE(is_one_dim({DType::f32, {2, 3, 4, 8}, {192, 64, 16, 1}}));  // Every second row.
  EXPECT_TRUE(is_one_dim({DType::f32, {2, 1, 4, 8}, {32, 999, 8, 1}}));   // Size 1 has no stride.
  EXPECT_FALSE(is_one_dim({DType::f32, {2, 2, 8}, {24, 8, 1}}));          // x[:, 1:, :]
  EXPECT_FALSE(is_one_dim({DType::f32, {3, 2, 8}, {8, 24, 1}}));          // x.transpose(0, 1)
  // Numbers that do not fit 31 bits.
  const std::int64_t most = (std::int64_t{1} << 31) - 1;
  EXPECT_TRUE(is_one_dim({DType::f32, {2, 8}, {most, 1}}));
  EXPECT_FALSE(is_one_dim({DType::f32, {2, 8}, {most + 1, 1}}));
  EXPECT_TRUE(is_one_dim({DType::f32, {most, 1}, {1, 1}}));
  EXPECT_FALSE(is_one_dim({DType::f32, {most + 1, 1}, {1, 1}}));
}

TEST(BiasGeluPlan, TooManySeparateDimensionsAreRefusedByName) {
  std::vector<std::int64_t> sizes(8, 2);
  std::vector<std::int64_t> strides;
  for (std::int64_t d = 0; d < 7; ++d) strides.push_back(std::int64_t{8} << (2 * (7 - d)));
  strides.push_back(1);
  try {
    FakeCall(DType::f32, sizes, strides).plan();
    FAIL() << "a call with 7 separate leading dimensions was planned";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("x.contiguous()"), std::string::npos) << error.what();
  }
}

TEST(BiasGeluPlan, EveryVariantItCanAskForIsListed) {
  const auto listed = bias_gelu::variants({});
  std::mt19937 random(7);
  const std::array dtypes{DType::f32, DType::f64, DType::f16, DType::bf16};
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t hidden = 1 + static_cast<std::int64_t>(random() % 70);
    const std::int64_t inner = 1 + static_cast<std::int64_t>(random() % 5);
    const std::int64_t padding = static_cast<std::int64_t>(random() % 9);
    FakeCall call(dtypes[random() % 4], {3, inner, hidden},
                  {(inner + static_cast<std::int64_t>(random() % 2)) * (hidden + padding),
                   hidden + padding, 1},
                  random() % 2 == 0 ? "tanh" : "none");
    const Plan plan = call.plan();
    const Launch& launch = plan.launches[0];
    EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&](const auto& named) {
      return named.variant == launch.variant && std::string_view(named.kernel) == launch.kernel;
    }));
  }
  for (const DType dtype : dtypes) {
    for (const char* form : {"tanh", "none"}) {
      const Plan plan = FakeCall(dtype, {4096, 14336}, {14336, 1}, form).plan();
      const bool two_rows = std::string_view(form) == "none";
      EXPECT_EQ(constant(plan.launches[0], "TF_ROWS"), two_rows ? 2 : 1);
      EXPECT_TRUE(std::any_of(listed.begin(), listed.end(), [&](const auto& named) {
        return named.variant == plan.launches[0].variant;
      }));
    }
  }
  // Few enough to compile ahead: per dtype five, and six of the exact form.
  EXPECT_EQ(listed.size(), 4U * (5U + 6U));
}

TEST(BiasGeluPlan, RowsWithoutGapsAreOneRunOfVectors) {
  const auto dense = [](const FakeCall& call) { return is_dense(call.plan().launches[0]); };
  EXPECT_TRUE(dense({DType::bf16, {3, 5, 64}, {320, 64, 1}}));
  EXPECT_TRUE(dense({DType::bf16, {1, 64}, {999, 1}}));
  EXPECT_FALSE(dense({DType::bf16, {3, 64}, {72, 1}}));
  EXPECT_FALSE(dense({DType::bf16, {3, 5, 64}, {384, 64, 1}}));
  EXPECT_FALSE(dense({DType::bf16, {3, 9}, {9, 1}}));                        // No vectors.
  EXPECT_FALSE(dense({DType::bf16, {std::int64_t{1} << 31, 16}, {16, 1}}));  // Too many.
  FakeCall strided(DType::f32, {4, 8}, {8, 1});
  strided.set_bias_stride(2);
  EXPECT_FALSE(dense(strided));
  FakeCall shifted(DType::f32, {4, 8}, {8, 1});
  shifted.bias().data = FakeCall::pointer(0x20004);
  EXPECT_FALSE(dense(shifted));

  for (const std::int64_t hidden : {8, 24, 1024, 14336}) {
    const Plan plan = FakeCall(DType::bf16, {37, hidden}, {hidden, 1}).plan();
    const Launch& launch = plan.launches[0];
    const TileMap vectors = tiles_of(launch);
    ASSERT_EQ(vectors.count, 37 * hidden / 8);
    const std::uint64_t threads = std::uint64_t{launch.grid.x} * launch.block.x;
    EXPECT_GE(threads * static_cast<std::uint64_t>(constant(launch, "TF_ROWS")), vectors.count);
    for (std::uint32_t at = 0; at < vectors.count; ++at) {
      const auto row =
          static_cast<std::uint32_t>(std::uint64_t{at} * vectors.multiplier >> vectors.shift);
      const std::int64_t column = std::int64_t{at - row * vectors.column_tiles} * vectors.columns;
      ASSERT_EQ(row * hidden + column, std::int64_t{at} * 8);
      ASSERT_LT(column, hidden);
    }
  }
}

/// Walks over the launch as the kernel does and counts how often each output element is written,
/// and from which offset of x.
TEST(BiasGeluPlan, EveryElementIsWrittenOnceFromItsOwnInput) {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t hidden =
        1 + static_cast<std::int64_t>(random() % (round % 3 == 0 ? 3000 : 40));
    const std::int64_t outer = 1 + static_cast<std::int64_t>(random() % 4);
    const std::int64_t inner = 1 + static_cast<std::int64_t>(random() % 30);
    const std::int64_t row_stride = hidden + static_cast<std::int64_t>(random() % 3) * 4;
    const std::int64_t outer_stride =
        row_stride * (inner + static_cast<std::int64_t>(random() % 2));
    const FakeCall call(round % 2 == 0 ? DType::f32 : DType::bf16, {outer, inner, hidden},
                        {outer_stride, row_stride, 1});
    const Plan plan = call.plan();
    ASSERT_EQ(plan.count, 1U);
    const Launch& launch = plan.launches[0];
    if (is_dense(launch)) continue;
    const std::int64_t vector = constant(launch, "TF_VECTOR");
    const std::int64_t rows_each = constant(launch, "TF_ROWS");
    const auto log2 = parameter<std::uint32_t>(launch, 7);
    const auto tiles = tiles_of(launch);
    std::vector<int> written(static_cast<std::size_t>(outer * inner * hidden), 0);
    ASSERT_LE(launch.grid.x, tiles.count);
    for (std::uint32_t tile = 0; tile < tiles.count; ++tile) {
      for (std::uint32_t thread = 0; thread < launch.block.x; ++thread) {
        const std::uint32_t thread_x = thread & ((1U << log2) - 1);
        const std::uint32_t thread_y = thread >> log2;
        const std::uint32_t threads_y = launch.block.x >> log2;
        const std::int64_t row_tile =
            static_cast<std::int64_t>(std::uint64_t{tile} * tiles.multiplier >> tiles.shift);
        const std::int64_t column_tile = tile - row_tile * tiles.column_tiles;
        const std::int64_t column = column_tile * tiles.columns + thread_x * vector;
        for (std::int64_t r = 0; r < rows_each; ++r) {
          const std::int64_t row = row_tile * tiles.rows + thread_y + r * threads_y;
          if (column >= hidden || row >= outer * inner) continue;
          ASSERT_LE(column + vector, hidden);
          for (std::int64_t i = 0; i < vector; ++i) {
            ++written[static_cast<std::size_t>(row * hidden + column + i)];
          }
        }
      }
    }
    EXPECT_TRUE(std::all_of(written.begin(), written.end(), [](int n) { return n == 1; }));
  }
}

TEST(BiasGeluPlan, GridsStayWithinWhatBothVendorsAccept) {
  for (const auto& sizes : std::vector<std::vector<std::int64_t>>{{65536, 1},
                                                                  {4194304, 1},
                                                                  {std::int64_t{1} << 33, 1},
                                                                  {1, std::int64_t{1} << 33},
                                                                  {std::int64_t{1} << 20, 8192},
                                                                  {std::int64_t{1} << 31, 16}}) {
    const Plan plan = FakeCall(DType::bf16, sizes, {sizes[1], 1}).plan();
    ASSERT_EQ(plan.count, 1U);
    const Launch& launch = plan.launches[0];
    EXPECT_GE(launch.grid.x, 1U);
    EXPECT_LT(std::uint64_t{launch.grid.x} * launch.block.x, std::uint64_t{1} << 32U);
    EXPECT_EQ(launch.grid.y, 1U);
    // The tile counter of a block must not wrap before it passes the last tile.
    EXPECT_LT(std::uint64_t{tiles_of(launch).count} + launch.grid.x, std::uint64_t{1} << 32U);
  }
}

TEST(BiasGeluPlan, MultiplyingAndShiftingDividesTileNumbers) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::int64_t hidden =
        1 + static_cast<std::int64_t>(random() % (round % 2 == 0 ? 5000 : 1U << 31U));
    const Plan plan = FakeCall(DType::bf16, {1, hidden}, {hidden, 1}).plan();
    const auto tiles = tiles_of(plan.launches[0]);
    for (const std::uint64_t tile :
         {std::uint64_t{0}, std::uint64_t{tiles.column_tiles} - 1,
          std::uint64_t{tiles.column_tiles}, (std::uint64_t{1} << 31U) - 1,
          std::uint64_t{random()} >> 1U}) {
      ASSERT_EQ(tile * tiles.multiplier >> tiles.shift, tile / tiles.column_tiles);
    }
  }
}

TEST(BiasGeluPlan, BlocksAreWholeWavesOfBothSizes) {
  for (const std::int64_t hidden : {1, 2, 31, 32, 33, 63, 768, 1023, 8192}) {
    const Plan plan = FakeCall(DType::f32, {5, hidden}, {hidden, 1}).plan();
    EXPECT_EQ(plan.launches[0].block.x % 64, 0U);
  }
}

}  // namespace
}  // namespace truefuse
