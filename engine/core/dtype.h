#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace truefuse {

/// Element types by their short names, as contracts spell them. `other` stands for any type that no
/// contract can ask for (quantised, bits, ...): it never matches.
enum class DType : std::uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8e4m3,
  f8e5m2,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  c64,
  c128,
  other,
};

/// "f32", "bf16", "bool"; the spelling of the contract language.
std::string_view short_name(DType dtype);

/// "float32", "bfloat16", "bool"; PyTorch's spelling, used in messages.
std::string_view torch_name(DType dtype);

/// Bytes of one element; 0 for `other`.
std::size_t size_of(DType dtype);

/// Inverse of short_name; nothing for an unknown word.
std::optional<DType> parse_dtype(std::string_view word);

}  // namespace truefuse
