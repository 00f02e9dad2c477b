#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace truefuse::jit {

/// A MessagePack value, as AMD's code objects hold their metadata. Strings are views into the bytes
/// that were parsed.
struct MsgPack {
  struct Member;
  enum class Type { nil, boolean, integer, real, text, array, map };
  Type type = Type::nil;
  std::int64_t integer = 0;  ///< Also of booleans; unsigned values beyond the range are clamped.
  double real = 0;
  std::string_view text;  ///< Also of binary data.
  std::vector<MsgPack> array;
  std::vector<Member> map;

  /// The value of a text key; null if there is none or this is no map.
  const MsgPack* find(std::string_view key) const;
};

struct MsgPack::Member {
  MsgPack key, value;
};

/// Nothing if the bytes are not one whole value, nest deeper than 32 levels or use extension types.
std::optional<MsgPack> parse_msgpack(std::string_view bytes);

}  // namespace truefuse::jit
