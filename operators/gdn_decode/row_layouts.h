#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace truefuse::gdn_decode {

/// The tensors that rows come in; each has a layout of its own.
enum RowTensor : std::uint8_t { kRowQkvz, kRowBa, kRowZ, kRowA, kRowTensors };

/// "qkvz", "ba", "z", "a".
std::string_view name_of(RowTensor tensor);

/// Where a segment's elements are: [h, g, e] lies at base + h head + g group + e inner, in elements
/// from the beginning of a row of `tensor`. Strides of axes that the segment does not have are 0.
struct Place {
  RowTensor tensor = kRowQkvz;
  std::int64_t base = 0, head = 0, group = 0, inner = 0;
};

/// q[h,·,k], k[h,·,k], v[h,g,e], z[h,g,e], b[h,g] and a[h,g] in the rows of one call.
struct RowLayouts {
  Place q, k, v, b, a;
  std::optional<Place> z;
  std::array<std::int64_t, kRowTensors> columns{};  ///< Of each tensor; 0 for one not given.
};

/// Head counts and sizes: G value heads for each of H key heads, K channels of a query and key, V
/// of a value.
struct HeadSizes {
  std::int64_t H = 1, G = 1, K = 1, V = 1;

  friend bool operator==(const HeadSizes&, const HeadSizes&) = default;
};

/// The layouts of a call's row tensors; nothing for a tensor that is not given.
using LayoutTexts = std::array<std::optional<std::string_view>, kRowTensors>;

/// Parses and binds layouts, written out or by name (see truefuse/layout/named.h), that have the
/// segments q, k, v, b, a and maybe z, each once, with axes H, G (or HV, which is H G), K and V.
/// The result is remembered: the next call with the same texts and sizes is a look-up without an
/// allocation. Throws Error naming the argument and what is missing or too much.
const RowLayouts& row_layouts(const LayoutTexts& texts, const HeadSizes& sizes);

/// Sentences for a row of `found` columns that `text` does not describe: what it has with these
/// sizes and, if there is one, the number of value heads that would fit.
[[noreturn]] void refuse_columns(RowTensor tensor, std::string_view text, const HeadSizes& sizes,
                                 std::int64_t found);

}  // namespace truefuse::gdn_decode
