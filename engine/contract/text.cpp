#include <array>
#include <charconv>
#include <cmath>

#include <truefuse/contract/text.h>

namespace truefuse {

std::string either(std::span<const std::string> items) {
  std::string text;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i != 0) text += i + 1 == items.size() ? " or " : ", ";
    text += items[i];
  }
  return text;
}

std::string with_article(std::string_view name) {
  // A single letter is spoken by its name ("an x"), and a word by its first sound.
  const std::string_view an = name.size() == 1 ? "aefhilmnorsxAEFHILMNORSX" : "aeiouAEIOU";
  const bool takes_an = !name.empty() && an.find(name[0]) != std::string_view::npos;
  return (takes_an ? "an " : "a ") + std::string(name);
}

std::string counted(std::string_view count, std::string_view noun) {
  return std::string(count) + ' ' + std::string(noun) + (count == "1" ? "" : "s");
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

}  // namespace truefuse
