#include <algorithm>
#include <array>
#include <cctype>

#include <truefuse/core/error.h>
#include <truefuse/jit/arch.h>

namespace truefuse::jit {
namespace {

constexpr std::string_view kExample =
    "write it as the device reports it, for instance sm_90a, gfx90a or gfx936:sramecc+:xnack-";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); }

[[noreturn]] void fail(std::string_view text, const std::string& problem) {
  std::string shown;
  for (const char c : text.substr(0, 80)) {
    shown += std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  }
  throw Error("architecture \"" + shown + "\" " + problem + "; " + std::string(kExample));
}

Arch parse_nvidia(std::string_view text) {
  Arch arch;
  arch.vendor = Vendor::nvidia;
  arch.text = arch.base = std::string(text);
  std::string_view rest = text.substr(3);
  std::size_t digits = 0;
  while (digits < rest.size() && is_digit(rest[digits])) ++digits;
  if (digits < 2 || digits > 3 || rest[0] == '0') {
    fail(text, "does not have a number of two or three digits after sm_");
  }
  for (const char c : rest.substr(0, digits)) arch.number = arch.number * 10 + (c - '0');
  rest.remove_prefix(digits);
  if (rest == "a" || rest == "f") {
    arch.suffix = rest[0];
  } else if (!rest.empty()) {
    fail(text, "has \"" + std::string(rest) + "\" after its number, where only a or f may stand");
  }
  return arch;
}

/// "gfx90a" -> 9, "gfx1030" -> 10: the last two digits are minor version and stepping.
/// "gfx9-4-generic" -> 9. 0 if it is no such name.
int gfx_major(std::string_view base) {
  std::string_view digits = base.substr(3);
  constexpr std::string_view kGeneric = "-generic";
  if (digits.ends_with(kGeneric)) {
    digits.remove_suffix(kGeneric.size());
    const std::string_view minor = digits.substr(std::min(digits.find('-'), digits.size()));
    if (!minor.empty() &&
        (minor.size() < 2 || !std::all_of(minor.begin() + 1, minor.end(), is_digit)))
      return 0;
    digits = digits.substr(0, digits.size() - minor.size());
  } else {
    if (digits.size() < 3 || digits.size() > 4) return 0;
    if (!std::all_of(digits.begin(), digits.end(), is_hex)) return 0;
    digits.remove_suffix(2);
  }
  if (digits.empty() || digits.size() > 2 || digits[0] == '0') return 0;
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) return 0;
  int major = 0;
  for (const char c : digits) major = major * 10 + (c - '0');
  return major;
}

Arch parse_gfx(std::string_view text) {
  Arch arch;
  arch.vendor = Vendor::amd;
  const std::size_t colon = std::min(text.find(':'), text.size());
  arch.base = std::string(text.substr(0, colon));
  arch.number = gfx_major(arch.base);
  if (arch.number == 0) {
    fail(text, "does not have three or four hexadecimal digits after gfx");
  }
  // Feature flags: ":name+" or ":name-".
  for (std::string_view rest = text.substr(colon); !rest.empty();) {
    rest.remove_prefix(1);
    const std::string_view word = rest.substr(0, std::min(rest.find(':'), rest.size()));
    rest.remove_prefix(word.size());
    if (word.empty() || (word.back() != '+' && word.back() != '-')) {
      fail(text, "has the feature \"" + std::string(word) + "\", which must end in + or -");
    }
    const std::string_view name = word.substr(0, word.size() - 1);
    if (name.empty() || !is_lower(name[0]) || !std::all_of(name.begin(), name.end(), [](char c) {
          return is_lower(c) || is_digit(c) || c == '_';
        })) {
      fail(text, "has the feature \"" + std::string(word) + "\", which is not a lower-case word");
    }
    arch.features.emplace_back(name, word.back() == '+');
  }
  std::sort(arch.features.begin(), arch.features.end());
  arch.text = arch.base;
  for (std::size_t i = 0; i < arch.features.size(); ++i) {
    const auto& [name, on] = arch.features[i];
    if (i > 0 && arch.features[i - 1].first == name) {
      fail(text, "states the feature \"" + name + "\" twice");
    }
    arch.text += ":" + name + (on ? "+" : "-");
  }
  // Up to gfx9, a wave has 64 lanes; from gfx10 on, kernels are compiled for 32.
  arch.wave = arch.number <= 9 ? 64 : 32;
  constexpr std::array<std::string_view, 6> kHygon = {"gfx926", "gfx928", "gfx936",
                                                      "gfx938", "gfx92a", "gfx946"};
  arch.is_hygon = std::find(kHygon.begin(), kHygon.end(), arch.base) != kHygon.end();
  return arch;
}

}  // namespace

Arch parse_arch(std::string_view text) {
  if (text.empty()) fail(text, "is empty");
  if (text.size() > 128) fail(text, "is longer than any architecture's name");
  if (std::any_of(text.begin(), text.end(), [](char c) { return c <= ' ' || c > '~'; })) {
    fail(text, "contains a space or another character that is not printable");
  }
  if (std::any_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; })) {
    fail(text, "contains upper-case letters, and compilers know only lower-case names");
  }
  if (text == "native" || text == "all") {
    fail(text, "names no architecture, and a cached kernel must say which one it is for");
  }
  if (text.starts_with("amdgcn") || text.starts_with("nvptx")) {
    fail(text, "is a target triple, not an architecture");
  }
  if (text.starts_with("compute_")) {
    fail(text, "is a virtual architecture, and kernels are compiled for real ones (sm_...)");
  }
  if (text.starts_with("sm_")) return parse_nvidia(text);
  if (text.starts_with("gfx")) return parse_gfx(text);
  fail(text, "begins neither with sm_ (NVIDIA) nor with gfx (AMD, Hygon)");
}

bool runs_on(const Arch& target, const Arch& device) {
  if (target.vendor != device.vendor) return false;
  if (target.vendor == Vendor::amd) {
    return target.base == device.base &&
           std::includes(device.features.begin(), device.features.end(), target.features.begin(),
                         target.features.end());
  }
  if (target.suffix == 'a') return target.number == device.number;
  return target.number / 10 == device.number / 10 && target.number <= device.number;
}

std::vector<Arch> targets_for(const Arch& device) {
  std::vector<Arch> targets = {device};
  if (device.vendor == Vendor::amd) {
    if (device.base != device.text) targets.push_back(parse_arch(device.base));
    return targets;
  }
  // Code for a desktop or server chip does not run on a Tegra of the same major version.
  constexpr std::array<int, 5> kTegra = {53, 62, 72, 87, 101};
  const bool is_tegra = std::find(kTegra.begin(), kTegra.end(), device.number) != kTegra.end();
  const int lowest = is_tegra ? device.number : device.number / 10 * 10;
  for (int number = device.number; number >= lowest; --number) {
    const bool other_is_tegra = std::find(kTegra.begin(), kTegra.end(), number) != kTegra.end();
    if (number != device.number && other_is_tegra) continue;
    const std::string name = "sm_" + std::to_string(number);
    if (name != device.text) targets.push_back(parse_arch(name));
  }
  return targets;
}

}  // namespace truefuse::jit
