#pragma once

#include <cctype>
#include <string_view>

namespace truefuse::fuzz {

/// Whether a text is one JSON value (RFC 8259).
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : rest_(text) {}

  bool is_whole() { return value() && rest_.empty(); }

 private:
  bool accept(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  bool value() {
    if (accept("{")) return items('}', [this] { return string() && accept(":") && value(); });
    if (accept("[")) return items(']', [this] { return value(); });
    return accept("null") || accept("true") || accept("false") || string() || number();
  }

  template <class Item>
  bool items(char end, const Item& item) {
    if (accept(std::string_view(&end, 1))) return true;
    do {
      if (!item()) return false;
    } while (accept(","));
    return accept(std::string_view(&end, 1));
  }

  bool string() {
    if (!accept("\"")) return false;
    while (!rest_.empty() && static_cast<unsigned char>(rest_[0]) >= 0x20) {
      const char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') return true;
      if (c == '\\' && !escape()) return false;
    }
    return false;
  }

  bool escape() {
    if (!accept("u")) {
      if (rest_.empty() || std::string_view("\"\\/bfnrt").find(rest_[0]) == rest_.npos)
        return false;
      rest_.remove_prefix(1);
      return true;
    }
    for (int i = 0; i < 4; ++i) {
      if (rest_.empty() || std::isxdigit(static_cast<unsigned char>(rest_[0])) == 0) return false;
      rest_.remove_prefix(1);
    }
    return true;
  }

  bool digits() {
    const std::size_t before = rest_.size();
    while (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') rest_.remove_prefix(1);
    return rest_.size() < before;
  }

  bool number() {
    accept("-");
    if (!accept("0") && !digits()) return false;
    if (accept(".") && !digits()) return false;
    if (!accept("e") && !accept("E")) return true;
    if (!accept("+")) accept("-");
    return digits();
  }

  std::string_view rest_;
};

inline bool is_json(std::string_view text) { return JsonReader(text).is_whole(); }

}  // namespace truefuse::fuzz
