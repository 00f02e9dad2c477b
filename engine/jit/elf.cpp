#include <algorithm>

#include <truefuse/jit/elf.h>

namespace truefuse::jit {
namespace {

constexpr std::uint32_t kStringTable = 3;
constexpr std::uint32_t kDynamic = 6;
constexpr std::uint32_t kNote = 7;
constexpr std::uint32_t kNoBits = 8;
constexpr std::uint32_t kNoteSegment = 4;
constexpr std::uint32_t kGnuBuildId = 3;

/// The zero-terminated string at `offset` of a string table; empty if it does not end inside.
std::string_view string_at(std::string_view table, std::uint64_t offset) {
  if (offset >= table.size()) return {};
  const std::string_view rest = table.substr(static_cast<std::size_t>(offset));
  const std::size_t end = rest.find('\0');
  return end == std::string_view::npos ? std::string_view{} : rest.substr(0, end);
}

void read_notes(std::string_view bytes, std::vector<Elf::Note>& notes) {
  while (bytes.size() >= 12) {
    const std::uint64_t name_size = read_integer<std::uint32_t>(bytes, 0);
    const std::uint64_t size = read_integer<std::uint32_t>(bytes, 4);
    const std::uint64_t description = 12 + (name_size + 3) / 4 * 4;
    if (description > bytes.size() || size > bytes.size() - description) return;
    std::string_view owner = slice(bytes, 12, name_size);
    owner = owner.substr(0, std::min(owner.find('\0'), owner.size()));
    notes.push_back(
        {owner, read_integer<std::uint32_t>(bytes, 8), slice(bytes, description, size)});
    bytes.remove_prefix(std::min<std::uint64_t>(bytes.size(), description + (size + 3) / 4 * 4));
  }
}

}  // namespace

std::optional<Elf> Elf::parse(std::string_view bytes) {
  constexpr std::string_view kMagic(
      "\x7f"
      "ELF\x02\x01",
      6);  // 64 bits, little-endian.
  if (bytes.size() < 64 || !bytes.starts_with(kMagic)) return std::nullopt;
  Elf elf;
  elf.bytes_ = bytes;
  elf.abi_version_ = static_cast<std::uint8_t>(bytes[8]);
  elf.machine_ = read_integer<std::uint16_t>(bytes, 18);
  elf.flags_ = read_integer<std::uint32_t>(bytes, 48);

  const auto segments = read_integer<std::uint64_t>(bytes, 32);
  const auto segment_size = read_integer<std::uint16_t>(bytes, 54);
  const auto segment_count = read_integer<std::uint16_t>(bytes, 56);
  for (std::uint64_t i = 0; segment_size >= 56 && i < segment_count; ++i) {
    const std::string_view header = slice(bytes, segments + i * segment_size, 56);
    if (read_integer<std::uint32_t>(header, 0) != kNoteSegment) continue;
    elf.note_segments_.push_back(slice(bytes, read_integer<std::uint64_t>(header, 8),
                                       read_integer<std::uint64_t>(header, 32)));
  }

  const auto table = read_integer<std::uint64_t>(bytes, 40);
  const auto entry_size = read_integer<std::uint16_t>(bytes, 58);
  const auto count = read_integer<std::uint16_t>(bytes, 60);
  const auto names = read_integer<std::uint16_t>(bytes, 62);
  std::vector<std::uint32_t> name_offsets;
  for (std::uint64_t i = 0; entry_size >= 64 && i < count; ++i) {
    const std::string_view header = slice(bytes, table + i * entry_size, 64);
    if (header.empty()) break;
    Section section;
    section.type = read_integer<std::uint32_t>(header, 4);
    section.link = read_integer<std::uint32_t>(header, 40);
    section.info = read_integer<std::uint32_t>(header, 44);
    section.size = read_integer<std::uint64_t>(header, 32);
    if (section.type != kNoBits) {
      section.contents = slice(bytes, read_integer<std::uint64_t>(header, 24), section.size);
    }
    name_offsets.push_back(read_integer<std::uint32_t>(header, 0));
    elf.sections_.push_back(section);
  }
  if (names < elf.sections_.size() && elf.sections_[names].type == kStringTable) {
    for (std::size_t i = 0; i < elf.sections_.size(); ++i) {
      elf.sections_[i].name = string_at(elf.sections_[names].contents, name_offsets[i]);
    }
  }
  return elf;
}

const Elf::Section* Elf::section(std::string_view name) const {
  const auto found = std::find_if(sections_.begin(), sections_.end(),
                                  [&](const Section& section) { return section.name == name; });
  return found == sections_.end() ? nullptr : &*found;
}

std::vector<Elf::Note> Elf::notes() const {
  std::vector<Note> notes;
  for (const Section& section : sections_) {
    if (section.type == kNote) read_notes(section.contents, notes);
  }
  if (notes.empty()) {
    // Some tools strip the section table, which nothing needs to load a file.
    for (const std::string_view segment : note_segments_) read_notes(segment, notes);
  }
  return notes;
}

std::vector<Elf::Symbol> Elf::symbols(std::uint32_t section_type) const {
  std::vector<Symbol> symbols;
  for (const Section& section : sections_) {
    if (section.type != section_type || section.link >= sections_.size()) continue;
    const std::string_view strings = sections_[section.link].contents;
    for (std::size_t at = 0; section.contents.size() - at >= 24; at += 24) {
      symbols.push_back({string_at(strings, read_integer<std::uint32_t>(section.contents, at)),
                         read_integer<std::uint8_t>(section.contents, at + 5),
                         read_integer<std::uint16_t>(section.contents, at + 6)});
    }
  }
  return symbols;
}

std::vector<std::string> Elf::dynamic(std::uint64_t tag) const {
  std::vector<std::string> values;
  for (const Section& section : sections_) {
    if (section.type != kDynamic || section.link >= sections_.size()) continue;
    const std::string_view strings = sections_[section.link].contents;
    for (std::size_t at = 0; section.contents.size() - at >= 16; at += 16) {
      if (read_integer<std::uint64_t>(section.contents, at) != tag) continue;
      values.emplace_back(
          string_at(strings, read_integer<std::uint64_t>(section.contents, at + 8)));
    }
  }
  return values;
}

std::string Elf::build_id() const {
  for (const Note& note : notes()) {
    if (note.owner != "GNU" || note.type != kGnuBuildId) continue;
    const std::string_view id = note.description;
    // Shorter ones and all-zero ones, which some link steps leave behind, tell nothing apart.
    if (id.size() < 8 || id.find_first_not_of('\0') == std::string_view::npos) continue;
    std::string hex;
    for (const char c : id) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      hex += kDigits[static_cast<unsigned char>(c) >> 4];
      hex += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return hex;
  }
  return {};
}

}  // namespace truefuse::jit
