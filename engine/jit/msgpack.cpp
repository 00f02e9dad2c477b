#include <bit>
#include <limits>

#include <truefuse/jit/msgpack.h>

namespace truefuse::jit {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  bool parse(MsgPack& value, int depth) {
    if (depth > 32 || at_ == bytes_.size()) return false;
    const auto tag = static_cast<std::uint8_t>(bytes_[at_++]);
    if (tag <= 0x7f || tag >= 0xe0) return set_integer(value, static_cast<std::int8_t>(tag));
    if (tag <= 0x8f) return parse_map(value, tag & 0x0f, depth);
    if (tag <= 0x9f) return parse_array(value, tag & 0x0f, depth);
    if (tag <= 0xbf) return parse_text(value, tag & 0x1f);
    std::uint64_t number = 0;
    switch (tag) {
      case 0xc0:
        return true;
      case 0xc2:
      case 0xc3:
        value.type = MsgPack::Type::boolean;
        value.integer = tag - 0xc2;
        return true;
      case 0xc4:
      case 0xd9:
        return take(1, number) && parse_text(value, number);
      case 0xc5:
      case 0xda:
        return take(2, number) && parse_text(value, number);
      case 0xc6:
      case 0xdb:
        return take(4, number) && parse_text(value, number);
      case 0xca:
        value.type = MsgPack::Type::real;
        if (!take(4, number)) return false;
        value.real = std::bit_cast<float>(static_cast<std::uint32_t>(number));
        return true;
      case 0xcb:
        value.type = MsgPack::Type::real;
        if (!take(8, number)) return false;
        value.real = std::bit_cast<double>(number);
        return true;
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf: {
        constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        if (!take(1u << (tag - 0xcc), number)) return false;
        return set_integer(value, static_cast<std::int64_t>(number < kMost ? number : kMost));
      }
      case 0xd0:
        return take(1, number) && set_integer(value, static_cast<std::int8_t>(number));
      case 0xd1:
        return take(2, number) && set_integer(value, static_cast<std::int16_t>(number));
      case 0xd2:
        return take(4, number) && set_integer(value, static_cast<std::int32_t>(number));
      case 0xd3:
        return take(8, number) && set_integer(value, static_cast<std::int64_t>(number));
      case 0xdc:
        return take(2, number) && parse_array(value, number, depth);
      case 0xdd:
        return take(4, number) && parse_array(value, number, depth);
      case 0xde:
        return take(2, number) && parse_map(value, number, depth);
      case 0xdf:
        return take(4, number) && parse_map(value, number, depth);
      default:
        return false;
    }
  }

  bool at_end() const { return at_ == bytes_.size(); }

 private:
  std::size_t left() const { return bytes_.size() - at_; }

  bool take(std::size_t size, std::uint64_t& number) {
    if (left() < size) return false;
    number = 0;
    for (std::size_t i = 0; i < size; ++i) {
      number = number << 8 | static_cast<std::uint8_t>(bytes_[at_++]);
    }
    return true;
  }

  static bool set_integer(MsgPack& value, std::int64_t number) {
    value.type = MsgPack::Type::integer;
    value.integer = number;
    return true;
  }

  bool parse_text(MsgPack& value, std::uint64_t size) {
    if (size > left()) return false;
    value.type = MsgPack::Type::text;
    value.text = bytes_.substr(at_, static_cast<std::size_t>(size));
    at_ += static_cast<std::size_t>(size);
    return true;
  }

  // Elements are made one by one as their bytes are read, so a huge count costs no memory.
  bool parse_array(MsgPack& value, std::uint64_t count, int depth) {
    value.type = MsgPack::Type::array;
    for (; count > 0; --count) {
      if (!parse(value.array.emplace_back(), depth + 1)) return false;
    }
    return true;
  }

  bool parse_map(MsgPack& value, std::uint64_t count, int depth) {
    value.type = MsgPack::Type::map;
    for (; count > 0; --count) {
      auto& [key, element] = value.map.emplace_back();
      if (!parse(key, depth + 1) || !parse(element, depth + 1)) return false;
    }
    return true;
  }

  std::string_view bytes_;
  std::size_t at_ = 0;
};

}  // namespace

const MsgPack* MsgPack::find(std::string_view key) const {
  for (const auto& [name, value] : map) {
    if (name.type == Type::text && name.text == key) return &value;
  }
  return nullptr;
}

std::optional<MsgPack> parse_msgpack(std::string_view bytes) {
  Parser parser(bytes);
  MsgPack value;
  if (!parser.parse(value, 0) || !parser.at_end()) return std::nullopt;
  return value;
}

}  // namespace truefuse::jit
