#include <cstdint>
#include <string>

#include <truefuse/jit/elf.h>
#include <truefuse/jit/offload_bundle.h>

namespace truefuse::jit {

std::optional<std::string_view> unbundle(std::string_view bytes, std::string_view target) {
  constexpr std::string_view kMagic = "__CLANG_OFFLOAD_BUNDLE__";
  if (bytes.starts_with("\x7f"
                        "ELF")) {
    return bytes;
  }
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  // Magic, number of entries, and per entry: offset, size, length of the name, name. The name is
  // "hip", perhaps a version, a triple and the target, joined by hyphens.
  const std::string ending = "-" + std::string(target);
  const auto count = read_integer<std::uint64_t>(bytes, kMagic.size());
  std::size_t at = kMagic.size() + 8;
  for (std::uint64_t i = 0; i < count && bytes.size() - at >= 24; ++i) {
    const auto offset = read_integer<std::uint64_t>(bytes, at);
    const auto size = read_integer<std::uint64_t>(bytes, at + 8);
    const auto name_size = read_integer<std::uint64_t>(bytes, at + 16);
    const std::string_view name = slice(bytes, at + 24, name_size);
    if (name.empty()) return std::nullopt;
    if (name.starts_with("hip") && name.ends_with(ending)) {
      const std::string_view object = slice(bytes, offset, size);
      if (object.empty()) return std::nullopt;
      return object;
    }
    at += 24 + name.size();
  }
  return std::nullopt;
}

bool is_compressed_bundle(std::string_view bytes) { return bytes.starts_with("CCOB"); }

}  // namespace truefuse::jit
