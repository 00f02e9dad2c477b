#include <array>
#include <charconv>
#include <cmath>

#include <truefuse/core/json.h>

namespace truefuse {
namespace {

/// Length of the valid UTF-8 sequence at the start of `text`, or 0.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 && lead < 0xf5 ? 4
                             : lead >= 0xe0              ? 3
                             : lead >= 0xc2              ? 2
                                                         : 0;
  if (length == 0 || lead >= 0xf5 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates and values past U+10FFFF.
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) >= 0xa0) ||
      (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) >= 0x90)) {
    return 0;
  }
  return length;
}

}  // namespace

void JsonWriter::separate() {
  if (needs_comma_) text_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::begin_object() {
  separate();
  text_ += '{';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_object() {
  text_ += '}';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::begin_array() {
  separate();
  text_ += '[';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::end_array() {
  text_ += ']';
  needs_comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  string(name);
  text_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  text_ += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      text_ += "\xef\xbf\xbd";
      text.remove_prefix(1);
      continue;
    }
    if (c == '"' || c == '\\') {
      (text_ += '\\') += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr std::string_view kHex = "0123456789abcdef";
      text_ += "\\u00";
      text_ += kHex[static_cast<unsigned char>(c) >> 4];
      text_ += kHex[static_cast<unsigned char>(c) & 15];
    } else {
      text_ += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  text_ += '"';
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  separate();
  text_ += std::to_string(value);
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  text_.append(buffer.data(), result.ptr);
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  separate();
  text_ += value ? "true" : "false";
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  text_ += "null";
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  text_ += json;
  return *this;
}

}  // namespace truefuse
