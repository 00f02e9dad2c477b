#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace truefuse::fuzz {

/// Inputs like those of a corpus, with a few edits each; the same for the same seed.
class Mutator {
 public:
  Mutator(std::vector<std::string> corpus, unsigned seed)
      : corpus_(std::move(corpus)), random_(seed) {}

  std::string next() {
    std::string text = corpus_[below(corpus_.size())];
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  /// A place and a length of what is there.
  std::pair<std::size_t, std::size_t> range(const std::string& text) {
    const std::size_t at = below(text.size() + 1);
    return {at, std::min<std::size_t>(1 + below(16), text.size() - at)};
  }

  void edit(std::string& text) {
    const auto [at, length] = range(text);
    switch (below(8)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        return;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random_());
        return;
      case 2:
        text.erase(at, length);
        return;
      case 3:
        text.insert(at, text.substr(at, length));
        return;
      case 4:
        text.insert(at, 1, kMarks[below(kMarks.size())]);
        return;
      case 5: {  // A part of another input.
        const std::string& other = corpus_[below(corpus_.size())];
        const auto [from, count] = range(other);
        text.insert(at, other, from, count);
        return;
      }
      case 6: {  // A number that readers add to or multiply.
        const std::string number = std::to_string(kNumbers[below(std::size(kNumbers))]);
        const std::size_t digits = text.find_first_of("0123456789", at);
        if (digits == std::string::npos) return;
        const std::size_t end = text.find_first_not_of("0123456789", digits);
        text.replace(digits, std::min(end, text.size()) - digits, number);
        return;
      }
      default: {  // The same as bytes.
        const std::uint64_t number = kNumbers[below(std::size(kNumbers))];
        const std::size_t bytes = std::size_t{1} << below(4);
        for (std::size_t i = 0; i < bytes && at + i < text.size(); ++i) {
          text[at + i] = static_cast<char>(number >> (8 * i));
        }
      }
    }
  }

  static constexpr char kCharacters[] = " \n\t\0:;,=|()[]/%@*+-_.<>\"'#\\\xff";
  static constexpr std::string_view kMarks{kCharacters, sizeof(kCharacters) - 1};
  static constexpr std::uint64_t kNumbers[] = {
      0, 1, 7, 127, 128, 255, 65535, 0x7fffffff, 0xffffffff, ~0ull >> 1, ~0ull >> 1, ~0ull};
  std::vector<std::string> corpus_;
  std::mt19937 random_;
};

}  // namespace truefuse::fuzz
