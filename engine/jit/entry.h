#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <truefuse/jit/key.h>

namespace truefuse::jit {

struct CacheEntry {
  std::string label;  ///< For people: "bias_gelu sm_90a hipRTC ...". Not part of the key.
  Key key;
  std::string code;
  double compile_seconds = 0;  ///< What the compile cost when the entry was made.
};

/// The bytes of an entry's file. All integers are little-endian:
///
///   "truefuse-kernel\n"           16 bytes
///   u32 format (1), u32 parts     how many key parts follow
///   u64 compile time              microseconds
///   label                         u64 size, bytes
///   parts times: name, value      u64 size, bytes, each
///   code                          u64 size, bytes
///   SHA-256 of all of the above   32 bytes
std::string serialize_entry(const CacheEntry& entry);

/// The inverse. Nothing for bytes that serialize_entry() did not write: a wrong digest, another
/// format, sizes that do not add up, no code. Safe for any input; allocates no more than its size.
std::optional<CacheEntry> parse_entry(std::string_view bytes);

/// The key that an entry's bytes begin with, without a look at its code or digest. Nothing where
/// they end within the key. Safe for any input.
std::optional<Key> peek_key(std::string_view bytes);

}  // namespace truefuse::jit
