#include <array>

#include <truefuse/core/dtype.h>

namespace truefuse {
namespace {

struct Row {
  DType dtype;
  std::string_view short_name;
  std::string_view torch_name;
  std::size_t size;
};

constexpr std::array<Row, 15> kRows{{
    {DType::f64, "f64", "float64", 8},
    {DType::f32, "f32", "float32", 4},
    {DType::f16, "f16", "float16", 2},
    {DType::bf16, "bf16", "bfloat16", 2},
    {DType::f8e4m3, "f8e4m3", "float8_e4m3fn", 1},
    {DType::f8e5m2, "f8e5m2", "float8_e5m2", 1},
    {DType::i64, "i64", "int64", 8},
    {DType::i32, "i32", "int32", 4},
    {DType::i16, "i16", "int16", 2},
    {DType::i8, "i8", "int8", 1},
    {DType::u8, "u8", "uint8", 1},
    {DType::boolean, "bool", "bool", 1},
    {DType::c64, "c64", "complex64", 8},
    {DType::c128, "c128", "complex128", 16},
    {DType::other, "other", "an unsupported dtype", 0},
}};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (static_cast<std::size_t>(kRows[i].dtype) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum());

const Row& row(DType dtype) { return kRows[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::string_view short_name(DType dtype) { return row(dtype).short_name; }
std::string_view torch_name(DType dtype) { return row(dtype).torch_name; }
std::size_t size_of(DType dtype) { return row(dtype).size; }

std::optional<DType> parse_dtype(std::string_view word) {
  for (const Row& candidate : kRows) {
    if (candidate.short_name == word && candidate.dtype != DType::other) return candidate.dtype;
  }
  return std::nullopt;
}

}  // namespace truefuse
