#include <algorithm>
#include <cstdint>

#include <truefuse/jit/key.h>
#include <truefuse/jit/sha256.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kDigestPrefix = "sha256:";
constexpr std::size_t kShown = 48;  // Characters of a long value that a sentence shows.

void update_prefixed(Sha256& hash, std::string_view text) {
  char length[8];
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(std::uint64_t{text.size()} >> (8 * i));
  hash.update({length, sizeof length});
  hash.update(text);
}

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// At most kShown characters of `text`, around byte `focus`, on one line.
std::string shortened(std::string_view text, std::size_t focus) {
  if (text.empty()) return "(empty)";
  if (text.starts_with(kDigestPrefix)) {
    return std::string(text.substr(0, kDigestPrefix.size() + 12)) + "...";
  }
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (text.size() > kShown) {
    begin = std::min(focus > kShown / 3 ? focus - kShown / 3 : 0, text.size() - kShown);
    end = begin + kShown;
    while (begin < end && is_continuation(text[begin])) ++begin;
    while (end > begin && end < text.size() && is_continuation(text[end])) --end;
  }
  std::string shown = (begin > 0 ? "..." : "") + std::string(text.substr(begin, end - begin)) +
                      (end < text.size() ? "..." : "");
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return shown;
}

// "compiler NVRTC 13.0 build 91ab -> 4d07": words that both values begin with are said once.
std::string change(const std::string& name, std::string_view before, std::string_view now) {
  const auto mismatch = std::mismatch(before.begin(), before.end(), now.begin(), now.end());
  auto focus = static_cast<std::size_t>(mismatch.first - before.begin());
  const std::size_t space =
      focus == 0 ? std::string_view::npos : before.substr(0, focus).rfind(' ');
  std::string sentence = name + " ";
  if (space != std::string_view::npos && space + 1 < before.size() && space + 1 < now.size()) {
    sentence += shortened(before.substr(0, space), space) + " ";
    before.remove_prefix(space + 1);
    now.remove_prefix(space + 1);
    focus -= space + 1;
  }
  return sentence + shortened(before, focus) + " -> " + shortened(now, focus);
}

using Parts = std::vector<std::pair<std::string, std::string>>;

// The part of `parts` that has the name and rank (among parts of equal name) of `of[index]`.
const std::string* counterpart(const Parts& parts, const Parts& of, std::size_t index) {
  const std::string& name = of[index].first;
  const auto same_name = [&](const auto& part) { return part.first == name; };
  auto rank = std::count_if(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(index), same_name);
  for (const auto& part : parts) {
    if (same_name(part) && rank-- == 0) return &part.second;
  }
  return nullptr;
}

}  // namespace

void Key::add(std::string_view name, std::string_view value) { parts_.emplace_back(name, value); }

void Key::add_digest(std::string_view name, std::string_view content) {
  parts_.emplace_back(name, std::string(kDigestPrefix) + sha256_hex(content));
}

std::string Key::value_of(std::string_view name) const {
  for (const auto& [part_name, value] : parts_) {
    if (part_name == name) return value;
  }
  return {};
}

std::string Key::digest() const {
  Sha256 hash;
  for (const auto& [name, value] : parts_) {
    update_prefixed(hash, name);
    update_prefixed(hash, value);
  }
  return to_hex(hash.finish());
}

std::vector<std::string> differences(const Key& before, const Key& now) {
  std::vector<std::string> sentences;
  const Parts& old_parts = before.parts();
  const Parts& new_parts = now.parts();
  for (std::size_t i = 0; i < new_parts.size(); ++i) {
    const auto& [name, value] = new_parts[i];
    const std::string* const old_value = counterpart(old_parts, new_parts, i);
    if (old_value == nullptr) {
      sentences.push_back(name + " was added: " + shortened(value, 0));
    } else if (*old_value != value) {
      sentences.push_back(change(name, *old_value, value));
    }
  }
  for (std::size_t i = 0; i < old_parts.size(); ++i) {
    if (counterpart(new_parts, old_parts, i) == nullptr) {
      sentences.push_back(old_parts[i].first +
                          " was removed: " + shortened(old_parts[i].second, 0));
    }
  }
  if (sentences.empty() && !(before == now)) sentences.push_back("the order of the parts");
  return sentences;
}

}  // namespace truefuse::jit
