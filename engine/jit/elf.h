#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::jit {

/// A read-only view of a 64-bit little-endian ELF file: libraries, cubins, AMD code objects. Every
/// offset is checked against the size of the file, so damaged or hostile files are safe to read:
/// what lies outside is left out. Views point into the bytes given to parse().
class Elf {
 public:
  /// Nothing if `bytes` is not such a file or ends inside its header.
  static std::optional<Elf> parse(std::string_view bytes);

  struct Section {
    std::string_view name;
    std::uint32_t type = 0;
    std::uint32_t link = 0;
    std::uint32_t info = 0;
    std::uint64_t size = 0;     ///< Also of sections that take no room in the file.
    std::string_view contents;  ///< Empty for those.
  };
  struct Note {
    std::string_view owner;
    std::uint32_t type = 0;
    std::string_view description;
  };
  struct Symbol {
    std::string_view name;
    std::uint8_t other = 0;     ///< st_other: the machine's own flags.
    std::uint16_t section = 0;  ///< Index of the section that defines it; 0 if another file does.
  };

  std::uint16_t machine() const { return machine_; }
  std::uint32_t flags() const { return flags_; }
  std::uint8_t abi_version() const { return abi_version_; }
  const std::vector<Section>& sections() const { return sections_; }

  /// Null if there is none.
  const Section* section(std::string_view name) const;

  std::vector<Note> notes() const;
  /// Of a section of type kSymbolTable or kDynamicSymbols.
  std::vector<Symbol> symbols(std::uint32_t section_type) const;
  /// Strings of the dynamic section with this tag, in order.
  std::vector<std::string> dynamic(std::uint64_t tag) const;

  /// Lower-case hexadecimal; empty if there is none or it is too short to identify anything.
  std::string build_id() const;

  static constexpr std::uint16_t kMachineCuda = 190;
  static constexpr std::uint16_t kMachineAmdGpu = 224;
  static constexpr std::uint32_t kSymbolTable = 2;
  static constexpr std::uint32_t kDynamicSymbols = 11;
  static constexpr std::uint64_t kNeeded = 1;
  static constexpr std::uint64_t kSoname = 14;
  static constexpr std::uint64_t kRpath = 15;
  static constexpr std::uint64_t kRunpath = 29;

 private:
  std::string_view bytes_;
  std::uint16_t machine_ = 0;
  std::uint32_t flags_ = 0;
  std::uint8_t abi_version_ = 0;
  std::vector<Section> sections_;
  std::vector<std::string_view> note_segments_;
};

/// The little-endian integer at `offset`; `fallback` where the bytes end before it does.
template <class Integer>
Integer read_integer(std::string_view bytes, std::size_t offset, Integer fallback = 0) {
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Integer)) return fallback;
  Integer value = 0;
  for (std::size_t i = 0; i < sizeof(Integer); ++i) {
    value = static_cast<Integer>(
        value |
        static_cast<Integer>(static_cast<Integer>(static_cast<unsigned char>(bytes[offset + i]))
                             << (8 * i)));
  }
  return value;
}

/// The part of `bytes` from `offset` on, `size` long; empty if it is not wholly inside.
inline std::string_view slice(std::string_view bytes, std::uint64_t offset, std::uint64_t size) {
  if (offset > bytes.size() || size > bytes.size() - offset) return {};
  return bytes.substr(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
}

}  // namespace truefuse::jit
