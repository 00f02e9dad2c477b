#include <algorithm>
#include <cmath>
#include <cstdint>

#include <truefuse/jit/entry.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kMagic = "truefuse-kernel\n";
constexpr std::uint32_t kFormat = 1;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i));
}

void put_text(std::string& out, std::string_view text) {
  put<std::uint64_t>(out, text.size());
  out += text;
}

std::string_view as_text(const Sha256::Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

// 30 years: bounded, so that the conversions below are exact in both directions.
constexpr double kMostSeconds = 1e9;

std::uint64_t microseconds(double seconds) {
  if (!(seconds > 0)) return 0;
  return static_cast<std::uint64_t>(std::llround(1e6 * std::min(seconds, kMostSeconds)));
}

// Takes values off the front; after the first that is not there, ok() is false and all are empty.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  bool ok() const { return ok_; }
  bool at_end() const { return rest_.empty(); }
  void fail() { ok_ = false; }

  std::string_view bytes(std::uint64_t size) {
    if (!ok_ || size > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  template <class T>
  T integer() {
    T value = 0;
    const std::string_view raw = bytes(sizeof(T));
    for (std::size_t i = raw.size(); i-- > 0;) {
      value = static_cast<T>(value << 8 | static_cast<unsigned char>(raw[i]));
    }
    return value;
  }

  std::string_view text() { return bytes(integer<std::uint64_t>()); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

/// What is in front of the code.
CacheEntry take_head(Reader& reader) {
  CacheEntry entry;
  const bool is_known = reader.integer<std::uint32_t>() == kFormat;
  const auto parts = reader.integer<std::uint32_t>();
  entry.compile_seconds = static_cast<double>(reader.integer<std::uint64_t>()) / 1e6;
  entry.label = reader.text();
  for (std::uint32_t i = 0; is_known && i < parts && reader.ok(); ++i) {
    const std::string_view name = reader.text();
    const std::string_view value = reader.text();
    if (reader.ok()) entry.key.add(name, value);
  }
  if (!is_known) reader.fail();
  return entry;
}

}  // namespace

std::string serialize_entry(const CacheEntry& entry) {
  std::string out(kMagic);
  put<std::uint32_t>(out, kFormat);
  put<std::uint32_t>(out, static_cast<std::uint32_t>(entry.key.parts().size()));
  put<std::uint64_t>(out, microseconds(entry.compile_seconds));
  put_text(out, entry.label);
  for (const auto& [name, value] : entry.key.parts()) {
    put_text(out, name);
    put_text(out, value);
  }
  put_text(out, entry.code);
  out += as_text(sha256(out));
  return out;
}

std::optional<CacheEntry> parse_entry(std::string_view bytes) {
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + sizeof(Sha256::Digest)) {
    return std::nullopt;
  }
  const std::size_t body = bytes.size() - sizeof(Sha256::Digest);
  if (as_text(sha256(bytes.substr(0, body))) != bytes.substr(body)) return std::nullopt;

  Reader reader(bytes.substr(kMagic.size(), body - kMagic.size()));
  CacheEntry entry = take_head(reader);
  if (entry.compile_seconds > kMostSeconds) return std::nullopt;
  entry.code = reader.text();
  if (!reader.ok() || !reader.at_end() || entry.code.empty()) return std::nullopt;
  return entry;
}

std::optional<Key> peek_key(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  Reader reader(bytes.substr(kMagic.size()));
  CacheEntry entry = take_head(reader);
  if (!reader.ok()) return std::nullopt;
  return std::move(entry.key);
}

}  // namespace truefuse::jit
