// operators/common on the host: the structures that a plan fills, walked over as a kernel does.

#include <gtest/gtest.h>
#include <random>
#include <vector>

#include <truefuse/operators/common/tiling.h>

#include "../../engine/error_of.h"

namespace truefuse::common {
namespace {

using testing::error_of;

TensorView view(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                std::uintptr_t address = 0x1000) {
  return {DType::f32, {DeviceType::cuda, 0}, sizes, strides, reinterpret_cast<void*>(address)};
}

TEST(Tiling, RowOffsetsAreThoseOfTheTensor) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::int64_t> sizes, strides;
    for (int d = 0; d < 4; ++d) {
      sizes.push_back(1 + static_cast<std::int64_t>(random() % 4));
      strides.push_back(static_cast<std::int64_t>(random() % 50));
    }
    if (round % 2 == 0) strides = {sizes[1] * sizes[2] * 9, sizes[2] * 9, 9, 1};
    const Rows rows(view(sizes, strides));
    const RowMap map = row_map("op", "x", rows);
    for (std::int64_t row = 0; row < rows.count(); ++row) {
      std::int64_t rest = row;
      std::int64_t offset = 0;
      for (std::size_t d = 3; d-- > 0;) {
        offset += rest % sizes[d] * strides[d];
        rest /= sizes[d];
      }
      EXPECT_EQ(row_offset(map, tf::i64{row}), offset);
      if (are_short(rows)) {
        EXPECT_EQ(row_offset(map, static_cast<tf::u32>(row)), offset);
      }
    }
  }
}

TEST(Tiling, TooManySeparateDimensionsAreRefusedByName) {
  std::vector<std::int64_t> sizes(8, 2), strides;
  for (std::int64_t d = 0; d < 7; ++d) strides.push_back(std::int64_t{8} << (2 * (7 - d)));
  strides.push_back(1);
  const Rows rows(view(sizes, strides));
  const std::string message = error_of([&] { row_map("op", "grad", rows); });
  EXPECT_NE(message.find("op: the leading dimensions of grad"), std::string::npos) << message;
  EXPECT_NE(message.find("grad.contiguous()"), std::string::npos) << message;
}

TEST(Tiling, VectorsNeedAlignedRowsOfWholeVectors) {
  const auto are_vectors = [](const TensorView& tensor) {
    return rows_are_vectors(tensor, Rows(tensor), 4);
  };
  const std::vector<std::int64_t> even{3, 8}, odd{3, 9}, dense{8, 1}, padded{12, 1}, bad{10, 1};
  const std::vector<std::int64_t> odd_dense{9, 1};
  EXPECT_TRUE(are_vectors(view(even, dense)));
  EXPECT_TRUE(are_vectors(view(even, padded)));
  EXPECT_FALSE(are_vectors(view(even, bad)));
  EXPECT_FALSE(are_vectors(view(odd, odd_dense)));
  EXPECT_FALSE(are_vectors(view(even, dense, 0x1004)));
}

TEST(Tiling, ThreadsAlongTheColumnsWasteLittle) {
  EXPECT_EQ(threads_x_log2(1), 0U);
  EXPECT_EQ(threads_x_log2(3), 2U);
  EXPECT_EQ(threads_x_log2(32), 5U);
  EXPECT_EQ(threads_x_log2(33), 6U);
  EXPECT_EQ(threads_x_log2(128), 7U);
  EXPECT_EQ(threads_x_log2(192), 6U);
  EXPECT_EQ(threads_x_log2(1 << 20), 7U);
  EXPECT_EQ(threads_x_log2(1 << 20, 5), 5U);
}

TEST(Tiling, TilesCoverEverythingOnce) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t rows = 1 + static_cast<std::int64_t>(random() % 70);
    const std::int64_t columns = 1 + static_cast<std::int64_t>(random() % 70);
    const TileMap tiles = cut_into_tiles("op", rows, columns, 1 + random() % 9, 1 + random() % 9);
    std::vector<int> covered(static_cast<std::size_t>(rows * columns), 0);
    for (std::uint32_t tile = 0; tile < tiles.count; ++tile) {
      const auto place = place_of<std::int64_t>(tiles, tile);
      for (std::int64_t r = 0; r < tiles.rows; ++r) {
        for (std::int64_t c = 0; c < tiles.columns; ++c) {
          const std::int64_t row = place.row + r;
          const std::int64_t column = place.column + c;
          EXPECT_EQ(place_of<tf::u32>(tiles, tile).row, place.row);
          EXPECT_EQ(place_of<tf::u32>(tiles, tile).column, place.column);
          if (row < rows && column < columns) {
            ++covered[static_cast<std::size_t>(row * columns + column)];
          }
        }
      }
    }
    EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), rows * columns);
  }
}

TEST(Tiling, GridsStayWithinWhatBothVendorsAcceptAndMoreTilesAreRefused) {
  const TileMap many = cut_into_tiles("op", std::int64_t{1} << 31, 1, 1, 1);
  EXPECT_LT(std::uint64_t{blocks_for(many, 128)} * 128, std::uint64_t{1} << 32);
  EXPECT_EQ(blocks_for(cut_into_tiles("op", 10, 10, 10, 10), 128), 1U);
  const std::string message =
      error_of([] { cut_into_tiles("op", std::int64_t{1} << 32, 1, 1, 1); });
  EXPECT_NE(message.find("op: x has 4294967296 rows"), std::string::npos) << message;
}

TEST(Tiling, OtherElementTypesHaveNoStorageCode) {
  EXPECT_EQ(storage_code(DType::f64), 0);
  EXPECT_EQ(storage_code(DType::bf16), 3);
  EXPECT_NE(error_of([] { storage_code(DType::i32); }).find("int32"), std::string::npos);
}

}  // namespace
}  // namespace truefuse::common
